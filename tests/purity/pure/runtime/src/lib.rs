//! Needs an asynchronous runtime.

pub fn needs_a_runtime(_runtime: tokio::runtime::Runtime, _handle: tokio::runtime::Handle) {
    tokio::spawn(());
    tokio::time::sleep(std::time::Duration::ZERO);
}

pub fn waits_for_a_task(_task: tokio::task::JoinHandle) {}
