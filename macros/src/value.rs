//! Values of the attribute's options, parsed from tokens. Literals are checked against their ranges.

use std::ops::RangeInclusive;
use std::time::Duration;

use proc_macro2::{Group, Span};
use syn::parse::{ParseStream, Parser as _};
use syn::token::Paren;
use syn::{
    Error, Expr, ExprLit, ExprUnary, Ident, Lit, LitStr, Path, PathSegment, Result, Token, UnOp,
};

/// Range of `ttl`. etcd does not grant a shorter lease. After a crash, the lock stays locked for the TTL, so it is bounded.
const TTL: RangeInclusive<Duration> = Duration::from_secs(2)..=Duration::from_secs(300);

/// Range of waits and hold times; a longer one could overflow a clock.
const MILLISECOND: Duration = Duration::from_millis(1);
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Range of `permits`. It is bounded because each waiter reads the keys of all holders.
const PERMITS: RangeInclusive<u16> = 1..=1024;

/// Value of an option, known at compile time or when the function is called.
pub(crate) enum Given<T> {
    /// Literal, which is checked here.
    Literal(T),
    /// Any other expression: rustc checks its type, and the runtime its value.
    Expression(Expr),
}

impl<T> Given<T> {
    pub(crate) fn literal(&self) -> Option<&T> {
        match self {
            Given::Literal(value) => Some(value),
            Given::Expression(_) => None,
        }
    }

    pub(crate) fn expression(&self) -> Option<&Expr> {
        match self {
            Given::Literal(_) => None,
            Given::Expression(value) => Some(value),
        }
    }
}

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

/// Variables that `proof` binds, one for each name of the call; `None` for `_`.
pub(crate) struct Proof {
    pub(crate) variables: Vec<Option<Ident>>,
    pub(crate) span: Span,
}

/// Parses `order` or `(from, _)`.
pub(crate) fn proof(input: ParseStream<'_>, write: &str) -> Result<Proof> {
    let span = input.span();
    let refuse = |error: Error| {
        let message = format!(
            "`proof` takes the name of a variable; write `{write}`, or `proof = (from, to)` for two locks"
        );
        Error::new(error.span(), message)
    };
    if !input.peek(Paren) {
        let variables = vec![Some(input.parse().map_err(refuse)?)];
        return Ok(Proof { variables, span });
    }
    let list: Group = input.parse()?;
    let read = |content: ParseStream<'_>| {
        let mut variables: Vec<Option<Ident>> = Vec::new();
        while !content.is_empty() {
            let variable = match content.parse::<Option<Token![_]>>()? {
                Some(_) => None,
                None => Some(content.parse::<Ident>().map_err(refuse)?),
            };
            if let Some(twice) = variable.as_ref().filter(|_| variables.contains(&variable)) {
                let message =
                    format!("`{twice}` is used for two locks; give each its own variable");
                return Err(Error::new(twice.span(), message));
            }
            variables.push(variable);
            if !content.is_empty() {
                content.parse::<Token![,]>().map_err(refuse)?;
            }
        }
        Ok(variables)
    };
    let variables = read.parse2(list.stream())?;
    let span = list.span();
    Ok(Proof { variables, span })
}

pub(crate) fn expression(input: ParseStream<'_>, key: &str, write: &str) -> Result<Expr> {
    input.parse().map_err(|error| {
        Error::new(
            error.span(),
            format!("`{key}` takes an expression, such as `{write}` ({error})"),
        )
    })
}

/// Returns the literal if it is the whole expression.
fn lone_literal(mut value: &Expr) -> Option<&Lit> {
    while let Expr::Group(group) = value {
        value = &group.expr; // a `macro_rules!` passes `$wait:literal` like this
    }
    match value {
        Expr::Lit(ExprLit { lit, .. }) => Some(lit),
        _ => None,
    }
}

pub(crate) fn string(input: ParseStream<'_>, key: &str, write: &str) -> Result<LitStr> {
    let value = expression(input, key, write)?;
    match lone_literal(&value) {
        Some(Lit::Str(text)) => Ok(text.clone()),
        _ => Err(Error::new_spanned(
            value,
            format!("`{key}` takes a string literal; write `{write}`"),
        )),
    }
}

/// Returns `none` for `wait = none`, for which rustc would suggest `None`; likewise `forever`.
fn unquoted(key: &str, value: &Expr) -> Option<&'static str> {
    let Expr::Path(path) = value else { return None };
    let mut words = ["none", "forever"].into_iter();
    words.find(|word| key == "wait" && path.path.is_ident(word))
}

