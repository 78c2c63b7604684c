//! Command `cargo xtask api`: compares the public API with `runtime/API.txt`, so that a review shows every change of it.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::options::Args;
use crate::process::run;
use crate::{Result, say, workspace};

/// Toolchain for rustdoc's JSON, which only nightly writes.
const TOOLCHAIN: &str = "nightly";

/// Crate whose types are not part of the promise of 1.0, and the feature that exposes it.
const OUTSIDE: (&str, &str) = ("etcd_client", "etcd-client");

pub(crate) fn api(mut args: Args) -> Result<String> {
    let write = args.flag("--write");
    args.end()?;
    let mut version = Command::new("rustup");
    version.args(["run", TOOLCHAIN, "rustdoc", "--version"]);
    if !version.output().is_ok_and(|output| output.status.success()) {
        let install = format!("`rustup toolchain install {TOOLCHAIN}`");
        return Ok(format!("api: skipped — it needs rustdoc's JSON: {install}"));
    }
    let features = features()?;

    say::step("the API without the client of etcd");
    let (types, feature) = OUTSIDE;
    let others: Vec<&str> = features.iter().map(|it| &**it).filter(|it| *it != feature).collect();
    let (_, without) = documented(&others)?;
    if let Some(line) = without.lines().find(|line| line.contains(types)) {
        return Err(format!("a type of {types} is public without the feature {feature}: {line}"));
    }

    say::step("the API with all features");
    let (docs, listed) = documented(&features.iter().map(|it| &**it).collect::<Vec<_>>())?;
    let silent = silent(&docs);
    if !silent.is_empty() {
        return Err(format!("async functions whose docs do not mention cancel safety: {silent:?}"));
    }
    let file = workspace::root().join("runtime/API.txt");
    if write {
        std::fs::write(&file, &listed).map_err(workspace::failed_at(&file))?;
        return Ok(format!("api: written — {} lines", listed.lines().count()));
    }
    let kept = workspace::read(&file)?;
    let gone = kept.lines().filter(|line| !listed.lines().any(|it| it == *line));
    let come = listed.lines().filter(|line| !kept.lines().any(|it| it == *line));
    let changes = gone.map(|it| format!("- {it}\n")).chain(come.map(|it| format!("+ {it}\n")));
    let changes: String = changes.collect();
    match kept == listed {
        true => Ok(format!("api: ok — {} lines", listed.lines().count())),
        false => Err(format!(
            "the public API has changed:\n{changes}`cargo xtask api --write` accepts these changes"
        )),
    }
}

fn features() -> Result<Vec<String>> {
    let mut metadata = workspace::cargo();
    let output = metadata.args(["metadata", "--no-deps", "--format-version", "1"]).output();
    let output = output.map_err(|error| format!("cargo metadata: {error}"))?;
    let all: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let packages = all["packages"].as_array().into_iter().flatten();
    let ours = packages.filter(|it| it["name"] == "etcd-locked");
    let features = ours.filter_map(|it| it["features"].as_object());
    Ok(features.flat_map(|it| it.keys().cloned()).collect())
}

/// Runs rustdoc on the library with these features; returns its JSON, and the list of public items.
fn documented(features: &[&str]) -> Result<(Value, String)> {
    let target = workspace::target().join("api"); // for another compiler than everything else
    let mut rustdoc = workspace::clean(Command::new("rustup"));
    rustdoc
        .args(["run", TOOLCHAIN, "cargo", "rustdoc", "-p", "etcd-locked", "--lib"])
        .args(["--features", &features.join(",")])
        .arg("--target-dir")
        .arg(&target)
        .args(["--", "-Zunstable-options", "--output-format=json"]);
    run("rustdoc", &mut rustdoc)?;
    let json: PathBuf = target.join("doc/etcd_locked.json");
    let api = public_api::Builder::from_rustdoc_json(&json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build();
    let api = api.map_err(|error| {
        format!("rustdoc's JSON does not have the format that the crate public-api reads: {error}")
    })?;
    let docs = serde_json::from_str(&workspace::read(&json)?).map_err(|error| error.to_string())?;
    Ok((docs, api.to_string()))
}

/// Returns the public async functions whose docs do not mention cancel safety.
fn silent(docs: &Value) -> Vec<&str> {
    let items = docs["index"].as_object().into_iter().flat_map(|index| index.values());
    let public = items.filter(|it| it["crate_id"] == 0 && it["visibility"] == "public");
    let is_async = |it: &&Value| it["inner"]["function"]["header"]["is_async"] == true;
    let says = |it: &Value| {
        it["docs"].as_str().is_some_and(|docs| docs.to_lowercase().contains("cancel safe"))
    };
    let silent = public.filter(is_async).filter(|it| !says(it));
    silent.filter_map(|it| it["name"].as_str()).collect()
}
