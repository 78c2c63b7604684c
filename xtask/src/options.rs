//! Options of the command line: those that a command uses itself, and those that it passes on to other programs.

use crate::Result;
use crate::etcd::Choice;

/// Arguments of a command.
#[derive(Debug)]
pub(crate) struct Args(Vec<String>);

impl Args {
    pub(crate) fn new(args: Vec<String>) -> Self {
        Self(args)
    }

    /// Removes a flag, and returns whether it was there. Arguments after `--` belong to other programs.
    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let at = self.own().iter().position(|arg| arg == name);
        at.map(|at| self.0.remove(at)).is_some()
    }

    /// Removes an option, and returns its value: `--etcd 3.4` or `--etcd=3.4`.
    pub(crate) fn value(&mut self, name: &str) -> Result<Option<String>> {
        let with_value = format!("{name}=");
        let at = self.own().iter().position(|arg| arg == name || arg.starts_with(&with_value));
        let Some(at) = at else { return Ok(None) };
        let option = self.0.remove(at);
        match option.strip_prefix(&with_value) {
            Some(value) => Ok(Some(value.to_owned())),
            None if at < self.own().len() => Ok(Some(self.0.remove(at))),
            None => Err(format!("{name} needs a value")),
        }
    }

    /// Removes `--etcd`, and returns its value.
    pub(crate) fn etcd(&mut self) -> Result<Option<Choice>> {
        self.value("--etcd")?.map(|choice| choice.parse()).transpose()
    }

    /// Returns true if the arguments contain an option of another program.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.own().iter().any(|arg| arg == name || arg.starts_with(&format!("{name}=")))
    }

    /// Returns the remaining arguments, for another program.
    pub(crate) fn rest(self) -> Vec<String> {
        self.0
    }

    /// Fails if an argument is left.
    pub(crate) fn end(self) -> Result<()> {
        match self.0.first() {
            None => Ok(()),
            Some(arg) => Err(format!("unexpected argument `{arg}`; `cargo xtask help` lists all")),
        }
    }

    /// Returns the arguments before `--`.
    fn own(&self) -> &[String] {
        self.0.split(|arg| arg == "--").next().unwrap_or_default()
    }
}
