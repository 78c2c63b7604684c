//! apt source of tools: the distribution's packages, unpacked without root and without installing them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::output;
use crate::{Result, workspace};

/// The packages of etcd.
pub(crate) const ETCD: &[&str] = &["etcd-server", "etcd-client"];

/// Unpacks packages of this machine's distribution below `dir`, and returns the directory of the executables.
pub(crate) fn distribution(dir: &Path, packages: &[&str]) -> Result<PathBuf> {
    if download(Command::new("apt-get"), dir, packages).is_err() {
        // The machine's package lists are probably missing. Updating them needs root, so xtask uses lists of its own.
        let state = State::new(None)?;
        state.update()?;
        download(state.apt_get(), dir, packages)?;
    }
    unpack(dir)
}

/// Unpacks packages of another suite below `dir`, and returns the directory of the executables.
pub(crate) fn suite(dir: &Path, suite: &str, packages: &[&str]) -> Result<PathBuf> {
    let state = State::new(Some(suite))?;
    // Some sources of the machine may lack this suite. Only the download shows whether one has it.
    let updated = state.update();
    download(state.apt_get(), dir, packages).map_err(|error| match updated {
        Ok(()) => error,
        Err(update) => format!("{update}; {error}"),
    })?;
    unpack(dir)
}

fn download(mut apt_get: Command, dir: &Path, packages: &[&str]) -> Result<()> {
    output(
        apt_get
            .current_dir(dir)
            .args(["-o", "APT::Sandbox::User=root", "download"])
            .args(packages),
    )
    .map(drop)
}

fn unpack(dir: &Path) -> Result<PathBuf> {
    for package in workspace::entries(dir)?
        .into_iter()
        .filter(|path| path.extension().is_some_and(|end| end == "deb"))
    {
        output(Command::new("dpkg").arg("-x").arg(package).arg(dir))?;
    }
    Ok(dir.join("usr/bin"))
}

/// Private apt state: package lists and caches, over the machine's sources, keys and proxies.
struct State {
    dir: tempfile::TempDir,
}

impl State {
    fn new(suite: Option<&str>) -> Result<Self> {
        let dir = tempfile::tempdir_in(workspace::tools())
            .map_err(|error| format!("no directory for apt: {error}"))?;
        let state = Self { dir };
        state
            .fill(suite)
            .map_err(|error| format!("no private state for apt: {error}"))?;
        if suite.is_some()
            && fs::read_dir(state.path("sources")).is_ok_and(|mut sources| sources.next().is_none())
        {
            return Err("no source of this machine's apt has a suite to replace".to_owned());
        }
        Ok(state)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn fill(&self, suite: Option<&str>) -> std::io::Result<()> {
        for name in ["lists/partial", "cache/archives/partial", "sources"] {
            fs::create_dir_all(self.path(name))?;
        }
        let mut conf = format!(
            "Dir::State::Lists \"{}\";\nDir::Cache \"{}\";\n",
            self.path("lists").display(),
            self.path("cache").display()
        );
        if let Some(suite) = suite {
            let codename = codename();
            let current = [codename.as_deref().unwrap_or("stable"), "stable"];
            for source in machine_sources() {
                let text = fs::read_to_string(&source)?;
                // Files of others mostly have no such suite, and stay out.
                if let Some(text) = with_suite(&text, &current, suite) {
                    let name = source.file_name().unwrap_or_default();
                    fs::write(self.path("sources").join(name), text)?;
                }
            }
            conf += &format!(
                "Dir::Etc::SourceList \"/dev/null\";\nDir::Etc::SourceParts \"{}\";\n",
                self.path("sources").display()
            );
        }
        // Package lists only, no update hooks of the machine, and no long wait for a mirror that does not answer.
        conf += "\
Acquire::Languages \"none\";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled \"false\";
Acquire::IndexTargets::deb::CNF::DefaultEnabled \"false\";
Acquire::IndexTargets::deb-src::Sources::DefaultEnabled \"false\";
Acquire::Retries \"1\";
Acquire::http::Timeout \"20\";
Acquire::https::Timeout \"20\";
APT::Sandbox::User \"root\";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
";
        fs::write(self.path("apt.conf"), conf)
    }

    fn apt_get(&self) -> Command {
        let mut apt_get = Command::new("apt-get");
        apt_get.arg("-c").arg(self.path("apt.conf"));
        apt_get
    }

    fn update(&self) -> Result<()> {
        output(self.apt_get().arg("update")).map(drop)
    }
}

/// Lists the source files that this machine's apt reads.
fn machine_sources() -> impl Iterator<Item = PathBuf> {
    let parts = fs::read_dir("/etc/apt/sources.list.d");
    let parts = parts.into_iter().flatten().flatten();
    std::iter::once(PathBuf::from("/etc/apt/sources.list"))
        .chain(parts.map(|entry| entry.path()))
        .filter(|path| {
            let end = path.extension().unwrap_or_default();
            (end == "list" || end == "sources") && path.is_file()
        })
}

fn codename() -> Option<String> {
    let release = fs::read_to_string("/etc/os-release").ok()?;
    let line = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    Some(line.trim_matches('"').to_owned())
}

/// Returns a source file, in either form, with `suite` in the place of each word that is one of `current`; `None` if there is none.
fn with_suite(text: &str, current: &[&str], suite: &str) -> Option<String> {
    let mut named = false;
    let words = text.split_inclusive(char::is_whitespace).map(|word| {
        let old = word.trim_end();
        if !current.contains(&old) {
            return word.to_owned();
        }
        named = true;
        word.replace(old, suite)
    });
    let text: String = words.collect();
    named.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::with_suite;

    #[test]
    fn suite_is_replaced_in_both_forms_of_a_source() {
        for (source, expected) in [
            (
                "deb [signed-by=/k.gpg] http://mirror/debian bookworm main\n\
                 deb http://mirror/debian bookworm-updates main\n",
                "deb [signed-by=/k.gpg] http://mirror/debian sid main\n\
                 deb http://mirror/debian bookworm-updates main\n",
            ),
            (
                "Types: deb\nURIs: http://mirror/bookworm\nSuites: bookworm bookworm-updates\n",
                "Types: deb\nURIs: http://mirror/bookworm\nSuites: sid bookworm-updates\n",
            ),
            ("Suites:\n  stable", "Suites:\n  sid"),
        ] {
            let replaced = with_suite(source, &["bookworm", "stable"], "sid");
            assert_eq!(replaced.as_deref(), Some(expected));
        }
        let theirs = "deb http://other/debian nodistro main\n";
        assert_eq!(with_suite(theirs, &["bookworm", "stable"], "sid"), None);
    }

    #[test]
    fn source_that_has_the_suite_already_is_one() {
        let source = "Suites: trixie\n";
        let replaced = with_suite(source, &["trixie", "stable"], "trixie");
        assert_eq!(replaced.as_deref(), Some(source));
    }
}
