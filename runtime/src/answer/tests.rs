use std::sync::Arc;
use std::time::Duration;

use crate::answer::*;
use crate::values::{Author, BackendError, Cycle, Holder, LockName as _, LossCause, render};

/// Returns one error of each kind, in the order of the page, filled with secrets that no client may see.
fn every_error() -> Vec<LockError> {
    let name = || render("orders/<id>", &[&"secret"]);
    let call = etcd_locked_core::CallId(1);
    let record = Author::here("secret", "secret").record(None, None, None, None, call);
    let holder = || Holder::parse(&record);
    let source = || Arc::<dyn std::error::Error + Send + Sync>::from(Box::from("secret"));
    let secret = || "secret".to_owned();
    let unleased = || Some("locks/orders/secret/8f3c".into());
    let waited = Duration::from_secs(5);
    let cycle = Cycle::of([("secret".into(), holder())].into_iter());
    let held = Box::new(name());
    vec![
        LockError::Held { name: name(), holder: holder(), unleased: unleased() },
        LockError::Timeout { name: name(), holder: holder(), unleased: unleased(), waited },
        LockError::Lost { name: name(), cause: LossCause::Gone },
        LockError::HoldLimit { name: name(), limit: waited },
        LockError::Deadlock { name: name(), cycle },
        LockError::Overloaded { name: name() },
        LockError::ShuttingDown,
        LockError::Backend { source: source() },
        LockError::InvalidName { name: name(), reason: secret() },
        LockError::NotInitialized { reason: secret() },
        LockError::AlreadyInitialized,
        LockError::Config { message: secret() },
        LockError::SelfDeadlock { name: name() },
        LockError::OrderInversion { name: name(), held, here: "secret", there: "secret" },
        LockError::RuntimeEnded { what: "secret" },
        LockError::PermissionDenied { name: Some(name()), source: source() },
    ]
}

/// Returns the variant's name.
fn variant(error: &LockError) -> String {
    let shown = format!("{error:?}");
    shown.split([' ', '{']).next().unwrap_or_default().to_owned()
}

#[test]
fn page_has_a_row_for_each_error() {
    let page = include_str!("../../docs/answers.md");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| [")).collect();
    let errors = every_error();
    assert_eq!(rows.len(), errors.len());
    for (line, error) in rows.iter().zip(errors) {
        let Row { reason, http, grpc, retry_after, .. } = Row::of(&error);
        let retry = retry_after.map_or("–".to_owned(), |s| format!("{s} s"));
        let cells: Vec<&str> = line.split(" | ").collect();
        assert!(cells[0].starts_with(&format!("| [`{}`]", variant(&error))), "{line}");
        let grpc = format!("`{grpc:?}`");
        let code = cells[3].replace('_', "");
        assert!(code.eq_ignore_ascii_case(&grpc), "{line}: {grpc}");
        assert_eq!(cells[1..3], [&*http.to_string(), &*retry], "{line}");
        assert_eq!(cells[4], format!("`{reason}`"));
    }
}

#[test]
fn retryable_errors_say_when_unless_the_lock_is_held() {
    let source = Arc::new(BackendError::permanent("bad password".into()));
    let misconfigured = LockError::Backend { source };
    assert_eq!(Row::of(&misconfigured).reason, FAULT);
    for error in every_error().into_iter().chain([misconfigured]) {
        let row = Row::of(&error);
        let again = error.is_retryable() || matches!(error, LockError::ShuttingDown);
        assert_eq!(row.retry_after.is_some() || row.http == 423, again, "{error:?}");
    }
}

#[test]
fn answer_shows_neither_values_nor_holders() {
    let name = "secret".lock_name().showing(true);
    assert!(!Answer::to(&LockError::Overloaded { name }).text.contains("secret"));
    for error in every_error() {
        let text = Answer::to(&error).text;
        assert!(!text.contains("secret"), "{text}");
        assert_eq!(error.name().is_some(), text.contains("lock `orders/<id>` "), "{text}");
    }
}

#[cfg(feature = "axum")]
#[test]
fn axum_gets_every_row() {
    use axum_core::response::IntoResponse;

    for error in every_error() {
        let row = Row::of(&error);
        let response = error.clone().into_response();
        assert_eq!(response.status().as_u16(), row.http);
        let retry = response.headers().get("retry-after").cloned();
        assert_eq!(retry, row.retry_after.map(|s| u16::from(s).into()));
        let kept = response.extensions().get::<LockError>();
        assert_eq!(kept.map(variant), Some(variant(&error)));
    }
}

#[cfg(feature = "tonic")]
#[test]
fn tonic_gets_every_row() {
    use ::tonic::Status;
    use std::error::Error as _;

    for error in every_error() {
        let Answer { row, text } = Answer::to(&error);
        let status = Status::from(error.clone());
        assert_eq!((status.code(), status.message()), (row.grpc, text.as_str()));
        let pushback = status.metadata().get("grpc-retry-pushback-ms").cloned();
        let half_done = ["Lost", "HoldLimit", "RuntimeEnded"].contains(&&*variant(&error));
        let forbidden = half_done.then_some(-1);
        let wanted = row.retry_after.map(|s| i32::from(s) * 1000).or(forbidden);
        assert_eq!(pushback, wanted.map(Into::into));
        assert!(!format!("{status} {status:?}").contains("secret"), "{status}");
        let kept = status.source().and_then(|origin| origin.source());
        let kept = kept.and_then(|kept| kept.downcast_ref::<LockError>());
        assert_eq!(kept.map(variant), Some(variant(&error)));
    }
}
