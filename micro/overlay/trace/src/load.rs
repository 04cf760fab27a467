// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that are in the machine: verified, compiled, attached, and gone again.

use crate::code::{Registers, undisturbed};
use crate::environment::Machine;
use crate::{points, sites};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_lock::SpinLock;
use api_overlay::Failure;
use api_plat::KernelStack;
use api_probes::{Kind, Package};
use bpf::Bundle;
use bpf::context::Context;
use bpf::jit::{Runtime, compile};
use bpf::maps::{self, Map};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64};
use sched::OneProcessor;

/// Bytes of lines and records that wait to be read.
const OUTPUT: u32 = 64 << 10;
/// All maps of one package.
const MAX_MAP_BYTES: usize = 32 << 20;

const TAKEN: &str = "there is one of this name already: `bpf detach` it first";

/// A compiled program.
struct Program {
    name: String,
    context: Context,
    code: u64,
    length: usize,
    plain: bool,
    changes: Option<u16>,
}

/// A package in the machine.
pub struct Loaded {
    pub name: String,
    pub maps: Vec<Arc<Map>>,
    /// What programs print.
    pub output: Arc<Map>,
    programs: Vec<Program>,
    _alone: OneProcessor,
}

impl Drop for Loaded {
    fn drop(&mut self) {
        for program in &self.programs {
            // SAFETY: the last attachment is gone, and programs run to their end with interrupts off, so none is
            // running on the processor that runs this.
            unsafe { api_plat::free_code(program.code, program.length) };
        }
    }
}

/// A program at a place. The trampolines read the first fields.
#[repr(C)]
pub struct Active {
    pub code: u64,
    pub plain: u32,
    /// The next at the same place.
    pub next: AtomicPtr<Active>,
    pub hits: AtomicU64,
    /// What it changes, if it does without the registers (`bpf::jit::Compiled::changes`).
    pub changes: Option<u16>,
    pub kind: Kind,
    /// Of the function, or the tracepoint.
    pub place: String,
    /// Of the function; nanoseconds from one sample to the next.
    pub address: u64,
    /// Index of the program.
    pub program: usize,
    pub loaded: Arc<Loaded>,
}

impl Active {
    pub fn program(&self) -> &str {
        &self.loaded.programs[self.program].name
    }

    /// Runs it; interrupts are off.
    pub fn run(&self, context: &[u8]) {
        let function = if self.kind == Kind::Tracepoint { 0 } else { self.address };
        let machine = Machine { output: &self.loaded.output, function };
        let runtime = Runtime::new(&self.loaded.maps, &machine, context);
        // SAFETY: compiled from a program that was verified for this kind of context and these maps, which `loaded`
        // keeps; attaching checked that the context is what this place gives.
        unsafe { runtime.run(self.code as *const u8) };
    }
}

/// Called by the trampolines for a program that is not plain.
pub extern "C" fn run_active(registers: &Registers, active: &Active) {
    active.run(registers.bytes());
}

struct State {
    /// This processor's; kept for ever once there.
    stack: Option<KernelStack>,
    packages: Vec<(Arc<Loaded>, Vec<Arc<Active>>)>,
}

static STATE: SpinLock<State> = SpinLock::new(State { stack: None, packages: Vec::new() });

fn no_memory(name: &str) -> Failure {
    Failure::new(name).errno(abi::errno::ENOMEM)
}

/// Verifies and compiles what a package holds, and attaches its programs. All or nothing.
pub fn attach(name: &str, package: &[u8], go_on: &mut dyn FnMut() -> bool) -> Result<Arc<Loaded>, Failure> {
    let refused = |why: String| Failure::new(name).because(why).code(Failure::REFUSED);
    // Code is changed under the feet of the others, and what runs in an interrupt does not take its turn in the kernel.
    let alone = OneProcessor::keep();
    let package = Package::decode(package).ok_or_else(|| {
        refused("not a package of programs: attach with `unilith trace`, which makes them".into())
    })?;
    let bundle = Bundle::decode(&package.bundle).map_err(|e| refused(e.to_string()))?;
    if find(name).is_some() {
        return Err(refused(TAKEN.into()));
    }
    let loaded = Arc::new(load(name, &bundle, alone, go_on)?);
    {
        let mut state = STATE.lock();
        if state.stack.is_none() {
            state.stack = Some(crate::code::prepare().map_err(|_| no_memory(name))?);
        }
    }
    let mut attached = Vec::new();
    for a in &package.attachments {
        match attach_one(&loaded, a) {
            Ok(active) => attached.push(active),
            Err(why) => {
                attached.iter().for_each(detach_one);
                return Err(Failure::new(&*a.name).because(why).code(Failure::REFUSED));
            }
        }
    }
    let mut state = STATE.lock();
    // Verifying takes time, in which others run.
    if state.packages.iter().any(|p| p.0.name == name) {
        drop(state);
        attached.iter().for_each(detach_one);
        return Err(refused(TAKEN.into()));
    }
    state.packages.push((loaded.clone(), attached));
    Ok(loaded)
}

