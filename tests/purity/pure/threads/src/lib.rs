//! Runs things side by side.

pub fn starts_threads() -> Option<std::thread::JoinHandle<()>> {
    let _ = std::thread::available_parallelism();
    let (_sender, _receiver) = std::sync::mpsc::channel::<u8>();
    let (_sender, _receiver) = std::sync::mpsc::sync_channel::<u8>(1);
    std::thread::scope(|scope| {
        let _ = std::thread::Builder::new().spawn_scoped(scope, || ());
    });
    let _ = std::thread::Builder::new().spawn(|| ());
    Some(std::thread::spawn(|| ()))
}

pub fn names_a_thread(_thread: &std::thread::Thread) {}
