//! Every reason that something can wait for: one table for API, page, command line and manual.

/// What is to be made of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It does not go on until somebody does something, or what failed works again.
    HeldUp,
    /// It waits its turn: what it waits for ends by itself.
    Waiting,
    /// It is being worked on.
    Working,
}

impl Standing {
    /// The word used everywhere.
    pub fn word(self) -> &'static str {
        match self {
            Standing::HeldUp => "held-up",
            Standing::Waiting => "waiting",
            Standing::Working => "working",
        }
    }
}

/// A reason.
#[derive(Debug, PartialEq, Eq)]
pub struct Reason {
    /// Its code, which does not change.
    pub code: &'static str,
    /// What it means.
    pub means: &'static str,
    /// What ends the wait.
    pub ends_when: &'static str,
    /// What somebody can do about it; empty where nothing needs to be done.
    pub cure: &'static str,
    /// What is to be made of it.
    pub standing: Standing,
}

const fn held_up(code: &'static str, means: &'static str, ends_when: &'static str, cure: &'static str) -> Reason {
    Reason { code, means, ends_when, cure, standing: Standing::HeldUp }
}

const fn waiting(code: &'static str, means: &'static str, ends_when: &'static str, cure: &'static str) -> Reason {
    Reason { code, means, ends_when, cure, standing: Standing::Waiting }
}

const fn working(code: &'static str, means: &'static str, ends_when: &'static str) -> Reason {
    Reason { code, means, ends_when, cure: "", standing: Standing::Working }
}

/// All of them: what holds up first, then by what they are about.
pub const REASONS: &[Reason] = &[
    held_up(
        NO_WORKER,
        "no executor offers slots with the labels of the build's nodes",
        "an executor that offers them joins",
        "start an executor with these `labels` under [executor], or correct the label in the job's nodeset",
    ),
    held_up(
        EXECUTOR_PAUSED,
        "every executor that could run the build is paused",
        "one of them is resumed, or another joins",
        "`gatelog executor resume NAME`",
    ),
    held_up(
        RETRY,
        "a repository, a code-review system or a step of gatelog failed, and it is tried again",
        "it succeeds, or has failed so often that it is given up and reported",
        "look at what failed: `gatelog doctor --site` names connections out of reach, the server's log every failure",
    ),
    held_up(
        NO_LAYOUT,
        "the tenant's configuration cannot be loaded, so nothing of the tenant begins",
        "a layout can be made of it, which is tried again every minute and with every merge to configuration",
        "correct what `gatelog check` says of the configuration",
    ),
    held_up(
        INTAKE_PAUSED,
        "an operator has paused what comes to the tenant from outside",
        "an operator lets it in again",
        "`gatelog resume --tenant TENANT`",
    ),
    held_up(
        UNREAD,
        "a repository could not be read, so the tenant goes on without what its configuration says now",
        "it can be read again, which is tried every minute",
        "bring the repository back, or take the project out of the tenant file",
    ),
    held_up(
        MESSAGE,
        "a message between the gate and capacity is not known to have been taken",
        "the writer of the other side runs and takes it",
        "see to the process with the role scheduler or launcher: `gatelog components`",
    ),
    held_up(
        PART_STOPPED,
        "a part of the server has stopped",
        "its cause is gone and the process is started again",
        "read the part's detail, cure it, then start the process again",
    ),
    held_up(
        PART_YELLOW,
        "a part of the server works on with something wrong",
        "what is wrong is cured; it then goes on by itself",
        "read the part's detail",
    ),
    held_up(
        CONNECTION_FAILS,
        "a code-review system or one of its repositories cannot be reached",
        "it can be reached again, which is tried again and again",
        "bring the repository or system back, or correct the connection in gatelog.toml",
    ),
    held_up(
        ROLE_MISSING,
        "no process does what the site needs",
        "a process with the role gives signs of life",
        "`gatelog serve --role ROLE` in a directory of the site",
    ),
    held_up(
        ROLE_PAUSED,
        "every process with a role is paused in it",
        "one of them is resumed",
        "`gatelog executor resume NAME` or `gatelog merger resume NAME`",
    ),
    waiting(
        PAUSED_PROCESS,
        "an operator has paused an executor or merger: it takes nothing new",
        "an operator resumes it",
        "`gatelog executor resume NAME` or `gatelog merger resume NAME`",
    ),
    waiting(
        DRAINING,
        "a process drains: it takes nothing new and ends what it has begun",
        "its builds have ended, or `drain-limit` under [stop] is over",
        "",
    ),
    waiting(
        SILENT,
        "a process has given no sign of life for 30 seconds",
        "it gives one again, or is forgotten",
        "see whether it runs; its builds begin again elsewhere",
    ),
    waiting("window", "the queue's window is full", "an item ahead leaves the queue", ""),
    waiting("item-ahead", "an item ahead in the queue goes first", "that item leaves the queue", ""),
    waiting(
        "needed-failing",
        "a change it needs is failing",
        "that change leaves the queue, or is tested anew",
        "correct the change it needs",
    ),
    waiting("trigger-ahead", "another event of the same branch goes first", "that event is dealt with", ""),
    waiting("not-live", "it only stands in the queue for a change behind it", "the item behind it leaves", ""),
    waiting("job-dependency", "a job it depends on has not ended", "that job ends", ""),
    waiting("hold-following", "a job of an item ahead must succeed first", "that job succeeds", ""),
    waiting("artifact", "an artifact of a change ahead is not there yet", "the job that makes it has succeeded", ""),
    waiting(
        "semaphore",
        "a semaphore is held by others",
        "a build that holds it ends",
        "raise `max` of the semaphore where the resource allows more",
    ),
    waiting(
        NO_SLOT,
        "all slots of the executors that could run it are taken",
        "one of their builds ends",
        "more `slots` under [executor], or another executor",
    ),
    waiting(
        FAIR_SHARE,
        "many requests of the same tenant were there before it",
        "those are granted",
        "more `slots` under [executor], or another executor",
    ),
    waiting(
        NO_ANSWER,
        "a step was asked for and has not been answered for more than a minute",
        "a merger or connection answers; if none does, it is sent again",
        "see whether mergers and connections run and keep up: `gatelog components`",
    ),
    waiting(
        NODES_HELD,
        "the nodes of a failed build are kept by an autohold",
        "the hold ends or is deleted",
        "`gatelog autohold-delete REQUEST` once nobody looks at them any more",
    ),
    waiting(
        "paused",
        "the build has succeeded so far and waits for the jobs that need it (`zuul.pause`)",
        "the last of those jobs ends",
        "",
    ),
    working(PART_STARTING, "a part of the server starts or catches up with the log", "it has caught up"),
    working("lease", "nodes and a worker are being asked for", "capacity grants or queues the request"),
    working(STARTING, "a worker has the build and prepares its workspace and nodes", "its first playbook begins"),
    working("running", "a worker runs the build", "the build ends"),
    working("jobs", "the item's jobs run", "the last of them ends"),
    working("change-facts", "the code-review system is asked about the change", "it answers"),
    working("config-files", "configuration files are read from repositories", "a merger has read them"),
    working("layout", "the tenant's or the item's configuration is made anew", "the new layout is there"),
    working("prepare", "the item is merged onto what is ahead of it", "a merger has prepared it"),
    working("freeze", "the item's job graph is made", "a merger has frozen it"),
    working("submit", "the item is merged for real", "the code-review system answers"),
    working("report", "the result is reported", "the code-review system answers"),
];

