//! Forked processes: the child's calls are refused at once, and what it does with its copies does not affect the parent's locks.

use crate::corner::{Corner, pass};
use crate::limit::{self, within};

#[limit::test]
async fn a_childs_call_is_refused_at_once() {
    let corner = Corner::new().await;
    let mut worker = corner.worker([]);
    worker.send("fork job");
    // Only the child's answers end these waits, because no wait of the child has a bound.
    for asked in ["forked", "listed", "released"] {
        let answer = worker.says(asked).await;
        assert!(answer.starts_with("NotInitialized "), "{answer}");
    }
    worker.says("parent").await;
    let theirs = corner.locks().await;
    let tried = within("a try", theirs.lock("job").try_once()).await;
    tried.expect_err("the parent holds the lock");
    worker.asked("done job", "released").await;
    pass("the next lock", theirs.lock("job")).await;
}