fn load(
    name: &str,
    bundle: &Bundle,
    alone: OneProcessor,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Loaded, Failure> {
    let cpus = 1;
    let bytes: usize = bundle.maps.iter().map(maps::Spec::bytes).sum();
    if bytes > MAX_MAP_BYTES {
        return Err(Failure::new(name).because("its maps need more than 32 MiB").code(Failure::REFUSED));
    }
    let mut maps = Vec::new();
    for spec in &bundle.maps {
        maps.push(Arc::new(Map::new(spec.clone(), cpus).map_err(|_| no_memory(&spec.name))?));
    }
    let output = maps::Spec {
        name: "output".into(),
        kind: maps::Kind::RingBuffer,
        key: 0,
        value: 0,
        entries: OUTPUT,
        flags: 0,
        initial: Vec::new(),
    };
    let output = Arc::new(Map::new(output, cpus).map_err(|_| no_memory(name))?);
    let mut loaded = Loaded { name: name.into(), maps, output, programs: Vec::new(), _alone: alone };
    for program in &bundle.programs {
        let verified = bpf::verify(&program.insns, program.context, &bundle.maps, go_on).map_err(|r| {
            let why = format!("instruction {}: {}", r.at, r.why);
            Failure::new(&*program.name).because(why).code(Failure::REFUSED)
        })?;
        let compiled = compile(&verified, &loaded.maps);
        let code = api_plat::new_code(&compiled.code).map_err(|e| Failure::new(&*program.name).errno(e))?;
        loaded.programs.push(Program {
            name: program.name.clone(),
            context: program.context,
            code,
            length: compiled.code.len(),
            plain: compiled.plain,
            changes: compiled.changes,
        });
    }
    Ok(loaded)
}

fn attach_one(loaded: &Arc<Loaded>, a: &api_probes::Attachment) -> Result<Arc<Active>, String> {
    let index = usize::from(a.program);
    let program = loaded.programs.get(index).ok_or("the package has no such program")?;
    let active = Arc::new(Active {
        code: program.code,
        plain: u32::from(program.plain),
        next: AtomicPtr::new(null_mut()),
        hits: AtomicU64::new(0),
        changes: program.changes,
        kind: a.kind,
        place: a.name.clone(),
        address: a.address,
        program: index,
        loaded: loaded.clone(),
    });
    let wants = match a.kind {
        Kind::Tracepoint => points::context(
            points::find(&a.name).ok_or("there is no such tracepoint: `bpf points` lists them")?,
        ),
        Kind::Entry | Kind::Return => Context::Registers,
    };
    if program.context != wants {
        return Err(format!(
            "program {} reads struct {}, and here is struct {}",
            program.name,
            program.context.name(),
            wants.name()
        ));
    }
    match a.kind {
        Kind::Tracepoint => points::attach(&active),
        Kind::Entry | Kind::Return => sites::attach(&active, &a.plan)?,
    }
    Ok(active)
}

fn detach_one(active: &Arc<Active>) {
    match active.kind {
        Kind::Tracepoint => points::detach(active),
        Kind::Entry | Kind::Return => sites::detach(active),
    }
}

/// The package of this name.
pub fn find(name: &str) -> Option<Arc<Loaded>> {
    STATE.lock().packages.iter().find(|p| p.0.name == name).map(|p| p.0.clone())
}

/// Takes a package's programs away from where they are; false when somebody else did.
pub fn detach(loaded: &Arc<Loaded>) -> bool {
    let mut state = STATE.lock();
    let Some(at) = state.packages.iter().position(|p| Arc::ptr_eq(&p.0, loaded)) else { return false };
    let (_, attached) = state.packages.swap_remove(at);
    drop(state);
    attached.iter().for_each(detach_one);
    true
}

/// The names of the packages that are there.
pub fn names() -> Vec<String> {
    STATE.lock().packages.iter().map(|p| p.0.name.clone()).collect()
}

/// Everything that is attached.
pub fn all() -> Vec<Arc<Active>> {
    STATE.lock().packages.iter().flat_map(|p| p.1.iter().cloned()).collect()
}

/// Puts an attachment at the head of a list that trampolines read.
pub fn link(head: &AtomicPtr<Active>, active: &Arc<Active>) {
    use core::sync::atomic::Ordering::Relaxed;
    undisturbed(|| {
        active.next.store(head.load(Relaxed), Relaxed);
        head.store(Arc::as_ptr(active).cast_mut(), Relaxed);
    });
}

/// Takes it out again; the caller holds it.
pub fn unlink(head: &AtomicPtr<Active>, active: &Arc<Active>) {
    use core::sync::atomic::Ordering::Relaxed;
    undisturbed(|| {
        let mut link = head;
        loop {
            let at = link.load(Relaxed);
            if at.is_null() {
                return;
            }
            // SAFETY: what is linked is attached, and whoever attached it holds it until it was unlinked.
            let here = unsafe { &*at };
            if core::ptr::eq(here, Arc::as_ptr(active)) {
                return link.store(here.next.load(Relaxed), Relaxed);
            }
            link = &here.next;
        }
    });
}
