// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which system calls a program and its libraries can make: the calls in every function that can be reached from the
//! program's code, through calls, branches, addresses that functions take, and dynamic symbols.
//!
//! It errs to both sides a little and says so: a function whose address is in data counts as reachable once its
//! object is in use (so libc's own tables bring some calls that never happen); numbers that are computed, and
//! libraries that are only loaded by name, are not seen.

use crate::{
    code::Code,
    sites::{self, Targets},
};
use iced_x86::{Code as Opcode, FlowControl, Instruction, InstructionInfoFactory, OpKind, Register};
use object::{Object as _, ObjectSection, ObjectSymbol};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// One file of a program.
pub struct Object<'a> {
    /// For the answer: `libc.so.6`.
    pub name: String,
    pub bytes: &'a [u8],
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Each call that can be made, and functions that make it: `libc.so.6: openat`.
    pub calls: BTreeMap<u16, BTreeSet<String>>,
    /// Reachable functions that make calls whose number is not in the code.
    pub computed: BTreeSet<String>,
}

/// The functions named for each call; more would not help anybody.
const NAMED: usize = 4;
/// Above all numbers of Linux 6.x: a larger constant in the same register is something else.
const MAX_NUMBERS: u16 = 512;
/// How far back the argument of libc's `syscall()` is looked for.
const ARGUMENT_REACH: usize = 12;

#[derive(Default)]
struct Function {
    start: u64,
    numbers: BTreeSet<u16>,
    computed: bool,
    local: BTreeSet<u64>,
    imported: BTreeSet<String>,
}

struct Analysed {
    name: String,
    functions: Vec<Function>,
    names: BTreeMap<u64, String>,
    exports: HashMap<String, u64>,
    /// Code addresses in data: start and end functions, tables of pointers.
    pointers: Vec<u64>,
    /// Symbols that data refers to.
    data_imports: BTreeSet<String>,
    entry: u64,
}

impl Analysed {
    fn at(&self, address: u64) -> Option<usize> {
        self.functions.partition_point(|f| f.start <= address).checked_sub(1)
    }

    fn name_at(&self, start: u64) -> String {
        match self.names.get(&start) {
            Some(name) => format!("{}: {name}", self.name),
            // A function of its own that no symbol names.
            None => self.name.clone(),
        }
    }
}

/// Finds the calls of a program. The first object is the program, the others are its libraries in the order in which
/// the dynamic linker searches them.
pub fn needs(objects: &[Object]) -> Result<Needs, String> {
    let analysed: Vec<Analysed> = objects
        .iter()
        .map(|o| analyse(o).map_err(|e| format!("{}: {e}", o.name)))
        .collect::<Result<_, _>>()?;
    let mut out = Needs::default();
    let mut seen: Vec<Vec<bool>> = analysed.iter().map(|a| vec![false; a.functions.len()]).collect();
    let mut in_use = vec![false; analysed.len()];
    let mut todo: Vec<(usize, u64)> = analysed.first().map(|a| (0, a.entry)).into_iter().collect();
    let resolve =
        |name: &str| analysed.iter().enumerate().find_map(|(i, a)| Some((i, *a.exports.get(name)?)));
    // Constructors run, and the linker itself works, whether or not anything is called.
    for (index, object) in analysed.iter().enumerate().skip(1) {
        todo.push((index, object.entry));
    }
    while let Some((object, address)) = todo.pop() {
        let own = &analysed[object];
        let Some(index) = own.at(address) else { continue };
        if std::mem::replace(&mut seen[object][index], true) {
            continue;
        }
        if !std::mem::replace(&mut in_use[object], true) {
            todo.extend(own.pointers.iter().map(|p| (object, *p)));
            todo.extend(own.data_imports.iter().filter_map(|n| resolve(n)));
        }
        let function = &own.functions[index];
        todo.extend(function.local.iter().map(|a| (object, *a)));
        todo.extend(function.imported.iter().filter_map(|n| resolve(n)));
        for number in &function.numbers {
            let names = out.calls.entry(*number).or_default();
            if names.len() < NAMED {
                names.insert(own.name_at(function.start));
            }
        }
        if function.computed {
            out.computed.insert(own.name_at(function.start));
        }
    }
    // The general wrapper's own number is its caller's argument, which is among the numbers already.
    out.computed.retain(|name| !name.ends_with(": syscall"));
    Ok(out)
}