/// Parses a string literal, which `check` validates, or an expression of type `Duration`.
pub(crate) fn time<T>(
    input: ParseStream<'_>,
    key: &str,
    write: &str,
    check: fn(&LitStr) -> Result<T>,
) -> Result<Given<T>> {
    let value = expression(input, key, write)?;
    let write = match lone_literal(&value) {
        None => match unquoted(key, &value) {
            None => return Ok(Given::Expression(value)),
            Some(word) => format!(r#"{key} = "{word}""#),
        },
        Some(Lit::Str(text)) => return check(text).map(Given::Literal),
        Some(Lit::Int(n)) if duration(&n.to_string()).is_some() => format!(r#"{key} = "{n}""#),
        Some(Lit::Int(n)) => format!(r#"{key} = "{}s""#, n.base10_digits()),
        Some(_) => write.to_owned(),
    };
    Err(Error::new_spanned(
        value,
        format!("`{key}` takes a string literal, or a `Duration`; write `{write}`"),
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
        Error::new(error.span(), "`crate` takes a path, such as `crate = ::etcd_locked`")
    })?;
    // A `macro_rules!` of a facade passes `$crate`.
    let from_root = |segment: &PathSegment| segment.ident == "crate" || segment.ident == "$crate";
    if path.leading_colon.is_some() || path.segments.first().is_some_and(from_root) {
        return Ok(path);
    }
    let shown: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
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
    one_of("on_held", [("skip", OnHeld::Skip), ("error", OnHeld::Error)], value)
}

pub(crate) fn on_lost(value: &LitStr) -> Result<OnLost> {
    one_of("on_lost", [("continue", OnLost::Continue), ("cancel", OnLost::Cancel)], value)
}

pub(crate) fn release(value: &LitStr) -> Result<Release> {
    one_of(
        "release",
        [("background", Release::Background), ("confirmed", Release::Confirmed)],
        value,
    )
}

/// Parses an option with two values, of which the second is the default.
fn one_of<T>(key: &str, values: [(&str, T); 2], value: &LitStr) -> Result<T> {
    let text = value.value();
    let [(other, _), (usual, _)] = &values;
    let message =
        format!(r#"`{key}` cannot be `{text}`; write `{key} = "{other}"` or `{key} = "{usual}"`"#);
    let found = values.into_iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| value).ok_or_else(|| Error::new(value.span(), message))
}

/// Parses an integer literal within [`PERMITS`], or an expression of type `u16`.
pub(crate) fn permits(input: ParseStream<'_>, write: &str) -> Result<Given<u16>> {
    let value = expression(input, "permits", write)?;
    let refuse = |message: String| Err(Error::new_spanned(&value, message));
    let out_of_range = |n: &str| {
        refuse(format!(
            "`permits` of {n} is out of range; write a number from 1 to {}",
            PERMITS.end()
        ))
    };
    let write = match lone_literal(&value) {
        None => match negative(&value) {
            None => return Ok(Given::Expression(value)),
            Some(n) => return out_of_range(&n),
        },
        Some(Lit::Int(n)) if ["", "u16"].contains(&n.suffix()) => match n.base10_parse() {
            Ok(permits) if PERMITS.contains(&permits) => return Ok(Given::Literal(permits)),
            _ => return out_of_range(n.base10_digits()),
        },
        Some(Lit::Int(n)) => format!("permits = {}", n.base10_digits()),
        Some(Lit::Str(text)) if text.value().parse::<u16>().is_ok() => {
            format!("permits = {}", text.value())
        }
        Some(_) => write.to_owned(),
    };
    refuse(format!("`permits` takes an integer literal, or a `u16`; write `{write}`"))
}

/// Returns the text of a negative integer literal, such as `-1`.
fn negative(value: &Expr) -> Option<String> {
    match value {
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => match lone_literal(expr) {
            Some(Lit::Int(n)) => Some(format!("-{n}")),
            _ => None,
        },
        _ => None,
    }
}

pub(crate) fn wait(value: &LitStr) -> Result<Wait> {
    let none = r#"does not wait; write `wait = "none"`"#;
    let long = r#"is more than a year; write `wait = "forever"`"#;
    match value.value().as_str() {
        "none" => Ok(Wait::Once),
        "forever" => Ok(Wait::Forever),
        _ => {
            let time = time_within(
                "wait",
                value,
                r#""none", "forever" or "#,
                MILLISECOND..=YEAR,
                none,
                long,
            );
            time.map(Wait::For)
        }
    }
}

pub(crate) fn max_hold(value: &LitStr) -> Result<Duration> {
    let none = r#"leaves the body no time; write at least "1ms""#;
    let long = "is more than a year; remove it";
    time_within("max_hold", value, "", MILLISECOND..=YEAR, none, long)
}

pub(crate) fn min_hold(value: &LitStr) -> Result<Duration> {
    let none = r#"keeps nothing locked; write at least "1ms""#;
    let long = "is more than a year; shorten it";
    time_within("min_hold", value, "", MILLISECOND..=YEAR, none, long)
}

pub(crate) fn ttl(value: &LitStr) -> Result<Duration> {
    let outside = r#"is out of range; write one from "2s" to "300s""#;
    time_within("ttl", value, "", TTL, outside, outside)
}

/// Parses a time in a range. `words` lists what may be written instead of a time; `short` and `long` describe the mistake of a
/// time outside the range.
fn time_within(
    key: &str,
    value: &LitStr,
    words: &str,
    range: RangeInclusive<Duration>,
    short: &str,
    long: &str,
) -> Result<Duration> {
    let text = value.value();
    let message = match duration(&text) {
        None => format!("`{key}` cannot be `{text}`; write {words}{EXAMPLE}"),
        Some(time) if time < *range.start() => format!("`{key}` of `{text}` {short}"),
        Some(time) if time > *range.end() => format!("`{key}` of `{text}` {long}"),
        Some(time) => return Ok(time),
    };
    Err(Error::new(value.span(), message))
}

const EXAMPLE: &str = r#"an integer with one of the units `ms`, `s`, `m`, `h`, such as "5s""#;

/// Parses `<integer>(ms|s|m|h)`. A number that overflows becomes the longest time, which the range check refuses.
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
    use super::*;

    #[test]
    fn durations_are_an_integer_and_a_unit() {
        let ms = |millis| Some(Duration::from_millis(millis));
        assert_eq!(
            ["250ms", "5s", "2m", "1h"].map(duration),
            [ms(250), ms(5000), ms(120_000), ms(3_600_000)]
        );
        for bad in ["", "5", "s", "5 s", "1.5s", "-5s", "5sec", "5S", "1m30s", "+5s", "5s ", "٣s"]
        {
            assert_eq!(duration(bad), None, "{bad}");
        }
        assert_eq!(duration("99999999999999999999h"), ms(u64::MAX));
    }
}
