//! Options of a command line.

use crate::etcd::{self, Etcd};
use crate::{Result, say};

/// Options of a command that plays rounds.
pub(crate) struct Rounds {
    /// The etcd that was asked for, else one that is found.
    pub(crate) etcd: Etcd,
    pub(crate) times: usize,
    /// How many are played at once.
    pub(crate) lanes: usize,
    /// Whether the page is written.
    pub(crate) writes: bool,
}

impl Rounds {
    /// Reads the arguments of this command, which has these numbers unless they say otherwise.
    pub(crate) fn parse(
        command: &str,
        args: &[String],
        times: usize,
        lanes: usize,
    ) -> Result<Self> {
        let mut args = args.to_vec();
        let asked = etcd::asked(&mut args)?;
        let times = number(&mut args, "--times")?.unwrap_or(times);
        let lanes = number(&mut args, "--lanes")?.unwrap_or(lanes);
        let writes = flag(&mut args, "--write");
        if !args.is_empty() {
            return Err(format!(
                "usage: cargo xtask {command} [--times N] [--lanes N] [--write] [--etcd CHOICE]"
            ));
        }
        say::step("etcd");
        Ok(Self {
            etcd: asked.map_or_else(Etcd::find, Ok)?,
            times,
            lanes,
            writes,
        })
    }
}

/// Takes an option and its number, which is not zero, out of the arguments.
pub(crate) fn number(args: &mut Vec<String>, option: &str) -> Result<Option<usize>> {
    let Some(at) = args.iter().position(|arg| arg == option) else {
        return Ok(None);
    };
    let value = args.get(at + 1).and_then(|value| value.parse().ok());
    let value = value.filter(|value| *value > 0);
    let value = value.ok_or_else(|| format!("`{option}` needs a number"))?;
    args.drain(at..at + 2);
    Ok(Some(value))
}

/// Takes a flag out of the arguments; false if it is not there.
pub(crate) fn flag(args: &mut Vec<String>, flag: &str) -> bool {
    let all = args.len();
    args.retain(|arg| arg != flag);
    args.len() < all
}
