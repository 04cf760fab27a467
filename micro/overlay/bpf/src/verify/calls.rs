// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls of helpers: do the arguments fit, and what is known afterwards.

use super::memory::Use;
use super::scalar::Scalar;
use super::state::{Pointer, Reg, State, To};
use super::{Check, Walker};
use crate::helpers::{self, Arg, Helper, Ret, id};
use alloc::format;

impl Walker<'_> {
    pub(super) fn helper(&mut self, state: &mut State, number: i32) -> Check {
        let Some(helper) = helpers::spec(number) else { return self.reject(helpers::unknown(number)) };
        let mut map = None;
        let mut record = None;
        for (index, arg) in helper.args.iter().enumerate() {
            let register = index as u8 + 1;
            match arg {
                Arg::None => break,
                Arg::Optional => {}
                Arg::Number | Arg::Size | Arg::SizeOrZero | Arg::KnownSize => {
                    self.number(state, register, helper)?;
                }
                Arg::Map => map = Some(self.map_argument(state, register, helper)?),
                Arg::Key | Arg::Value => {
                    let spec = &self.maps[usize::from(map.unwrap_or(0))];
                    let size = u64::from(if *arg == Arg::Key { spec.key } else { spec.value });
                    self.region(state, register, (size, size), Use::Read)?;
                }
                Arg::Context => match self.readable(state, register)? {
                    Reg::Pointer(p) if p.to == To::Context && p.fixed() == Some(0) => {}
                    _ => {
                        return self.reject(format!(
                            "{} wants the program's context, as it was given in r1, in r{register}",
                            helper.name
                        ));
                    }
                },
                Arg::Read | Arg::Write => self.sized(state, index, helper)?,
                Arg::Record => record = Some(self.record_argument(state, register, helper)?),
            }
        }
        self.restrictions(state, helper)?;
        if let Some(record) = record {
            state.records.retain(|r| *r != record);
            state.each(&mut |r| {
                if matches!(r, Reg::Pointer(p) if p.id == record && matches!(p.to, To::Record(_))) {
                    *r = Reg::Nothing;
                }
            });
        }
        if helper.id == id::MAP_LOOKUP {
            match self.lookups.iter_mut().find(|l| l.0 == self.at) {
                Some(known) if known.1 != map => known.1 = None,
                Some(_) => {}
                None => self.lookups.push((self.at, map)),
            }
        }
        let result = self.result(state, helper, map);
        for register in 1..6 {
            state.set(register, Reg::Nothing);
        }
        state.set(0, result);
        Ok(())
    }

    fn number(&self, state: &State, register: u8, helper: &Helper) -> Check<Scalar> {
        match self.readable(state, register)? {
            Reg::Number { value, .. } => Ok(value),
            _ => self.reject(format!("{} wants a number in r{register}, not a pointer", helper.name)),
        }
    }

    fn map_argument(&self, state: &State, register: u8, helper: &Helper) -> Check<u16> {
        match self.readable(state, register)? {
            Reg::Pointer(Pointer { to: To::Map(map), .. }) => {
                let spec = &self.maps[usize::from(map)];
                if !helper.accepts(spec.kind) {
                    return self.reject(format!(
                        "{} does not work on map {}, a {:?}",
                        helper.name, spec.name, spec.kind
                    ));
                }
                Ok(map)
            }
            _ => self.reject(format!("{} wants a map in r{register}", helper.name)),
        }
    }

    /// Memory and its size in the register behind.
    fn sized(&mut self, state: &mut State, index: usize, helper: &Helper) -> Check {
        let register = index as u8 + 1;
        let size = self.number(state, register + 1, helper)?;
        let (least, most) = (size.wide.umin, size.wide.umax);
        let zero_fits = helper.args.get(index + 1) == Some(&Arg::SizeOrZero);
        if least == 0 && !zero_fits {
            return self.reject(format!(
                "the size that {} gets in r{} may be zero",
                helper.name,
                register + 1
            ));
        }
        if size.value() == Some(0)
            && matches!(self.readable(state, register)?, Reg::Number { value, .. } if value.value() == Some(0))
        {
            return Ok(());
        }
        let how = if helper.args[index] == Arg::Write { Use::Write } else { Use::Read };
        self.region(state, register, (least, most), how)
    }

    fn record_argument(&self, state: &State, register: u8, helper: &Helper) -> Check<u32> {
        match self.readable(state, register)? {
            Reg::Pointer(p) if matches!(p.to, To::Record(_)) && !p.maybe_null && p.fixed() == Some(0) => {
                Ok(p.id)
            }
            Reg::Pointer(p) if matches!(p.to, To::Record(_)) && p.maybe_null => {
                self.reject(format!("the record in r{register} may be null: compare it with 0 before"))
            }
            _ => self
                .reject(format!("{} wants a record as ringbuf_reserve gave it in r{register}", helper.name)),
        }
    }

    /// What single helpers want besides.
    fn restrictions(&mut self, state: &State, helper: &Helper) -> Check {
        match helper.id {
            id::RINGBUF_RESERVE => {
                let size = self.number(state, 2, helper)?;
                if size.value().is_none_or(|s| s == 0 || s > 1 << 24) {
                    return self.reject("the size of a record has to be a known number, from 1 to 16 MiB");
                }
            }
            id::TRACE_PRINTK | id::PUTS if self.number(state, 2, helper)?.wide.umax > 256 => {
                return self.reject(format!("{} takes at most 256 bytes of text", helper.name));
            }
            _ => {}
        }
        Ok(())
    }

    fn result(&mut self, state: &mut State, helper: &Helper, map: Option<u16>) -> Reg {
        match helper.ret {
            Ret::Value => {
                let to = To::Value(map.unwrap_or(0));
                Reg::Pointer(Pointer { maybe_null: true, id: self.new_id(), ..Pointer::new(to) })
            }
            Ret::Record => {
                let size = match state.reg(2) {
                    Reg::Number { value, .. } => value.value().unwrap_or(0) as u32,
                    _ => 0,
                };
                let id = self.new_id();
                state.records.push(id);
                Reg::Pointer(Pointer { maybe_null: true, id, ..Pointer::new(To::Record(size)) })
            }
            Ret::Number => match helper.id {
                id::GET_SMP_PROCESSOR_ID => Reg::number(Scalar::between(0, 255)),
                id::GET_PRANDOM_U32 => Reg::number(Scalar::loaded(4)),
                _ => Reg::UNKNOWN,
            },
        }
    }
}
