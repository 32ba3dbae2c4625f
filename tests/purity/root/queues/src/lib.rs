//! Makes queues without a limit.

pub fn makes_queues() {
    let (_sender, _receiver) = std::sync::mpsc::channel::<u8>();
    tokio::sync::mpsc::unbounded_channel();
}
