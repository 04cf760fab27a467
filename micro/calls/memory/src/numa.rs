// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory policies (numa(7)) of a machine with one node: every policy that names it is granted and kept, and means nothing.

use abi::{PAGE_SIZE, Result, errno::*};
use alloc::sync::Arc;
use api_user::UserPtr;
use mem::{MemoryPolicy, Space};
use task::call::Call;
use task::identity::capabilities::CAP_SYS_NICE;
use task::identity::{As, check_access};
use task::processes;
use task::wait::RESTART_ALWAYS;

const MPOL_DEFAULT: u32 = 0;
const MPOL_PREFERRED: u32 = 1;
const MPOL_INTERLEAVE: u32 = 3;
const MPOL_LOCAL: u32 = 4;
/// One above MPOL_PREFERRED_MANY.
const MODES: u32 = 6;
/// MPOL_F_STATIC_NODES and MPOL_F_RELATIVE_NODES.
const MODE_FLAGS: u32 = 0xc000;
const MPOL_F_NODE: u32 = 1;
const MPOL_F_ADDR: u32 = 2;
const MPOL_F_MEMS_ALLOWED: u32 = 4;
/// MPOL_MF_STRICT, MPOL_MF_MOVE, MPOL_MF_MOVE_ALL.
const MBIND_KNOWN: u32 = 7;
/// Bits of the longest set of nodes that is read: a page of them, as in Linux.
const MAX_NODES: u64 = PAGE_SIZE as u64 * 8;
const NODE_0: u64 = 1;
/// Nodes that Linux as Debian builds it can have.
const MAX_NUMNODES: usize = 1024;
const MPOL_MF_MOVE: u32 = 2;
const MPOL_MF_MOVE_ALL: u32 = 4;

/// Those of a set of nodes of `bits` - 1 bits that there are; `EINVAL` for others alone.
fn read_nodes(pointer: UserPtr<u64>, bits: u64) -> Result<u64> {
    let (first, has_others) = read_set(pointer, bits)?;
    if has_others && first == 0 { Err(EINVAL) } else { Ok(first) }
}

/// The same of nodes that a machine might have (Linux' MAX_NUMNODES): node 0, and whether there are others.
fn read_set(pointer: UserPtr<u64>, bits: u64) -> Result<(u64, bool)> {
    // Of no bits at all one less is very many (Linux).
    let bits = bits.wrapping_sub(1);
    if bits == 0 || pointer.is_null() {
        return Ok((0, false));
    }
    if bits > MAX_NODES {
        return Err(EINVAL);
    }
    let mut words = pointer.read_vec(bits.div_ceil(64) as usize)?;
    if let Some(last) = words.last_mut().filter(|_| !bits.is_multiple_of(64)) {
        *last &= (1 << (bits % 64)) - 1;
    }
    if words.iter().skip(MAX_NUMNODES / 64).any(|word| *word != 0) {
        return Err(EINVAL);
    }
    let has_others = words.iter().skip(1).any(|word| *word != 0) || words[0] & !NODE_0 != 0;
    Ok((words[0] & NODE_0, has_others))
}

/// The policy with its flags: `EINVAL` for one that there is not, before its nodes are read.
fn mode_of(raw: u32) -> Result<u32> {
    if raw & !MODE_FLAGS >= MODES || raw & MODE_FLAGS == MODE_FLAGS { Err(EINVAL) } else { Ok(raw) }
}

/// The policy with its flags; `EINVAL` for a combination that makes no sense. To prefer no node is MPOL_LOCAL.
fn check_policy(raw: u32, nodes: u64) -> Result<u32> {
    let (mode, flags) = (raw & !MODE_FLAGS, raw & MODE_FLAGS);
    let sensible = match mode {
        MPOL_DEFAULT | MPOL_LOCAL => {
            nodes == 0 && (flags == 0 || mode == MPOL_DEFAULT && flags != MODE_FLAGS)
        }
        MPOL_PREFERRED => nodes != 0 || flags == 0,
        _ => nodes != 0 && mode < MODES && flags != MODE_FLAGS,
    };
    match mode {
        _ if !sensible => Err(EINVAL),
        MPOL_PREFERRED if nodes == 0 => Ok(MPOL_LOCAL),
        _ => Ok(raw),
    }
}

/// set_mempolicy(2).
pub fn set_mempolicy(call: &mut Call<'_>) -> Result<usize> {
    let mode = mode_of(call.uint(0))?;
    let nodes = read_nodes(call.ptr(1), call.arg(2))?;
    let policy = check_policy(mode, nodes)?;
    *task::current().memory_policy.lock() = (policy, nodes);
    Ok(0)
}

