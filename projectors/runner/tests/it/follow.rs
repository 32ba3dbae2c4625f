//! The fold on its thread: following, waiting, stopping.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use gatelog_runner::{Health, Runner, RunnerError, WaitError};
use gatelog_store::{Projection, StoreError};

use crate::lending::{Lending, PARTITION, Story};
use crate::{append, config, log_of};

/// Long enough for any machine; nothing waits so long unless it fails.
const LONG: Duration = Duration::from_secs(60);

struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn it_follows_the_log_and_wakes_those_who_wait() {
    let story = Story::long(60);
    let (memory, log) = log_of(&story, 20);
    let dir = tempfile::tempdir().unwrap();
    let runner = Runner::<Lending>::start(log, PARTITION, config(dir.path())).unwrap();
    let published = runner.published();
    assert_eq!(published.wait_until(20, LONG).unwrap().sequence, 20);
    let error = published.wait_until(21, Duration::from_millis(1)).unwrap_err();
    assert_eq!(error, WaitError::NotYet { wanted: 21, at: 20 });

    let woken = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&woken));
    let mut subscription = published.subscribe();
    let mut reached = pin!(subscription.reached(45));
    assert!(reached.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    append(&memory, &story, 20, 60);
    assert_eq!(published.wait_until(60, LONG).unwrap().sequence, 60);
    assert!(woken.0.load(Ordering::SeqCst) > 0);
    let Poll::Ready(Ok(position)) = reached.as_mut().poll(&mut Context::from_waker(&waker)) else {
        panic!("event 45 is folded");
    };
    assert!(position.sequence >= 45);

    let projection = runner.projection();
    assert_eq!(projection.view().projection().digest().unwrap(), story.digests[60]);
    let mut more = published.subscribe();
    let mut changed = pin!(more.changed());
    assert!(changed.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(projection);
    runner.stop();
    let Poll::Ready(Err(error)) = changed.as_mut().poll(&mut Context::from_waker(&waker)) else {
        panic!("the fold has ended");
    };
    assert_eq!(error, WaitError::Ended { wanted: 61, at: 60 });
    // It let go of the projection.
    assert_eq!(Projection::<Lending>::open(dir.path(), PARTITION).unwrap().0.position().sequence, 60);
}

#[test]
fn a_refused_event_stops_it_for_all_to_see_and_what_was_folded_can_still_be_read() {
    let mut story = Story::long(30);
    story.tell_wrong("sell", "nobody wrote this", 0);
    let (memory, log) = log_of(&story, 25);
    let dir = tempfile::tempdir().unwrap();
    let runner = Runner::<Lending>::start(log, PARTITION, config(dir.path())).unwrap();
    let published = runner.published();
    published.wait_until(25, LONG).unwrap();
    append(&memory, &story, 25, 31);
    let WaitError::Stopped { wanted: 99, at: 30, error } = published.wait_until(99, LONG).unwrap_err() else {
        panic!("it stopped");
    };
    assert!(matches!(&*error, RunnerError::Store(StoreError::FoldRefused { sequence: 31, .. })), "{error}");
    let status = runner.status();
    assert_eq!(status.health, Health::Stopped(error));
    assert_eq!(status.position.sequence, 30);
    // A loop that looks again is not made to spin by it.
    assert_eq!(published.wait_at_most(31, Duration::from_millis(5)).sequence, 30);
    assert_eq!(published.wait_at_most(30, LONG).sequence, 30);
    assert_eq!(runner.projection().view().projection().digest().unwrap(), story.digests[30]);
}

#[test]
fn it_ends_when_the_log_closes() {
    let story = Story::long(12);
    let (memory, log) = log_of(&story, 12);
    let dir = tempfile::tempdir().unwrap();
    let runner = Runner::<Lending>::start(log, PARTITION, config(dir.path())).unwrap();
    runner.published().wait_until(12, LONG).unwrap();
    memory.close();
    let error = runner.published().wait_until(13, LONG).unwrap_err();
    assert_eq!(error, WaitError::Ended { wanted: 13, at: 12 });
}

#[test]
fn what_was_folded_is_stored_at_rest_and_when_it_stops_for_whatever_reason() {
    let mut story = Story::long(700);
    story.tell_wrong("sell", "nobody wrote this", 0);
    let (memory, log) = log_of(&story, 25);
    let dir = tempfile::tempdir().unwrap();
    let config = gatelog_runner::RunnerConfig { rung_every: 0, checkpoint_every: 0, ..config(dir.path()) };
    let runner = Runner::<Lending>::start(Arc::clone(&log), PARTITION, config.clone()).unwrap();
    let (published, projection) = (runner.published(), runner.projection());
    published.wait_until(25, LONG).unwrap();
    // Nothing more comes: then all of it is stored.
    while !projection.view().projection().is_stored() {
        std::thread::sleep(Duration::from_millis(1));
    }
    append(&memory, &story, 25, 40);
    published.wait_until(40, LONG).unwrap();
    assert_eq!(projection.view().projection().digest().unwrap(), story.digests[40], "seen at once");
    drop(projection);
    runner.stop();
    let stored = || {
        let (projection, _) = Projection::<Lending>::open(dir.path(), PARTITION).unwrap();
        (projection.position().sequence, projection.digest().unwrap())
    };
    assert_eq!(stored(), (40, story.digests[40]));

    // Many at once, and one that cannot be folded behind them.
    let runner = Runner::<Lending>::start(log, PARTITION, config).unwrap();
    append(&memory, &story, 40, 701);
    let error = runner.published().wait_until(701, LONG).unwrap_err();
    assert!(matches!(error, WaitError::Stopped { at: 700, .. }), "{error}");
    runner.stop();
    assert_eq!(stored(), (700, story.digests[700]));
}
