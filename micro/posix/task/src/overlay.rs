// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where programs of the overlay meet the system-call layer: their ways into the kernel go to the crate that runs them,
//! and a thread of the application can be held still while one of them uses what is that thread's.

use crate::Task;
use abi::Events;
use alloc::sync::Arc;
use api_plat::{Exception, TrapFrame};
use api_sched::Waiter;
use core::mem::size_of;
use core::sync::atomic::{AtomicPtr, Ordering};

/// What the crate that runs overlay programs does. A function may end the thread instead of coming back.
pub struct Hooks {
    /// An exception, the call of the kernel included.
    pub exception: fn(&mut TrapFrame, Exception),
    /// Before a system call is served.
    pub call: fn(&mut TrapFrame),
    /// Before the program goes on.
    pub work: fn(&mut TrapFrame),
}

static HOOKS: AtomicPtr<Hooks> = AtomicPtr::new(core::ptr::null_mut());

/// To be called before the first overlay program runs.
pub fn set_hooks(hooks: &'static Hooks) {
    HOOKS.store(core::ptr::from_ref(hooks).cast_mut(), Ordering::Release);
}

fn hooks() -> &'static Hooks {
    // SAFETY: only `set_hooks` stores there, and what it stores lives for ever.
    unsafe { HOOKS.load(Ordering::Acquire).as_ref() }
        .expect("an overlay program runs without anybody who runs it")
}

pub fn exception(frame: &mut TrapFrame, exception: Exception) {
    (hooks().exception)(frame, exception);
}

pub fn call(frame: &mut TrapFrame) {
    (hooks().call)(frame);
}

pub fn work(frame: &mut TrapFrame) {
    (hooks().work)(frame);
}

/// System calls in which a thread sleeps for the world outside. None of them is made by a C library in the middle of
/// changing its heap.
const RESTFUL: [u64; 30] = [
    0, 1, 7, 19, 20, 23, 34, 35, 43, 44, 45, 46, 47, 61, 72, 127, 128, 130, 202, 219, 230, 232, 247, 270,
    271, 281, 288, 299, 307, 441,
];

/// A thread of the application that stays where it is in the kernel; it goes on when this is dropped.
pub struct Held {
    task: Arc<Task>,
    /// Its FS base: its thread-local variables.
    pub fs_base: u64,
}

impl Held {
    /// Holds the thread if it sleeps in a system call; `None` when it does not, or is held already.
    pub fn at_rest(task: &Arc<Task>) -> Option<Held> {
        let thread = task.thread().filter(|thread| thread.is_parked())?;
        let frame = (thread.stack_top() - size_of::<TrapFrame>() as u64) as *const TrapFrame;
        // SAFETY: the TrapFrame of a program thread that sleeps in the kernel lies at the top of its stack.
        let number = unsafe { (*frame).orig_rax };
        if !RESTFUL.contains(&number) || task.held.swap(true, Ordering::Relaxed) {
            return None;
        }
        Some(Held { task: task.clone(), fs_base: thread.saved_fs_base() })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.task.held.store(false, Ordering::Relaxed);
        if let Some(thread) = self.task.thread() {
            thread.wake(Events::NONE);
        }
    }
}
