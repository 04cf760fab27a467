// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an image has in place of ACPI's power button and power off: virtual machines are told of their end by the host.

pub const fn begin(_: u64) {}

pub const fn off() {}