fn analyse(object: &Object) -> Result<Analysed, String> {
    let code = Code::read(object.bytes)?;
    let mut names = BTreeMap::new();
    let mut exports = HashMap::new();
    for symbol in code.file.symbols().chain(code.file.dynamic_symbols()) {
        if let Ok(name) = symbol.name()
            && !symbol.is_undefined()
            && !name.is_empty()
            && code.region(symbol.address()).is_some()
        {
            // Of several names for one function, the one without underscores is the documented one.
            let known = names.entry(symbol.address()).or_insert_with(|| name.to_string());
            if known.starts_with('_') && !name.starts_with('_') {
                *known = name.to_string();
            }
        }
    }
    for symbol in code.file.dynamic_symbols().filter(|s| !s.is_undefined()) {
        if let Ok(name) = symbol.name() {
            exports.insert(name.to_string(), symbol.address());
        }
    }
    let stubs: Vec<(u64, u64)> = code
        .file
        .sections()
        .filter(|s| s.name().is_ok_and(|n| n.starts_with(".plt")))
        .map(|s| (s.address(), s.address() + s.size()))
        .collect();
    let mut out = Analysed {
        name: object.name.clone(),
        functions: Vec::new(),
        names,
        exports,
        pointers: code.pointers.clone(),
        data_imports: code.imports.values().cloned().collect(),
        entry: code.file.entry(),
    };
    // The slots of functions that the code itself refers to are not data that refers to them.
    let mut used = BTreeSet::new();
    let mut info = InstructionInfoFactory::new();
    let mut instructions = Vec::new();
    // What lies between described functions may be functions too (parts compiled without frames).
    for chunk in &code.chunks {
        if stubs.iter().any(|s| (s.0..s.1).contains(&chunk.start)) {
            continue;
        }
        code.decode(chunk, &mut instructions);
        let mut function = Function { start: chunk.start, ..Function::default() };
        for (k, i) in instructions.iter().enumerate() {
            if i.code() == Opcode::Syscall {
                let numbers = numbers(&instructions, k, &mut info);
                function.computed |= numbers.is_empty();
                function.numbers.extend(numbers);
                continue;
            }
            let mut import = None;
            for address in addresses(i) {
                if stubs.iter().any(|s| (s.0..s.1).contains(&address)) {
                    import = stub_target(&code, address).and_then(|slot| code.imports.get(&slot));
                } else if let Some(name) = code.imports.get(&address) {
                    import = Some(name);
                } else if code.region(address).is_some() && !(chunk.start..chunk.end).contains(&address) {
                    function.local.insert(address);
                }
            }
            let Some(name) = import else { continue };
            used.insert(name.clone());
            function.imported.insert(name.clone());
            if name == "syscall" && matches!(i.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
            {
                match argument(&instructions, k, &mut info) {
                    Some(number) => function.numbers.insert(number),
                    None => std::mem::replace(&mut function.computed, true),
                };
            }
        }
        // The chunk that follows is where a function without an end in it goes on.
        if let Some(last) = instructions.last()
            && last.flow_control() == FlowControl::Next
        {
            function.local.insert(last.next_ip());
        }
        out.functions.push(function);
    }
    out.functions.sort_by_key(|f| f.start);
    out.data_imports.retain(|n| !used.contains(n));
    Ok(out)
}

/// The numbers a `syscall` may have: the constant before it, or, where RAX comes from another register, all constants
/// that its function puts there (`_exit` keeps two numbers in registers across its loop).
fn numbers(instructions: &[Instruction], k: usize, info: &mut InstructionInfoFactory) -> Vec<u16> {
    if let Some(number) = sites::number(instructions, k, &Targets::default(), info) {
        return vec![number];
    }
    let Some(write) = instructions[..k].iter().rev().find(|i| sites::writes(i, Register::RAX, info)) else {
        return Vec::new();
    };
    if !matches!(
        write.code(),
        Opcode::Mov_r32_rm32 | Opcode::Mov_rm32_r32 | Opcode::Mov_r64_rm64 | Opcode::Mov_rm64_r64
    ) || write.op1_kind() != OpKind::Register
    {
        return Vec::new();
    }
    let source = write.op1_register().full_register();
    let constants = instructions.iter().filter_map(|i| sites::constant(i, source).and_then(sites::as_number));
    constants.filter(|n| *n < MAX_NUMBERS).collect()
}

/// Addresses of code or of pointers that an instruction names.
fn addresses(i: &Instruction) -> Vec<u64> {
    let mut out = Vec::new();
    for operand in 0..i.op_count() {
        match i.op_kind(operand) {
            OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => {
                out.push(i.near_branch_target())
            }
            OpKind::Memory if i.is_ip_rel_memory_operand() => out.push(i.ip_rel_memory_address()),
            OpKind::Immediate32 => out.push(i.immediate32().into()),
            OpKind::Immediate32to64 => out.push(i.immediate32to64() as u64),
            OpKind::Immediate64 => out.push(i.immediate64()),
            _ => {}
        }
    }
    out
}

/// The slot that a procedure linkage stub jumps through.
fn stub_target(code: &Code, stub: u64) -> Option<u64> {
    let region = code.region(stub)?;
    let bytes = region.bytes.get((stub - region.address) as usize..)?;
    let mut decoder = crate::code::decoder(bytes, stub);
    (0..3)
        .map(|_| decoder.decode())
        .find(|i| i.flow_control() == FlowControl::IndirectBranch && i.is_ip_rel_memory_operand())
        .map(|i| i.ip_rel_memory_address())
}

/// The constant first argument of a call.
fn argument(instructions: &[Instruction], call: usize, info: &mut InstructionInfoFactory) -> Option<u16> {
    for i in instructions[..call].iter().rev().take(ARGUMENT_REACH) {
        if !matches!(i.flow_control(), FlowControl::Next | FlowControl::ConditionalBranch) {
            return None;
        }
        if sites::writes(i, Register::RDI, info) {
            return sites::constant(i, Register::RDI).and_then(sites::as_number);
        }
    }
    None
}
