//! Catching a panic of the rules, with the place it happened at and without a word on the terminal.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// `Some` while a panic of this thread is to be caught; holds its place once it happened.
    static CATCHING: RefCell<Option<String>> = const { RefCell::new(None) };
}

static HOOK: Once = Once::new();

/// A panic that was caught.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panicked {
    /// The source line. The only part that may go on the log: the message may quote what was decided on.
    pub place: String,
    /// What it said, for the process's own output.
    pub message: String,
}

/// Runs `work`; a panic in it comes back as an error. Whatever `work` could change must be dropped or
/// rebuilt by the caller after a panic.
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            let caught = CATCHING.with_borrow_mut(|catching| match catching {
                Some(place) => {
                    *place = info.location().map(ToString::to_string).unwrap_or_else(|| "an unknown place".to_owned());
                    true
                }
                None => false,
            });
            if !caught {
                before(info);
            }
        }));
    });
    let outer = CATCHING.replace(Some(String::new()));
    let result = catch_unwind(AssertUnwindSafe(work));
    let place = CATCHING.replace(outer).unwrap_or_default();
    result.map_err(|payload| {
        let message = if let Some(text) = payload.downcast_ref::<&str>() {
            (*text).to_owned()
        } else if let Some(text) = payload.downcast_ref::<String>() {
            text.clone()
        } else {
            "no message".to_owned()
        };
        Panicked { place, message }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_comes_back_with_its_place() {
        let panicked = catch(|| -> u8 { panic!("number {}", 7) }).unwrap_err();
        assert_eq!(panicked.message, "number 7");
        assert!(panicked.place.contains("panics.rs:"), "{}", panicked.place);
        assert_eq!(catch(|| 3), Ok(3));
    }
}
