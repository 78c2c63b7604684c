use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::answer::*;
use crate::values::backend::BackendError;
use crate::values::cycle::Cycle;
use crate::values::holder::{Author, Holder};
use crate::values::loss::LossCause;
use crate::values::name::render;

/// One of every kind, each full of what no client may see.
fn every_error() -> Vec<LockError> {
    let name = || render("orders/<id>", &[&"secret"]);
    let holder = || Holder::parse(&Author::here("secret", "secret").record(None, None, None, None));
    let source = || Arc::<dyn std::error::Error + Send + Sync>::from(Box::from("secret"));
    let secret = || "secret".to_owned();
    vec![
        LockError::Held {
            name: name(),
            holder: holder(),
            unleased: Some("locks/orders/secret/8f3c".into()),
        },
        LockError::Timeout {
            name: name(),
            holder: holder(),
            unleased: Some("locks/orders/secret/8f3c".into()),
            waited: Duration::from_secs(5),
        },
        LockError::Lost { name: name(), cause: LossCause::Deleted },
        LockError::HoldLimit { name: name(), limit: Duration::from_secs(5) },
        LockError::Deadlock {
            name: name(),
            cycle: Cycle::of([("secret".into(), holder())].into_iter()),
        },
        LockError::Overloaded { name: name() },
        LockError::ShuttingDown,
        LockError::Backend { source: source() },
        LockError::InvalidName { name: name(), reason: secret() },
        LockError::NotInitialized { reason: secret() },
        LockError::AlreadyInitialized,
        LockError::Config { message: secret() },
        LockError::SelfDeadlock { name: name() },
        LockError::OrderInversion {
            name: name(),
            held: Box::new(name()),
            here: "secret",
            there: "secret",
        },
        LockError::PermissionDenied { name: Some(name()), source: source() },
    ]
}

/// The variant, as it is written. Whoever adds one adds it to `every_error` too, where its place is this number.
fn variant(error: &LockError) -> (usize, &'static str) {
    match error {
        LockError::Held { .. } => (0, "Held"),
        LockError::Timeout { .. } => (1, "Timeout"),
        LockError::Lost { .. } => (2, "Lost"),
        LockError::HoldLimit { .. } => (3, "HoldLimit"),
        LockError::Deadlock { .. } => (4, "Deadlock"),
        LockError::Overloaded { .. } => (5, "Overloaded"),
        LockError::ShuttingDown => (6, "ShuttingDown"),
        LockError::Backend { .. } => (7, "Backend"),
        LockError::InvalidName { .. } => (8, "InvalidName"),
        LockError::NotInitialized { .. } => (9, "NotInitialized"),
        LockError::AlreadyInitialized => (10, "AlreadyInitialized"),
        LockError::Config { .. } => (11, "Config"),
        LockError::SelfDeadlock { .. } => (12, "SelfDeadlock"),
        LockError::OrderInversion { .. } => (13, "OrderInversion"),
        LockError::PermissionDenied { .. } => (14, "PermissionDenied"),
    }
}

#[test]
fn every_error_is_here_once() {
    for (n, error) in every_error().iter().enumerate() {
        assert_eq!(variant(error).0, n, "{error:?}");
    }
    assert_eq!(every_error().len(), 15);
}

#[test]
fn what_may_be_tried_again_says_when_unless_nobody_knows() {
    let source = Arc::new(BackendError::permanent("bad password".into()));
    let misconfigured = LockError::Backend { source };
    assert_eq!(row(&misconfigured).0.reason, "LOCK_FAULT");
    for error in every_error().into_iter().chain([misconfigured]) {
        let row = row(&error).0;
        let again = error.is_retryable() || matches!(error, LockError::ShuttingDown);
        assert_eq!(row.retry_after.is_some() || row.http == 423, again, "{error:?}");
    }
}

