//! Values of the attribute's options: parsed from tokens and checked against their ranges.

use std::ops::RangeInclusive;
use std::time::Duration;

use syn::parse::ParseStream;
use syn::{Error, Expr, ExprLit, Lit, LitStr, Path, PathSegment, Result};

/// Range of `ttl`. etcd grants no shorter lease; after a crash, a longer one blocks the others for as long.
const TTL: RangeInclusive<Duration> = Duration::from_secs(2)..=Duration::from_secs(300);

/// Limit of waits and hold times; a longer one could overflow a clock.
const MAX_WAIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Range of `permits`. It is bounded because each waiter reads the keys of all holders.
const PERMITS: RangeInclusive<u16> = 1..=1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Once,
    For(Duration),
    Forever,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OnHeld {
    #[default]
    Error,
    Skip,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OnLost {
    #[default]
    Cancel,
    Continue,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Release {
    #[default]
    Confirmed,
    Background,
}

pub(crate) fn expression(input: ParseStream<'_>, key: &str, write: &str) -> Result<Expr> {
    input.parse().map_err(|error| {
        Error::new(
            error.span(),
            format!("`{key}` takes an expression, such as `{write}` ({error})"),
        )
    })
}

pub(crate) fn string(input: ParseStream<'_>, key: &str, write: &str) -> Result<LitStr> {
    let value = expression(input, key, write)?;
    let mut inner = &value;
    while let Expr::Group(group) = inner {
        inner = &group.expr; // a `macro_rules!` hands on `$wait:literal` like this
    }
    let write = match inner {
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) => return Ok(text.clone()),
        Expr::Lit(ExprLit {
            lit: Lit::Int(n), ..
        }) if !["on_held", "on_lost", "release"].contains(&key) => {
            format!(r#"{key} = "{}s""#, n.base10_digits())
        }
        _ => write.to_owned(),
    };
    Err(Error::new_spanned(
        value,
        format!("`{key}` takes a string literal; write `{write}`"),
    ))
}

pub(crate) fn absolute_path(input: ParseStream<'_>) -> Result<Path> {
    if input.peek(LitStr) {
        let text: LitStr = input.parse()?;
        let write = text.value();
        let write = if write.starts_with("crate") {
            write
        } else {
            format!("::{}", write.trim_start_matches(':'))
        };
        return Err(Error::new(
            text.span(),
            format!("`crate` takes a path without quotes; write `crate = {write}`"),
        ));
    }
    let path = input.call(Path::parse_mod_style).map_err(|error| {
        Error::new(
            error.span(),
            "`crate` takes a path, such as `crate = ::etcd_locked`",
        )
    })?;
    // A `macro_rules!` of a facade hands on `$crate`.
    let from_root = |segment: &PathSegment| segment.ident == "crate" || segment.ident == "$crate";
    if path.leading_colon.is_some() || path.segments.first().is_some_and(from_root) {
        return Ok(path);
    }
    let shown: Vec<_> = path
        .segments
        .iter()
        .map(|segment| segment.ident.to_string())
        .collect();
    let (shown, bare) = (shown.join("::"), shown.last().cloned().unwrap_or_default());
    let write = match path.segments.first() {
        Some(first) if first.ident == "self" || first.ident == "super" => format!("crate::{bare}"),
        _ => format!("::{shown}"),
    };
    let message = format!(
        "`crate = {shown}` is relative; begin with `::` or `crate::`, such as `crate = {write}`"
    );
    Err(Error::new_spanned(path, message))
}

pub(crate) fn on_held(value: &LitStr) -> Result<OnHeld> {
    one_of(
        "on_held",
        [("skip", OnHeld::Skip), ("error", OnHeld::Error)],
        value,
    )
}

pub(crate) fn on_lost(value: &LitStr) -> Result<OnLost> {
    one_of(
        "on_lost",
        [("continue", OnLost::Continue), ("cancel", OnLost::Cancel)],
        value,
    )
}

pub(crate) fn release(value: &LitStr) -> Result<Release> {
    one_of(
        "release",
        [
            ("background", Release::Background),
            ("confirmed", Release::Confirmed),
        ],
        value,
    )
}

/// Reads an option with two values, of which the second is the default.
fn one_of<T>(key: &str, values: [(&str, T); 2], value: &LitStr) -> Result<T> {
    let text = value.value();
    let [(other, _), (usual, _)] = &values;
    let message =
        format!(r#"`{key}` cannot be `{text}`; write `{key} = "{other}"` or `{key} = "{usual}"`"#);
    let found = values.into_iter().find(|(word, _)| *word == text);
    found
        .map(|(_, value)| value)
        .ok_or_else(|| Error::new(value.span(), message))
}

/// Reads an integer literal within [`PERMITS`].
pub(crate) fn permits(input: ParseStream<'_>, write: &str) -> Result<u16> {
    let value = expression(input, "permits", write)?;
    let mut inner = &value;
    while let Expr::Group(group) = inner {
        inner = &group.expr; // a `macro_rules!` hands on `$n:literal` like this
    }
    let write = match inner {
        Expr::Lit(ExprLit {
            lit: Lit::Int(n), ..
        }) if n.suffix().is_empty() => match n.base10_parse() {
            Ok(permits) if PERMITS.contains(&permits) => return Ok(permits),
            _ => {
                let message = format!(
                    "`permits` of {n} is out of range; write one from 1 to {}",
                    PERMITS.end()
                );
                return Err(Error::new(n.span(), message));
            }
        },
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) if text.value().parse::<u16>().is_ok() => format!("permits = {}", text.value()),
        _ => write.to_owned(),
    };
    Err(Error::new_spanned(
        value,
        format!("`permits` takes an integer literal; write `{write}`"),
    ))
}

pub(crate) fn wait(value: &LitStr) -> Result<Wait> {
    let text = value.value();
    match text.as_str() {
        "none" => return Ok(Wait::Once),
        "forever" => return Ok(Wait::Forever),
        _ => {}
    }
    let refuse = |message| Err(Error::new(value.span(), message));
    match duration(&text) {
        None => refuse(format!(
            r#"`wait` cannot be `{text}`; write "none", "forever" or {EXAMPLE}"#
        )),
        Some(Duration::ZERO) => refuse(format!(
            r#"`wait` of `{text}` is no wait; write `wait = "none"`"#
        )),
        Some(long) if long > MAX_WAIT => refuse(format!(
            r#"`wait` of `{text}` is more than a year; write `wait = "forever"`"#
        )),
        Some(time) => Ok(Wait::For(time)),
    }
}

pub(crate) fn at_most(value: &LitStr) -> Result<Duration> {
    bounded("at_most", "leaves the body no time", "remove it", value)
}

pub(crate) fn at_least(value: &LitStr) -> Result<Duration> {
    bounded("at_least", "keeps nothing", "shorten it", value)
}

/// Reads a time from 1 ms to a year. `none` says what is wrong with zero, `more` what to do about a longer time.
fn bounded(key: &str, none: &str, more: &str, value: &LitStr) -> Result<Duration> {
    let text = value.value();
    let refuse = |message| Err(Error::new(value.span(), message));
    match duration(&text) {
        None => refuse(format!("`{key}` cannot be `{text}`; write {EXAMPLE}")),
        Some(Duration::ZERO) => refuse(format!(
            r#"`{key}` of `{text}` {none}; write one from "1ms""#
        )),
        Some(long) if long > MAX_WAIT => {
            refuse(format!("`{key}` of `{text}` is more than a year; {more}"))
        }
        Some(time) => Ok(time),
    }
}

pub(crate) fn ttl(value: &LitStr) -> Result<Duration> {
    let text = value.value();
    let refuse = |message| Err(Error::new(value.span(), message));
    match duration(&text) {
        None => refuse(format!("`ttl` cannot be `{text}`; write {EXAMPLE}")),
        Some(time) if TTL.contains(&time) => Ok(time),
        Some(_) => refuse(format!(
            r#"`ttl` of `{text}` is out of range; write one from "2s" to "300s""#
        )),
    }
}

const EXAMPLE: &str = r#"an integer with one of the units `ms`, `s`, `m`, `h`, such as "5s""#;

/// Reads `<integer>(ms|s|m|h)`. A number that overflows becomes the longest time, which the range check refuses.
fn duration(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let millis: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        _ => return None,
    };
    if digits.is_empty() {
        return None;
    }
    let number = digits.parse::<u64>().unwrap_or(u64::MAX);
    Some(Duration::from_millis(number.saturating_mul(millis)))
}

#[cfg(test)]
mod tests {
    use proc_macro2::Span;

    use super::*;

    #[test]
    fn durations_are_an_integer_and_a_unit() {
        let ms = |millis| Some(Duration::from_millis(millis));
        assert_eq!(
            ["250ms", "5s", "2m", "1h"].map(duration),
            [ms(250), ms(5000), ms(120_000), ms(3_600_000)]
        );
        for bad in [
            "", "5", "s", "5 s", "1.5s", "-5s", "5sec", "5S", "1m30s", "+5s", "5s ", "٣s",
        ] {
            assert_eq!(duration(bad), None, "{bad}");
        }
        assert_eq!(duration("99999999999999999999h"), ms(u64::MAX));
    }

    fn refusal<T: std::fmt::Debug>(read: fn(&LitStr) -> Result<T>, text: &str) -> String {
        read(&LitStr::new(text, Span::call_site()))
            .expect_err(text)
            .to_string()
    }

    #[test]
    fn refuses_values_out_of_range() {
        for ok in ["2s", "2000ms", "300s", "5m"] {
            assert!(ttl(&LitStr::new(ok, Span::call_site())).is_ok());
        }
        for bad in ["1s", "1999ms", "301s", "1h", "0s"] {
            assert!(refusal(ttl, bad).contains("out of range"));
        }
        assert!(refusal(wait, "0ms").ends_with(r#"write `wait = "none"`"#));
        assert!(refusal(wait, "9999999h").ends_with(r#"write `wait = "forever"`"#));
        assert!(refusal(wait, "never").contains(r#"write "none", "forever" or an integer"#));
        assert!(refusal(on_held, "wait").contains(r#"write `on_held = "skip"`"#));
        assert!(refusal(at_most, "0s").ends_with(r#"write one from "1ms""#));
        assert!(refusal(at_most, "99999h").ends_with("is more than a year; remove it"));
        assert!(refusal(at_least, "0s").contains("keeps nothing"));
        assert!(refusal(at_least, "99999h").ends_with("is more than a year; shorten it"));
        assert!(
            refusal(on_lost, "go")
                .contains(r#"write `on_lost = "continue"` or `on_lost = "cancel"`"#)
        );
        assert!(refusal(release, "later").contains(r#"write `release = "background"`"#));
    }
}
