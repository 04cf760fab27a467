// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guests of Xen on computers that have none: `tests/xen/rig` boots a dom0 under emulation, and `tests/xen/check` has `xl` start there what
//! `unilith build --machine xen` writes.

mod long {
    use std::{fs, process::Command, time::Duration};
    use unilith_tests::{finish, is_skipped, root};

    /// The rig under software emulation on a busy computer, its packages fetched and a kernel built before.
    const LIMIT: Duration = Duration::from_secs(3600);

    #[test]
    #[ignore = "takes a quarter of an hour"]
    fn guests_of_xen_print_serve_and_end_as_xl_asks() {
        let is_root =
            fs::metadata("/proc/self").is_ok_and(|of| std::os::unix::fs::MetadataExt::uid(&of) == 0);
        if is_skipped(!is_root, "the rig's network and root are made by root") {
            return;
        }
        let mut check = Command::new(root().join("tests/xen/check"));
        finish(check.current_dir(root()), LIMIT).ok();
    }
}
