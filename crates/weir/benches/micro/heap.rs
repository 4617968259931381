//! The allocator of these benchmarks: mimalloc as in the server, counting what is asked of it when told to.

#![allow(unsafe_code, reason = "an allocator cannot be counted otherwise")]

use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering::Relaxed};

/// See the module.
pub(crate) struct Counting;

static IS_COUNTING: AtomicBool = AtomicBool::new(false);
static BYTES: AtomicIsize = AtomicIsize::new(0);

/// Begins to count.
pub(crate) fn count() {
    IS_COUNTING.store(true, Relaxed);
}

/// Bytes asked for and not given back since [`count`].
pub(crate) fn counted() -> isize {
    BYTES.load(Relaxed)
}

fn note(bytes: isize) {
    if IS_COUNTING.load(Relaxed) {
        BYTES.fetch_add(bytes, Relaxed);
    }
}

// SAFETY: every call goes to mimalloc as it came; what is counted decides nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as isize);
        // SAFETY: the caller's promise is the one that is asked for.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as isize);
        // SAFETY: the caller's promise is the one that is asked for.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        note(-(layout.size() as isize));
        // SAFETY: the caller's promise is the one that is asked for.
        unsafe { MiMalloc.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size as isize - layout.size() as isize);
        // SAFETY: the caller's promise is the one that is asked for.
        unsafe { MiMalloc.realloc(at, layout, size) }
    }
}
