// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who of the firmware has a protocol. Numbers of sections are UEFI 2.10's.

use crate::firmware::call;
use core::{ffi::c_void, ptr, slice};
use uefi_raw::{Boolean, Guid, Handle, table::boot::BootServices};

/// LocateSearchType AllHandles and ByProtocol (7.3.15).
const ALL_HANDLES: i32 = 0;
const BY_PROTOCOL: i32 = 2;
/// Handles that are looked at: every partition of every disk is one.
const MAX_HANDLES: usize = 256;

/// Calls `found` with the protocol of every handle that has it, until it answers true.
pub fn any<P>(services: &BootServices, protocol: &Guid, mut found: impl FnMut(*mut P) -> bool) -> bool {
    let handles = located(services, BY_PROTOCOL, protocol);
    handles.iter().any(|handle| {
        let mut interface: *mut c_void = ptr::null_mut();
        // SAFETY: as above. The handle is one that firmware has just named.
        let status = call(|| unsafe { (services.handle_protocol)(*handle, protocol, &mut interface) });
        !status.is_error() && !interface.is_null() && found(interface.cast())
    })
}

/// Has firmware's drivers look at every device: one that knows what it boots from leaves others alone (7.3.12).
pub fn connect_all(services: &BootServices) {
    for handle in located(services, ALL_HANDLES, ptr::null()) {
        // SAFETY: boot services run. The handle is one that firmware has just named; one that has no driver answers an error.
        let _ = call(|| unsafe {
            (services.connect_controller)(*handle, ptr::null(), ptr::null(), Boolean::TRUE)
        });
    }
}

/// Handles that firmware has, in memory of its own.
fn located(services: &BootServices, kind: i32, protocol: *const Guid) -> &[Handle] {
    let (mut count, mut handles): (usize, *mut Handle) = (0, ptr::null_mut());
    // SAFETY: boot services run; the pointers are to this call's own.
    let status = call(|| unsafe {
        (services.locate_handle_buffer)(kind, protocol, ptr::null(), &mut count, &mut handles)
    });
    if status.is_error() || handles.is_null() {
        return &[];
    }
    // SAFETY: firmware wrote that many handles.
    unsafe { slice::from_raw_parts(handles, count.min(MAX_HANDLES)) }
}
