//! An allocator that counts what one thread allocates while it is asked to.
//!
//! Outside of [`count`] an allocation costs one more test of a thread's own flag, so timings taken
//! in the same process are not bent in favour of those who allocate little.

#![allow(
    unsafe_code,
    reason = "an allocator is unsafe to implement; this one hands everything to the system's"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// To be the `#[global_allocator]` of whoever wants to [`count`].
pub struct Counting;

/// What was allocated while something ran, in bytes as they were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocated {
    /// What is still there at the end. What was there before and is gone counts against it.
    pub left: isize,
    /// The most that was there at any time.
    pub peak: isize,
}

thread_local! {
    static COUNT: Cell<Option<Allocated>> = const { Cell::new(None) };
}

/// Runs something, and tells what it allocated on this thread. Not to be nested.
pub fn count<T>(run: impl FnOnce() -> T) -> (T, Allocated) {
    COUNT.set(Some(Allocated::default()));
    let result = run();
    (result, COUNT.take().unwrap_or_default())
}

fn note(change: isize) {
    // An error means that the thread is ending, after which nobody asks.
    let _ = COUNT.try_with(|count| {
        if let Some(Allocated { left, peak }) = count.get() {
            let left = left + change;
            let peak = peak.max(left);
            count.set(Some(Allocated { left, peak }));
        }
    });
}

// SAFETY: every call goes to the system's allocator with what the caller promised, unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size().cast_signed());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size().cast_signed());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(-layout.size().cast_signed());
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        note(new_size.cast_signed() - layout.size().cast_signed());
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}
