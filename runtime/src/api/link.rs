//! Link between traces (feature `opentelemetry`): from a waiting call's span to the call that has its lock.
//!
//! A call's record in etcd contains its place in a trace, as a W3C `traceparent`. A call that waits reads the owner's record after a
//! second.

use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState,
};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use crate::engine::Waiter;
use crate::values::Holder;

impl Waiter for Span {
    fn owned_by(&self, owner: &Holder) {
        link(self, owner);
    }
}

/// Returns the place of a span in its trace; `None` if it belongs to no trace.
pub(crate) fn trace_of(span: &Span) -> Option<String> {
    let context = span.context();
    let context = context.span().span_context().clone();
    let (trace, span) = (context.trace_id(), context.span_id());
    let flags = context.trace_flags().to_u8();
    context.is_valid().then(|| format!("00-{trace}-{span}-{flags:02x}"))
}

pub(crate) fn link(span: &Span, holder: &Holder) {
    if let Some(context) = holder.trace().and_then(parse) {
        span.add_link(context);
    }
}

fn parse(trace: &str) -> Option<SpanContext> {
    let parts: Vec<&str> = trace.split('-').collect();
    let [_, trace, span, flags] = parts[..] else { return None };
    if (trace.len(), span.len()) != (32, 16) {
        return None; // a shorter number would be another id
    }
    let trace = TraceId::from_hex(trace).ok()?;
    let span = SpanId::from_hex(span).ok()?;
    let flags = u8::from_str_radix(flags, 16).ok()?;
    let flags = TraceFlags::new(flags);
    let context = SpanContext::new(trace, span, flags, true, TraceState::default());
    context.is_valid().then_some(context)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn only_a_whole_trace_is_read() {
        let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let context = parse(trace).unwrap();
        assert!(context.is_remote() && context.is_sampled());
        assert_eq!(context.trace_id().to_string(), trace[3..35]);
        let none = "00-00000000000000000000000000000000-0000000000000000-00";
        for wrong in ["", "x", "00-1-2-3-4", "00-0af7-b7ad", none] {
            assert!(parse(wrong).is_none(), "{wrong}");
        }
    }
}
