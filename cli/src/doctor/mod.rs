//! Command `doctor`: checks etcd, the user's rights and the keys below the prefix, and says what to do about problems.

mod clock;
mod finding;
mod leftovers;
mod members;
mod probes;

use std::io;

use self::finding::Finding;
use self::members::Members;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::output::{on_terminal, say};

/// Prints the findings; returns true if none is a problem.
pub(crate) async fn doctor(connection: &Connection<'_>, probes: u32) -> Result<bool, Failure> {
    let mut report = Report { json: connection.json, is_read: true, all_well: true };
    if on_terminal() {
        say(format_args!("this takes 3 s or more, and grants and revokes {probes} leases"));
    }
    let Members { findings, serving, refuse } = members::members(connection).await?;
    report.tell(&findings)?;
    // A client of all endpoints may send a request to a member that is silent. The failure would then be reported about etcd.
    let Some(mut client) = serving else {
        return match refuse {
            true => Ok(false),
            false => Err(Failure::Etcd("no endpoint of etcd answers".to_owned())),
        };
    };
    // The clock check mostly waits, so the other checks run meanwhile.
    let clock = clock::clock(client.clone());
    let looks = async {
        report.tell(&probes::alarms(&mut client).await)?;
        report.tell(&[probes::writes(&mut client, probes).await])?;
        report.tell(&probes::rights(&mut client, &connection.prefix).await)?;
        match leftovers::leftovers(connection, &mut client).await {
            Ok(found) => Ok(report.tell(&found)?),
            Err(Failure::Denied(_)) => Ok(()), // the check of the rights reports it
            Err(failure) => Err(failure),
        }
    };
    let (looked, clock) = tokio::join!(looks, clock);
    looked?;
    report.tell(&[clock])?;
    Ok(report.all_well)
}

#[derive(Debug)]
struct Report {
    json: bool,
    /// False after the reader has closed the pipe.
    is_read: bool,
    all_well: bool,
}

impl Report {
    /// Prints findings. The checks go on after the reader has gone, as with `head -1`, because the exit status covers all of them.
    fn tell(&mut self, findings: &[Finding]) -> io::Result<()> {
        for finding in findings {
            self.all_well &= finding.is_bearable();
            if !self.is_read {
                continue;
            }
            match finding.print(self.json) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.is_read = false,
                written => written?,
            }
        }
        Ok(())
    }
}
