// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Containers on computers whose control groups are systemd's: `tests/kvm/rig` boots one, and `tests/kvm/scopes` is what an engine there
//! does and looks for.

mod long {
    use std::{process::Command, time::Duration};
    use unilith_tests::{Unilith, finish, is_skipped, root};

    /// The rig under software emulation on a busy computer.
    const LIMIT: Duration = Duration::from_secs(1800);

    #[test]
    #[ignore = "takes three minutes"]
    fn containers_are_in_scopes_with_their_limits_and_go_with_them() {
        if is_skipped(!rustix::process::geteuid().is_root(), "the rig's root is read by root") {
            return;
        }
        let has = |program: &str| {
            Command::new("sh")
                .args(["-c", &format!("command -v {program}")])
                .output()
                .is_ok_and(|o| o.status.success())
        };
        for (program, package) in [
            ("busctl", "systemd"),
            ("podman", "podman"),
            ("dbus-daemon", "dbus-daemon"),
            ("newuidmap", "uidmap"),
            ("slirp4netns", "slirp4netns"),
        ] {
            if is_skipped(
                !has(program),
                &format!("the rig has this computer's programs, and {package} is not installed"),
            ) {
                return;
            }
        }
        // What runs in the rig is built out here, where that is quick.
        Unilith::default().build_kernel_of_containers("process");
        let mut rig = Command::new(root().join("tests/kvm/rig"));
        rig.args(["run", "tests/kvm/scopes"]).env("RIG_SYSTEMD", "1").current_dir(root());
        finish(&mut rig, LIMIT).ok().says("0 failed");
    }
}
