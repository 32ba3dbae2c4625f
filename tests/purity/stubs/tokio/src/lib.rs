//! The names of tokio that are banned, and nothing behind them.

pub fn spawn<T>(_task: T) {}

pub mod time {
    pub fn sleep(_time: std::time::Duration) {}
}

pub mod runtime {
    pub struct Runtime;
    pub struct Handle;
}

pub mod task {
    pub struct JoinHandle;
}

pub mod sync {
    pub mod mpsc {
        pub fn unbounded_channel() {}
    }
}
