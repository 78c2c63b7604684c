//! `doctor`: what is wrong with etcd, with rights, and with what lies below the prefix, and what to do.

mod alarms;
mod clock;
mod finding;
mod leftovers;
mod members;
mod rights;
mod writes;

use std::io::{self, Write};

use self::finding::Finding;
use self::members::Members;
use crate::connection::Connection;
use crate::failure::Failure;

/// Tells what it finds; returns whether all is well.
pub(crate) async fn doctor(connection: &Connection<'_>, probes: u32) -> Result<bool, Failure> {
    let mut report = Report { json: connection.json, is_read: true, all_well: true };
    let Members { findings, serving, refuse } = members::members(connection).await?;
    report.tell(&findings)?;
    // A client over all endpoints may ask a member that does not answer, and what it says then would be said of etcd.
    let Some(mut client) = serving else {
        return match refuse {
            true => Ok(false),
            false => Err(Failure::Etcd("no endpoint of etcd answers".to_owned())),
        };
    };
    // It mostly waits, so the rest is looked at meanwhile.
    let clock = clock::clock(client.clone());
    let looks = async {
        report.tell(&alarms::alarms(&mut client).await)?;
        report.tell(&[writes::writes(&mut client, probes).await])?;
        let (findings, reads) = rights::rights(&mut client, &connection.prefix).await;
        report.tell(&findings)?;
        if reads {
            report.tell(&leftovers::leftovers(connection, &mut client).await?)?;
        }
        Ok::<_, Failure>(())
    };
    let (looked, clock) = tokio::join!(looks, clock);
    looked?;
    report.tell(&[clock])?;
    Ok(report.all_well)
}

#[derive(Debug)]
struct Report {
    json: bool,
    /// False once the reader has closed the pipe.
    is_read: bool,
    all_well: bool,
}

impl Report {
    /// Prints findings. All are looked at even if the reader has gone, as `head -1` does: the exit status is of all.
    fn tell(&mut self, findings: &[Finding]) -> io::Result<()> {
        for finding in findings {
            self.all_well &= finding.is_bearable();
            if !self.is_read {
                continue;
            }
            let written = match self.json {
                true => writeln!(io::stdout(), "{}", finding.object()),
                false => write!(io::stdout(), "{finding}"),
            };
            match written {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.is_read = false,
                written => written?,
            }
        }
        Ok(())
    }
}
