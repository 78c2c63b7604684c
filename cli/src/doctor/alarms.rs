//! Alarms that members of etcd have raised.

use etcd_locked::etcd_client::{AlarmAction, AlarmMember, AlarmType, Client};

use super::finding::Finding;
use crate::connection::answer;
use crate::failure::Failure;

pub(super) async fn alarms(client: &mut Client) -> Vec<Finding> {
    let asked = answer(client.alarm(AlarmAction::Get, AlarmType::None, None)).await;
    match asked {
        Err(Failure::Denied(_)) => vec![Finding::unseen(
            "alarm.hidden",
            "alarms are told to root only",
            "to see them, run it once more as a user with the role root",
        )],
        Err(failure) => vec![Finding::bad(
            "alarm.unread",
            format!("alarms cannot be read: {failure}"),
            "run it once more; if that lasts, look at the members above",
        )],
        Ok(alarms) if alarms.alarms().is_empty() => vec![Finding::good("alarm.none", "no alarm")],
        Ok(alarms) => alarms.alarms().iter().map(alarm).collect(),
    }
}

/// An alarm that a member has raised; `etcdctl member list` has its id and its address.
fn alarm(raised: &AlarmMember) -> Finding {
    let member = raised.member_id();
    match raised.alarm() {
        AlarmType::Nospace => Finding::bad(
            "alarm.nospace",
            format!(
                "alarm NOSPACE of member {member:x}: etcd is at its quota, and grants no lock (those held are renewed and released)"
            ),
            "make room by `etcdctl compact REVISION` and `etcdctl defrag --cluster`, or restart the members with a larger \
             --quota-backend-bytes; then `etcdctl alarm disarm`",
        ),
        _ => Finding::bad(
            "alarm.corrupt",
            format!("alarm CORRUPT of member {member:x}: its data differ from the others'"),
            "replace that member: `etcdctl member list` has its address",
        ),
    }
}
