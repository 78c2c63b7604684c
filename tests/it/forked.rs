//! Fork: the child's calls are refused at once, and what it does with its copies leaves the parent's locks alone.

use crate::corner::{Corner, pass};
use crate::drill::Drill;
use crate::limit::{self, within};
use crate::worker::Worker;

#[limit::test]
async fn a_childs_call_is_refused_at_once() {
    let mut drill = Drill::begin("A process forks while it holds a lock; the child asks for it");
    let corner = Corner::new().await;
    let environment = corner.environment().into_iter();
    let mut worker = Worker::start(environment.chain(drill.environment()));
    worker.send("fork job");
    // Nothing ends these waits but the answers: no wait of the child's has a bound.
    for (asked, refused) in
        [("forked", "NotInitialized"), ("listed", "NotInitialized"), ("released", "ShuttingDown")]
    {
        let answer = worker.says(asked).await;
        let (variant, says) = answer.split_once(' ').expect("an error and its text");
        assert_eq!(variant, refused, "{answer}");
        drill.got_saying(variant, &without_numbers(says));
    }
    worker.says("parent").await;
    let theirs = corner.locks().await;
    let tried = within("a try", theirs.lock("job").try_once()).await;
    tried.expect_err("the parent holds the lock");
    worker.asked("done job", "released").await;
    pass("the next lock", theirs.lock("job")).await;
    drill.shows("a process forks after its first lock").await;
    drill.end();
}

/// A text without process numbers, which differ from run to run.
fn without_numbers(text: &str) -> String {
    text.chars().filter(|it| !it.is_ascii_digit()).collect()
}
