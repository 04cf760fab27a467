// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The verifier: proves, before a program runs, that it ends and touches nothing it may not.
//!
//! Every path is walked with an abstract state: of each register and each byte of the stack what it holds, of each
//! number its bits and ranges. A loop is walked as often as it turns, so its bound has to follow from the ranges. A
//! path is left where a state that was already walked to its end covers the present one; a state that comes round
//! unchanged is a loop without end. The number of steps is bounded, so the verifier itself ends.
//!
//! The rules are those of Linux for a privileged program with strict alignment, and one more: pointers are not
//! numbers (they may not be stored outside of the stack, compared or returned).

mod calls;
mod flow;
mod memory;
mod range;
mod scalar;
mod state;
mod step;
mod tnum;

pub use flow::MAX_FRAMES;
#[cfg(test)]
pub(crate) use {scalar::Scalar, scalar::refine};

use crate::context::Context;
use crate::insn::{FRAME, Insn};
use crate::maps::Spec;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use flow::Flow;
use state::{Frame, Pointer, Reg, State, To};

/// Instructions that are walked before the verifier gives up, as in Linux. So no path of a verified program is longer.
pub const MAX_STEPS: u32 = 1_000_000;
/// Bytes of stack of all active functions together.
pub const MAX_STACK: usize = 512;
/// States that are kept for each place: more would cost more to compare than they save.
const MAX_KEPT: usize = 64;
/// All states that are kept (some 2 KiB each).
const MAX_NODES: usize = 4096;
/// Paths that wait to be walked.
const MAX_PENDING: usize = 8192;

/// Why a program is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Index of the instruction.
    pub at: usize,
    pub insn: Insn,
    /// What could go wrong, in words.
    pub why: Cow<'static, str>,
}

impl Rejection {
    /// In a box: there is at most one, and results that may hold it are handed on everywhere.
    #[cold]
    #[inline(never)]
    pub(crate) fn new(insns: &[Insn], at: usize, why: Cow<'static, str>) -> Box<Rejection> {
        Box::new(Rejection { at, insn: insns.get(at).copied().unwrap_or_default(), why })
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "instruction {} ({}): {}", self.at, self.insn, self.why)
    }
}

/// A program that was proved safe.
#[derive(Clone, Debug)]
pub struct Verified {
    pub(crate) insns: Box<[Insn]>,
    /// Instructions that a path leads to. The others are never run, and compiled to nothing.
    pub(crate) reached: Box<[bool]>,
    /// First instruction and bytes of stack of each function.
    pub(crate) functions: Box<[(usize, usize)]>,
    /// Calls of `map_lookup_elem` that always work on the same map.
    lookups: Box<[(usize, u16)]>,
    pub context: Context,
    /// How long the proof was.
    pub steps: u32,
}

impl Verified {
    pub fn insns(&self) -> &[Insn] {
        &self.insns
    }

    /// The map that a look-up at this place is in.
    pub(crate) fn looked_up(&self, at: usize) -> Option<u16> {
        self.lookups.iter().find(|l| l.0 == at).map(|l| l.1)
    }

    pub(crate) fn stack_of(&self, function: usize) -> usize {
        self.functions.iter().find(|f| f.0 == function).map_or(0, |f| f.1)
    }
}

/// Verifies one program. `go_on` is asked now and then; when it answers false, the program is rejected.
pub fn verify(
    insns: &[Insn],
    context: Context,
    maps: &[Spec],
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Verified, Rejection> {
    prove(insns, context, maps, go_on).map_err(|rejection| *rejection)
}

fn prove(
    insns: &[Insn],
    context: Context,
    maps: &[Spec],
    go_on: &mut dyn FnMut() -> bool,
) -> Check<Verified> {
    let flow = flow::read(insns, maps.len())?;
    let functions = flow.functions.iter().map(|f| (*f, 0)).collect();
    let mut walker = Walker {
        insns,
        context,
        maps,
        reached: vec![false; insns.len()],
        functions,
        calls: Vec::new(),
        lookups: Vec::new(),
        kept: vec![Vec::new(); insns.len()],
        nodes: Vec::new(),
        pending: Vec::new(),
        steps: 0,
        ids: 0,
        at: 0,
        flow,
    };
    walker.walk(go_on)?;
    walker.check_stack()?;
    Ok(Verified {
        insns: insns.into(),
        reached: walker.reached.into(),
        functions: walker.functions.into(),
        lookups: walker.lookups.iter().filter_map(|l| Some((l.0, l.1?))).collect(),
        context,
        steps: walker.steps,
    })
}

/// A state at a place, and how many paths from it are still open.
struct Node {
    /// Gone when another took its place.
    state: Option<State>,
    parent: Option<usize>,
    open: u32,
}

/// A path that is to be walked.
struct Path {
    at: usize,
    state: State,
    node: Option<usize>,
}

/// Where a path goes on.
enum Next {
    At(usize),
    End,
}

struct Walker<'a> {
    insns: &'a [Insn],
    context: Context,
    maps: &'a [Spec],
    flow: Flow,
    reached: Vec<bool>,
    functions: Vec<(usize, usize)>,
    /// Pairs of caller and callee.
    calls: Vec<(usize, usize)>,
    /// Look-ups and their map, `None` when there are several.
    lookups: Vec<(usize, Option<u16>)>,
    /// Nodes at each place.
    kept: Vec<Vec<usize>>,
    nodes: Vec<Node>,
    pending: Vec<Path>,
    steps: u32,
    /// Last number given to a pointer or a group of equal numbers.
    ids: u32,
    /// The instruction being looked at.
    at: usize,
}

