// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The alternate signal stack: sigaltstack(2).

use abi::Result;
use task::call::Call;
use task::signals::stack::AltStack;

/// sigaltstack(2).
pub fn sigaltstack(call: &mut Call<'_>) -> Result<usize> {
    let (new, old) = (call.ptr::<[u64; 3]>(0).non_null(), call.ptr::<[u64; 3]>(1).non_null());
    let new = new.map(|pointer| pointer.read()).transpose()?;
    let stack = &task::current().signals.stack;
    let before = *stack.lock();
    if let Some(new) = new {
        let after = before.replaced(AltStack::from_user(new), call.frame.rsp)?;
        *stack.lock() = after;
    }
    if let Some(old) = old {
        old.write(before.report(call.frame.rsp))?;
    }
    Ok(0)
}
