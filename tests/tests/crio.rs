// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CRI-O with the runtime "unilith", in a network namespace of its own: `docs/how-to/crio.md` as printed. For `./unilith test --long`:
//! CRI-O is in no package of Debian's and takes five minutes to build, once, by `tests/crio/build`.

mod long {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
        path::PathBuf,
        process::Command,
        time::Duration,
    };
    use unilith_tests::{BUILD_KERNEL, Unilith, client, finish, is_skipped, page, root};

    const BUILD: Duration = Duration::from_secs(3600);
    /// What pods are made of, beside what is built.
    const INSTALL: &str = "{ command -v conmon && command -v podman && command -v runc && command -v busybox && test -x /usr/lib/cni/bridge; } >/dev/null || \
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends conmon podman runc busybox-static \
        containernetworking-plugins libsqlite3-dev libseccomp-dev pkg-config";

    /// Ended with all that it made.
    struct Node {
        crio: PathBuf,
        folder: PathBuf,
    }

    fn node(crio: &PathBuf, words: &[&str]) -> Command {
        let mut command = Command::new(root().join("tests/crio/node"));
        command.args(words).env("CRIO", crio);
        command
    }

    impl Node {
        fn up(unilith: &Unilith) -> Node {
            finish(Command::new("sh").args(["-c", INSTALL]), BUILD_KERNEL).ok();
            let built = finish(&mut Command::new(root().join("tests/crio/build")), BUILD).ok().out;
            let node_of = Node { crio: built.trim().into(), folder: unilith.path("node") };
            fs::create_dir_all(&node_of.folder).expect("a folder can be made");
            node_of.image("localhost/pause:1", "pause");
            node_of.image("docker.io/library/busybox:1", "sh");
            finish(&mut node(&node_of.crio, &["up", &node_of.path("")]), BUILD_KERNEL).ok();
            node_of
        }

        fn path(&self, name: &str) -> String {
            self.folder.join(name).display().to_string()
        }

        /// An image that has Debian's busybox, in CRI-O's storage; a link to it runs the program of the name.
        fn image(&self, name: &str, program: &str) {
            let files = self.folder.join(program);
            fs::create_dir_all(files.join("bin")).expect("a folder can be made");
            fs::copy("/bin/busybox", files.join("bin/busybox")).expect("Debian's busybox is there");
            let script = "#!/bin/busybox sh\nexec /bin/busybox sleep 1000000\n";
            match program {
                "pause" => {
                    fs::write(files.join("bin/pause"), script).expect("a file can be written");
                    let executable = fs::Permissions::from_mode(0o755);
                    fs::set_permissions(files.join("bin/pause"), executable).expect("it is ours");
                }
                _ => ["sh", "mkdir", "hostname", "httpd", "wget", "sleep", "uname"]
                    .into_iter()
                    .for_each(|name| symlink("busybox", files.join("bin").join(name)).expect("a link")),
            }
            let (storage, run) = (self.path("storage"), self.path("run/storage"));
            let line = format!(
                "tar -C {} -c . | podman --root {storage} --runroot {run} --storage-driver overlay import -q - {name}",
                files.display()
            );
            client("sh", &["-c", &line]).ok();
        }
    }

    impl Drop for Node {
        fn drop(&mut self) {
            let _ = node(&self.crio, &["down", &self.path("")]).status();
        }
    }

    /// The kernel of this computer lets nobody make a process that is less likely to be ended for want of memory, as CRI-O asks for its
    /// pods: runc fails as well.
    fn may_be_preferred() -> bool {
        const CAP_SYS_RESOURCE: u32 = 24;
        let status = fs::read_to_string("/proc/self/status").expect("it can be read");
        let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("it is told");
        u64::from_str_radix(bits.trim(), 16).expect("a number") >> CAP_SYS_RESOURCE & 1 != 0
    }

    #[test]
    #[ignore = "builds CRI-O"]
    fn the_page_about_crio_works_as_printed() {
        let is_root = rustix::process::geteuid().is_root();
        if is_skipped(!is_root, "CRI-O takes root") {
            return;
        }
        let unilith = Unilith::new();
        unilith.build_kernel_of_containers("process");
        let node_of = Node::up(&unilith);
        // The folder of the page: the commands, and what systemd does elsewhere.
        let (bin, confd) = (unilith.path("bin"), node_of.path("conf.d"));
        fs::create_dir_all(&bin).expect("a folder can be made");
        let write = |name: &str, script: String| {
            let path = unilith.path(name);
            fs::write(&path, format!("#!/bin/bash\n{script}\n")).expect("a file can be written");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        };
        symlink(root().join("unilith"), unilith.path("unilith")).expect("a link");
        symlink(root().join("deploy"), unilith.path("deploy")).expect("a link");
        let runtime = root().join("unilith-runc").display().to_string();
        let lowered = "for ((i = 1; i <= $#; i++)); do [ \"${!i}\" = --bundle ] && j=$((i + 1)) && \
            sed -i 's/\"oomScoreAdj\": *-[0-9]*/\"oomScoreAdj\":0/' \"${!j}/config.json\"; done";
        let prepared = if may_be_preferred() { "" } else { lowered };
        let state = unilith.path("state").display().to_string();
        write("unilith-runc", format!("{prepared}\nXDG_STATE_HOME={state} exec {runtime} \"$@\""));
        let script = root().join("tests/crio/node").display().to_string();
        // CRI-O asks systemd for things as well.
        let restart =
            format!("[ \"$*\" = 'restart crio' ] && exec {script} restart {}; exit 1", node_of.path(""));
        write("bin/systemctl", restart);
        let config = format!(
            "runtime-endpoint: unix://{0}\nimage-endpoint: unix://{0}\ndisable-pull-on-run: true\n",
            node_of.path("run/crio.sock")
        );
        fs::write(unilith.path("crictl.yaml"), config).expect("a file can be written");
        let text = fs::read_to_string(root().join("docs/how-to/crio.md")).expect("the page is there");
        let path = format!(
            "{}:{}:{}",
            bin.display(),
            node_of.crio.display(),
            std::env::var("PATH").unwrap_or_default()
        );
        let mut said = String::new();
        for line in page::commands(&text) {
            let line = line.replace("/etc/crio/crio.conf.d", &confd);
            let mut shell = node(&node_of.crio, &["ns", "bash", "-c", &line]);
            shell
                .env("XDG_STATE_HOME", &state)
                .env("PATH", &path)
                .env("CRI_CONFIG_FILE", unilith.path("crictl.yaml"));
            said.push_str(&finish(shell.current_dir(unilith.path("")), BUILD_KERNEL).ok().out);
        }
        for text in ["\nshop\nLinux", "serving", "web", "running"] {
            assert!(said.contains(text), "expected `{text}` in {said}");
        }
        let left = unilith.run(&["ps", "-aq"]).ok().out;
        assert_eq!(left, "", "the pod's machine is gone");
        drop(node_of);
        let mounts = fs::read_to_string("/proc/mounts").expect("it can be read");
        assert!(!mounts.contains(&unilith.path("node").display().to_string()), "{mounts}");
    }
}