type Check<T = ()> = Result<T, Box<Rejection>>;

impl Walker<'_> {
    fn reject<T>(&self, why: impl Into<Cow<'static, str>>) -> Check<T> {
        Err(Rejection::new(self.insns, self.at, why.into()))
    }

    fn new_id(&mut self) -> u32 {
        self.ids += 1;
        self.ids
    }

    fn walk(&mut self, go_on: &mut dyn FnMut() -> bool) -> Check {
        let mut first = Frame::new(0, 0, usize::MAX);
        first.regs[1] = Reg::Pointer(Pointer::new(To::Context));
        let state = State { frames: vec![first], records: Vec::new() };
        self.pending.push(Path { at: 0, state, node: None });
        while let Some(Path { mut at, mut state, mut node }) = self.pending.pop() {
            let mut since_kept = 0;
            loop {
                self.at = at;
                self.steps += 1;
                if self.steps > MAX_STEPS {
                    return self.reject(format!(
                        "not proved to end within {MAX_STEPS} instructions: bound its loops more tightly"
                    ));
                }
                if self.steps.is_multiple_of(256) && !go_on() {
                    return self.reject("stopped while it was being verified");
                }
                self.reached[at] = true;
                since_kept += 1;
                if self.flow.joins[at] && self.covered(at, &mut state, &mut node, &mut since_kept)? {
                    break;
                }
                match self.step(&mut state, node)? {
                    Next::At(next) => at = next,
                    Next::End => break,
                }
            }
            self.close(node);
        }
        Ok(())
    }

    /// A path ended: its start, and those before it, have one open path less.
    fn close(&mut self, mut node: Option<usize>) {
        while let Some(n) = node {
            self.nodes[n].open -= 1;
            if self.nodes[n].open > 0 {
                return;
            }
            node = self.nodes[n].parent;
        }
    }

    /// Which registers of which frame matter from here on.
    fn live(&self, at: usize, state: &State) -> Vec<u16> {
        let mut live: Vec<u16> = Vec::with_capacity(state.frames.len());
        for frame in state.frames.iter().skip(1) {
            // The caller's R0 to R5 are gone when its callee returns.
            live.push(self.flow.live[frame.resume] & !0b11_1111 | 1 << FRAME);
        }
        live.push(self.flow.live[at]);
        live
    }

    /// True when nothing new can follow from `state`. Otherwise the state may be kept, as the path's new start.
    fn covered(
        &mut self,
        at: usize,
        state: &mut State,
        node: &mut Option<usize>,
        since_kept: &mut u32,
    ) -> Check<bool> {
        let live = self.live(at, state);
        for n in &self.kept[at] {
            let Node { state: Some(old), open, .. } = &self.nodes[*n] else { continue };
            if *open == 0 && state::holds(old, state, &live, false) {
                return Ok(true);
            }
            if *open > 0 && state::holds(old, state, &live, true) {
                return self.reject("comes back here with nothing changed: a loop without end");
            }
        }
        // Keeping a state for every few instructions costs more than it saves.
        if *since_kept < 8 && node.is_some() && !self.kept[at].is_empty() {
            return Ok(false);
        }
        *since_kept = 0;
        state.forget_single_links();
        if self.nodes.len() >= MAX_NODES {
            return Ok(false);
        }
        if self.kept[at].len() >= MAX_KEPT {
            let oldest = self.kept[at].remove(0);
            self.nodes[oldest].state = None;
        }
        self.nodes.push(Node { state: Some(state.clone()), parent: *node, open: 1 });
        *node = Some(self.nodes.len() - 1);
        self.kept[at].push(self.nodes.len() - 1);
        Ok(false)
    }

    /// The other side of a branch, to be walked later.
    fn later(&mut self, at: usize, state: State, node: Option<usize>) -> Check {
        if self.pending.len() >= MAX_PENDING {
            return self.reject("more than 8192 branches are open at once: the program is too complex");
        }
        if let Some(n) = node {
            self.nodes[n].open += 1;
        }
        self.pending.push(Path { at, state, node });
        Ok(())
    }

    /// The stack of the deepest nesting of functions.
    fn check_stack(&mut self) -> Check {
        let of = |f: usize| self.functions.iter().find(|x| x.0 == f).map_or(0, |x| x.1.next_multiple_of(16));
        // Functions do not call themselves, so this settles after as many turns as there are levels.
        let mut total: Vec<(usize, usize)> = self.functions.iter().map(|f| (f.0, of(f.0))).collect();
        for _ in 0..MAX_FRAMES {
            for i in 0..total.len() {
                let callees = self.calls.iter().filter(|c| c.0 == total[i].0);
                let deepest =
                    callees.filter_map(|c| total.iter().find(|t| t.0 == c.1)).map(|t| t.1).max().unwrap_or(0);
                total[i].1 = of(total[i].0) + deepest;
            }
        }
        match total.iter().find(|t| t.1 > MAX_STACK) {
            Some((function, bytes)) => {
                self.at = *function;
                self.reject(format!(
                    "this function and those it calls use {bytes} bytes of stack: there are {MAX_STACK}"
                ))
            }
            None => Ok(()),
        }
    }
}
