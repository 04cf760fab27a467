// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines under a KVM that works, on computers that have none: `tests/kvm/rig` boots a machine that has one, and
//! `tests/kvm/smoke` runs in it.

use std::{process::Command, time::Duration};
use unilith_tests::{BUILD_KERNEL, Unilith, finish, root};

/// Gathering the rig, and every check in it on a busy computer.
const LIMIT: Duration = Duration::from_secs(1800);

#[test]
fn machines_of_both_kinds_run_for_root_and_users_under_a_kvm_that_works() {
    if std::env::var_os("UNILITH_TEST_KVM").is_none() {
        eprintln!("skipped: emulating a KVM takes minutes (./unilith test --kvm runs it)");
        return;
    }
    let unilith = Unilith::default();
    // What runs in there is built and fetched out here, where that is quick.
    for machine in ["microvm", "qemu"] {
        let run = ["run", "--rm", "--accel", "tcg", "--machine", machine, "--network", "none"];
        for program in [&["busybox", "true"][..], &["redis", "--", "--version"]] {
            finish(&mut unilith.command(&[&run, program].concat()), BUILD_KERNEL).ok();
        }
    }
    let mut rig = Command::new(root().join("tests/kvm/rig"));
    let ran = finish(rig.current_dir(root()).arg("run").arg(root().join("tests/kvm/smoke")), LIMIT);
    eprintln!("{}", ran.out);
    ran.ok().says(" 0 failed");
}