#[test]
fn no_answer_tells_what_is_in_a_name_or_where_the_holder_is() {
    for error in every_error() {
        let text = Answer::to(&error).text;
        assert!(!text.contains("secret"), "{text}");
        assert_eq!(row(&error).1.is_some(), text.contains("lock `orders/<id>` "), "{text}");
    }
    let session_key = LockError::PermissionDenied {
        name: None,
        source: Arc::new(std::io::Error::other("secret")),
    };
    assert_eq!(
        Answer::to(&session_key).text,
        "LOCK_FAULT: the request failed for a reason that is in the log"
    );
}

#[cfg(feature = "axum")]
#[test]
fn axum_gets_every_row() {
    use axum_core::response::IntoResponse;

    for error in every_error() {
        let row = row(&error).0;
        let response = error.clone().into_response();
        assert_eq!(response.status().as_u16(), row.http);
        assert_eq!(
            response.headers().get("retry-after").cloned(),
            row.retry_after.map(|s| u16::from(s).into())
        );
        let kept = response.extensions().get::<LockError>();
        assert_eq!(kept.map(variant), Some(variant(&error)));
    }
}

#[cfg(feature = "actix")]
#[test]
fn actix_gets_every_row() {
    use actix_web::body::MessageBody;

    for error in every_error() {
        let row = row(&error).0;
        let text = Answer::to(&error).text;
        let response = actix_web::Error::from(error).error_response();
        assert_eq!(response.status().as_u16(), row.http);
        let retry = response.headers().get("retry-after").cloned();
        assert_eq!(retry, row.retry_after.map(|s| u16::from(s).into()));
        assert_eq!(response.into_body().try_into_bytes().unwrap(), text);
    }
}

#[cfg(feature = "tonic")]
#[test]
fn tonic_gets_every_row() {
    use ::tonic::Status;
    use std::error::Error as _;

    for error in every_error() {
        let row = row(&error).0;
        let text = Answer::to(&error).text;
        let status = Status::from(error.clone());
        assert_eq!((status.code(), status.message()), (row.grpc, text.as_str()));
        let pushback = status.metadata().get("grpc-retry-pushback-ms").cloned();
        let expected = row.retry_after.map(|s| (u32::from(s) * 1000).into());
        assert_eq!(pushback, expected);
        assert!(!format!("{status} {status:?}").contains("secret"), "{status}");
        let kept = status.source().and_then(|origin| origin.source());
        let kept = kept.and_then(|kept| kept.downcast_ref::<LockError>());
        assert_eq!(kept.map(variant), Some(variant(&error)));
    }
}

/// As gRPC spells it.
fn spelled(code: Code) -> String {
    let mut spelled = String::new();
    for c in format!("{code:?}").chars() {
        if c.is_uppercase() && !spelled.is_empty() {
            spelled.push('_');
        }
        spelled.push(c.to_ascii_uppercase());
    }
    spelled
}

/// `ANSWERS=overwrite cargo test -p etcd-locked --features tonic --lib answer` writes the page.
#[test]
fn the_page_says_what_the_table_says() {
    let mut page = "\
<!-- Written from the table in `src/answer/mod.rs`, by `ANSWERS=overwrite` and the test beside it; not by hand. -->

| | HTTP | `Retry-After` | gRPC | the text begins with | because |
|---|---|---|---|---|---|
"
    .to_owned();
    for error in every_error() {
        let (row, variant) = (row(&error).0, variant(&error).1);
        let retry = row.retry_after.map(|s| format!("{s} s"));
        let _ = writeln!(
            page,
            "| [`{variant}`](LockError::{variant}) | {} | {} | `{}` | `{}` | {} |",
            row.http,
            retry.as_deref().unwrap_or("–"),
            spelled(row.grpc),
            row.reason,
            row.because
        );
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/answers.md");
    if std::env::var("ANSWERS").is_ok_and(|it| it == "overwrite") {
        fs::write(&path, &page).expect("a page to write");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page, "{} is to be written anew:\n{page}", path.display());
}