/// get_mempolicy(2).
pub fn get_mempolicy(call: &mut Call<'_>) -> Result<usize> {
    let (mode, nodes, bits) = (call.ptr::<u32>(0), call.ptr::<u64>(1), call.arg(2));
    let (address, flags) = (call.arg(3), call.flags(4, MPOL_F_NODE | MPOL_F_ADDR | MPOL_F_MEMS_ALLOWED)?);
    if !nodes.is_null() && bits == 0 {
        return Err(EINVAL);
    }
    let (policy, set) = if flags & MPOL_F_MEMS_ALLOWED != 0 {
        if flags != MPOL_F_MEMS_ALLOWED {
            return Err(EINVAL);
        }
        (MPOL_DEFAULT, NODE_0)
    } else if flags & MPOL_F_ADDR != 0 {
        let MemoryPolicy { mode, names_node } = mem::current().policy(address)?;
        (u32::from(mode), if names_node { NODE_0 } else { 0 })
    } else if address != 0 {
        return Err(EINVAL);
    } else {
        let (policy, nodes) = *task::current().memory_policy.lock();
        // Only a policy that interleaves has a next node.
        if flags & MPOL_F_NODE != 0 && policy & !MODE_FLAGS != MPOL_INTERLEAVE {
            return Err(EINVAL);
        }
        (policy, nodes)
    };
    if let Some(mode) = mode.non_null() {
        // With MPOL_F_NODE: where the page is, which is node 0.
        mode.write(if flags & MPOL_F_NODE != 0 { 0 } else { policy })?;
    }
    if let Some(nodes) = nodes.non_null() {
        nodes.write(set)?;
        let words = bits.min(MAX_NODES).div_ceil(64);
        for word in 1..words {
            nodes.add(word).write(0)?;
        }
    }
    Ok(0)
}

/// mbind(2).
pub fn mbind(call: &mut Call<'_>) -> Result<usize> {
    let (start, length, flags) = (call.arg(0), call.arg(1), call.uint(5));
    let mode = mode_of(call.uint(2))?;
    let nodes = read_nodes(call.ptr(3), call.arg(4))?;
    if flags & !MBIND_KNOWN != 0 || !start.is_multiple_of(PAGE_SIZE as u64) {
        return Err(EINVAL);
    }
    let policy = check_policy(mode, nodes)?;
    let length = length.checked_next_multiple_of(PAGE_SIZE as u64).ok_or(EINVAL)?;
    if length > 0 {
        // A mode and its flags are bits of a word (MPOL_F_STATIC_NODES is the highest).
        let mode = u16::try_from(policy).map_err(|_| EINVAL)?;
        mem::current().set_policy(start, length, MemoryPolicy { mode, names_node: nodes != 0 })?;
    }
    Ok(0)
}

/// set_mempolicy_home_node(2).
pub fn set_mempolicy_home_node(call: &mut Call<'_>) -> Result<usize> {
    // Node 0 is home already.
    if call.arg(2) != 0 || call.arg(3) != 0 || !call.arg(0).is_multiple_of(PAGE_SIZE as u64) {
        return Err(EINVAL);
    }
    Ok(0)
}

/// The address space of the process that a thread of the number is of; 0 is the caller's.
fn space_of(id: i32) -> Result<Arc<Space>> {
    let process = match id {
        0 => task::current().process.clone(),
        _ => processes::named_task(id).ok_or(ESRCH)?.process.clone(),
    };
    check_access(&process, As::Real)?;
    process.space().ok_or(EINVAL)
}

/// move_pages(2): each page that is there is on node 0, where it can be moved to.
pub fn move_pages(call: &mut Call<'_>) -> Result<usize> {
    let flags = call.flags(5, MPOL_MF_MOVE | MPOL_MF_MOVE_ALL)?;
    if flags & MPOL_MF_MOVE_ALL != 0 && !task::current().credentials().lock().can(CAP_SYS_NICE) {
        return Err(EPERM);
    }
    let space = space_of(call.int(0))?;
    let (count, pages) = (call.arg(1), call.ptr::<u64>(2));
    let (nodes, status) = (call.ptr::<i32>(3).non_null(), call.ptr::<i32>(4));
    for i in 0..count {
        let page = pages.add(i).read()?;
        if let Some(nodes) = nodes
            && nodes.add(i).read()? != 0
        {
            return Err(ENODEV);
        }
        status.add(i).write(where_is(&space, page))?;
        if i % PAGES_AT_ONCE == PAGES_AT_ONCE - 1 && task::wait::take_a_break() {
            // No handler sees that the call was in the middle.
            return Err(RESTART_ALWAYS);
        }
    }
    Ok(0)
}

/// Pages between two looks at whether others want the processor, or a signal is there.
const PAGES_AT_ONCE: u64 = 1024;

/// The node of a page, or why it has none.
fn where_is(space: &Space, address: u64) -> i32 {
    space.find_page(address).map_or_else(|error| error.to_return() as i32, |()| 0)
}

/// migrate_pages(2): nothing is on any other node, so there is nothing to move.
pub fn migrate_pages(call: &mut Call<'_>) -> Result<usize> {
    let bits = call.arg(1);
    read_set(call.ptr(2), bits)?;
    let (new, has_others) = read_set(call.ptr(3), bits)?;
    let process = match call.int(0) {
        0 => task::current().process.clone(),
        id => processes::named_task(id).ok_or(ESRCH)?.process.clone(),
    };
    check_access(&process, As::Real)?;
    if has_others && !task::current().credentials().lock().can(CAP_SYS_NICE) {
        return Err(EPERM);
    }
    if new == 0 || process.space().is_none() {
        return Err(EINVAL);
    }
    Ok(0)
}