/// For a word of a log that a later gatelog has written.
pub(super) static OTHER: Reason = working("other", "a reason that this gatelog has no word for", "see its detail");

pub(super) const NO_WORKER: &str = "no-worker";
pub(super) const EXECUTOR_PAUSED: &str = "executor-paused";
pub(super) const RETRY: &str = "retry";
pub(super) const NO_LAYOUT: &str = "no-layout";
pub(super) const INTAKE_PAUSED: &str = "intake-paused";
pub(super) const UNREAD: &str = "project-unread";
pub(super) const PAUSED_PROCESS: &str = "process-paused";
/// A process that takes nothing new.
pub const DRAINING: &str = "process-draining";
/// A process that gives no sign of life.
pub const SILENT: &str = "process-silent";
/// A part of a server that starts.
pub const PART_STARTING: &str = "part-starting";
pub(super) const MESSAGE: &str = "message-not-taken";
/// A part of a server that has stopped.
pub const PART_STOPPED: &str = "part-stopped";
/// A part of a server with something wrong.
pub const PART_YELLOW: &str = "part-yellow";
/// A connection that cannot be reached.
pub const CONNECTION_FAILS: &str = "connection-fails";
/// A role that nobody has.
pub const ROLE_MISSING: &str = "role-missing";
/// A role in which everybody is paused.
pub const ROLE_PAUSED: &str = "role-paused";
pub(super) const NO_SLOT: &str = "no-slot";
pub(super) const FAIR_SHARE: &str = "fair-share";
pub(super) const NO_ANSWER: &str = "no-answer";
pub(super) const NODES_HELD: &str = "nodes-held";
pub(super) const STARTING: &str = "starting";

/// The reason with a code; `None` when there is none.
pub fn reason(code: &str) -> Option<&'static Reason> {
    REASONS.iter().find(|reason| reason.code == code)
}
