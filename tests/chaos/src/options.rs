//! Options of the command line.

use std::path::PathBuf;
use std::time::Duration;

use crate::run::Options;
use crate::schedule::Kind;
use crate::worker::mix::Mix;
use crate::worker::sabotage::Sabotage;

pub(crate) const USAGE: &str = "\
usage: etcd-locked-chaos [--minutes N] [--mix NAME] [--seed S] [--only FAULT] [--sabotage NAME]
                         [--peer lock-service | --peer etcdctl | --peer NAME --program FILE] [--client VERSION]
                         [--keep FOLDER] [--write FOLDER]
       etcd-locked-chaos --judge FILE ... [--write FOLDER]";

/// What the command line asks for.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) options: Options,
    /// Histories to judge, instead of a run.
    pub(crate) judge: Vec<PathBuf>,
    /// Where histories are kept.
    pub(crate) keep: PathBuf,
    /// The folder whose results are written anew, with this run.
    pub(crate) write: Option<PathBuf>,
}

impl Command {
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        let mut command = Self {
            options: Options {
                time: Duration::from_secs(60),
                mix: "all".to_owned(),
                seed: fastrand::u64(0..1_000_000),
                who: None,
                program: None,
                only: Vec::new(),
                client: String::new(),
            },
            judge: Vec::new(),
            keep: PathBuf::from("target/chaos"),
            write: None,
        };
        let mut args = args.iter().peekable();
        while let Some(option) = args.next() {
            let value = args
                .next()
                .ok_or_else(|| format!("`{option}` wants a value"))?;
            let wrong = || format!("`{option} {value}` makes no sense");
            let options = &mut command.options;
            match option.as_str() {
                "--minutes" => {
                    let minutes: f64 = value.parse().map_err(|_| wrong())?;
                    let time = Duration::try_from_secs_f64(minutes * 60.0).map_err(|_| wrong())?;
                    options.time = time.max(Duration::from_secs(30));
                }
                "--mix" => {
                    let mix = Mix::named(value).ok_or_else(|| {
                        let all: Vec<_> = Mix::names().collect();
                        format!("there is no mix `{value}`; there are {}", all.join(", "))
                    })?;
                    options.mix = mix.name.to_owned();
                }
                "--seed" => options.seed = value.parse().map_err(|_| wrong())?,
                "--only" => options.only.push(Kind::named(value).ok_or_else(|| {
                    let all: Vec<_> = Kind::words().collect();
                    format!("there is no fault `{value}`; there are {}", all.join(", "))
                })?),
                "--sabotage" => {
                    Sabotage::named(value).ok_or_else(wrong)?;
                    options.who = Some(value.clone());
                }
                "--peer" => options.who = Some(value.clone()),
                "--client" => options.client = value.clone(),
                "--program" => options.program = Some(value.into()),
                "--judge" => {
                    command.judge.push(value.into());
                    while let Some(file) = args.next_if(|arg| !arg.starts_with("--")) {
                        command.judge.push(file.into());
                    }
                }
                "--keep" => command.keep = value.into(),
                "--write" => command.write = Some(value.into()),
                _ => return Err(format!("cannot make sense of `{option}`")),
            }
        }
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_histories_are_judged() {
        let args = ["--judge", "a.gz", "b.gz", "--write", "."].map(str::to_owned);
        let command = Command::parse(&args).expect("a command");
        assert_eq!(command.judge, [PathBuf::from("a.gz"), "b.gz".into()]);
        assert_eq!(command.write, Some(".".into()));
    }
}
