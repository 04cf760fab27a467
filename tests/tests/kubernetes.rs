// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kubernetes with the runtime class "unilith": a cluster of one node in a network namespace of its own, the commands of
//! `docs/how-to/kubernetes.md` as printed, and what users do with pods. For `./unilith test --long`: Kubernetes takes half an
//! hour to build, once, by `tests/kubernetes/build`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};
use unilith_tests::{BUILD_KERNEL, Ran, Unilith, client, eventually, finish, root};

/// How long one command of kubectl may take: pods start and end meanwhile.
const KUBECTL: Duration = Duration::from_secs(120);
/// What `tests/kubernetes/build` puts below the folder.
const PARTS: [&str; 11] = [
    "bin/kubelet",
    "bin/kube-apiserver",
    "bin/kube-controller-manager",
    "bin/kube-scheduler",
    "bin/kube-proxy",
    "bin/kubectl",
    "bin/pause",
    "dist/usr/bin/containerd",
    "dist/usr/bin/etcd",
    "dist/usr/sbin/conntrack",
    "dist/usr/lib/cni/bridge",
];

/// Where Kubernetes is.
fn parts() -> PathBuf {
    let home = || Path::new(&std::env::var("HOME").unwrap_or_default()).join(".cache/unilith-kubernetes");
    std::env::var_os("K8S_DIR").map_or_else(home, PathBuf::from)
}

/// Ended with all that it made.
struct Cluster<'a> {
    unilith: &'a Unilith,
    folder: PathBuf,
}

fn script(words: &[&str]) -> Command {
    let mut command = Command::new(root().join("tests/kubernetes/cluster"));
    command.args(words).env("K8S_DIR", parts()).env("UNILITH_RUNTIME", root().join("unilith-runc"));
    command.stdin(Stdio::null());
    command
}

impl Cluster<'_> {
    fn up(unilith: &Unilith) -> Cluster<'_> {
        let folder = unilith.path("cluster");
        fs::create_dir(&folder).expect("a folder can be made");
        image(unilith, &folder);
        let cluster = Cluster { unilith, folder };
        finish(&mut script(&["up", &cluster.folder()]), BUILD_KERNEL).ok();
        cluster
    }

    fn folder(&self) -> String {
        self.folder.display().to_string()
    }

    /// In the namespace of the node, with kubectl.
    fn shell(&self, line: &str) -> Ran {
        let mut command = script(&["ns", "sh", "-c", line]);
        command.env("KUBECONFIG", self.folder.join("admin.conf")).current_dir(root());
        finish(&mut command, KUBECTL)
    }

    fn apply(&self, text: &str) {
        let path = self.unilith.path("applied.yaml");
        fs::write(&path, text).expect("a file can be written");
        self.shell(&format!("kubectl apply -f {}", path.display())).ok();
    }

    /// What kubectl says of an object, until it says this.
    fn says(&self, asked: &str, wanted: &str) {
        eventually(&format!("{asked}: {wanted}"), || {
            self.shell(&format!("kubectl {asked}")).out.contains(wanted)
        });
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        let _ = script(&["down", &self.folder()]).status();
    }
}

/// The images of all pods, as `docker save` writes them: busybox with its tools, and the program of sandboxes.
fn image(unilith: &Unilith, folder: &Path) {
    const MAKE: &str = r#"
        set -e
        image() { # NAME CONFIG: of the directory root
          tar -C root -cf "$1.tar" .
          echo "{\"architecture\": \"amd64\", \"os\": \"linux\", \"config\": $2, \"rootfs\": {\"type\": \"layers\", \"diff_ids\": [\"sha256:$(sha256sum "$1.tar" | cut -d' ' -f1)\"]}}" >"$1.json"
        }
        mkdir -p root/bin root/tmp root/etc
        cp /bin/busybox root/bin
        for tool in $(busybox --list); do [ $tool = busybox ] || ln -s busybox root/bin/$tool; done
        echo root:x:0:0:root:/root:/bin/sh >root/etc/passwd
        image busybox '{"Env": ["PATH=/bin"], "Cmd": ["sh"]}'
        rm -r root
        mkdir root
        cp "$1" root/pause
        image pause '{"User": "65535:65535", "Env": ["PATH=/"], "WorkingDir": "/", "Entrypoint": ["/pause"]}'
        echo '[{"Config": "busybox.json", "RepoTags": ["docker.io/library/busybox:stable"], "Layers": ["busybox.tar"]},
          {"Config": "pause.json", "RepoTags": ["registry.k8s.io/pause:3.10"], "Layers": ["pause.tar"]}]' >manifest.json
        tar -cf "$0" manifest.json busybox.json busybox.tar pause.json pause.tar"#;
    let made = unilith.path("image");
    fs::create_dir(&made).expect("a folder can be made");
    let (archive, pause) = (folder.join("image.tar"), parts().join("bin/pause"));
    finish(Command::new("sh").args(["-c", MAKE]).arg(archive).arg(pause).current_dir(made), KUBECTL).ok();
}

const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: term}
spec:
  runtimeClassName: unilith
  terminationGracePeriodSeconds: 30
  containers:
  - {name: c, image: "docker.io/library/busybox:stable", command: [sh, -c, "trap 'echo ended; exit 0' TERM; echo up; while :; do sleep 0.2; done"]}
---
apiVersion: v1
kind: Pod
metadata: {name: oom}
spec:
  runtimeClassName: unilith
  restartPolicy: Never
  containers:
  - {name: c, image: "docker.io/library/busybox:stable", command: [tail, /dev/zero], resources: {limits: {memory: 48Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: pair}
spec:
  runtimeClassName: unilith
  terminationGracePeriodSeconds: 1
  initContainers:
  - {name: init, image: "docker.io/library/busybox:stable", command: [sh, -c, "echo prepared >/shared/file"], volumeMounts: [{name: shared, mountPath: /shared}]}
  containers:
  - {name: web, image: "docker.io/library/busybox:stable", command: [httpd, -f, -p, "80", -h, /shared], volumeMounts: [{name: shared, mountPath: /shared}]}
  - {name: shipper, image: "docker.io/library/busybox:stable", command: [sh, -c, "cat /shared/file; exec sleep 1000"], volumeMounts: [{name: shared, mountPath: /shared}]}
  - {name: third, image: "docker.io/library/busybox:stable", command: [sh, -c, "until wget -q -O - http://127.0.0.1/file; do sleep 0.2; done; exec sleep 1000"]}
  volumes: [{name: shared, emptyDir: {}}]
---
apiVersion: v1
kind: Pod
metadata: {name: apart, annotations: {dev.unilith.pod: separate, dev.unilith.offline: shipper}}
spec:
  runtimeClassName: unilith
  terminationGracePeriodSeconds: 1
  containers:
  - {name: web, image: "docker.io/library/busybox:stable", command: [httpd, -f, -p, "80"]}
  - {name: shipper, image: "docker.io/library/busybox:stable", command: [sh, -c, "echo up; exec sleep 1000"]}
  - {name: third, image: "docker.io/library/busybox:stable", command: [sleep, "1000"]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: retry}
spec:
  backoffLimit: 2
  template:
    spec:
      runtimeClassName: unilith
      restartPolicy: OnFailure
      containers:
      - {name: c, image: "docker.io/library/busybox:stable", command: [sh, -c, "echo try >>/kept/tries; [ $(wc -l </kept/tries) -ge 2 ]"], volumeMounts: [{name: kept, mountPath: /kept}]}
      volumes: [{name: kept, emptyDir: {}}]
"#;

#[test]
#[ignore = "long: needs a built Kubernetes"]
fn pods_of_the_runtime_class_are_machines() {
    let lacking: Vec<&str> = PARTS.into_iter().filter(|part| !parts().join(part).exists()).collect();
    if !lacking.is_empty() || !rustix::process::geteuid().is_root() {
        let at = parts();
        eprintln!(
            "skipped: run as root; {at:?} (K8S_DIR) lacks {lacking:?}: run tests/kubernetes/build once"
        );
        return;
    }
    let unilith = Unilith::new();
    // Engines give a runtime no time to build its kernel.
    unilith.run(&["run", "--rm", "--machine", "process", "busybox", "true"]).ok();
    let cluster = Cluster::up(&unilith);

    // The page, as printed.
    let page = fs::read_to_string(root().join("docs/how-to/kubernetes.md")).expect("the page is there");
    let printed: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("    kubectl ")).collect();
    assert!(printed.len() > 6, "the page has commands");
    let (removal, commands) = printed.split_last().expect("there are commands");
    for line in commands {
        let ran = cluster.shell(&format!("kubectl {line}")).ok();
        if line.contains("uname") {
            ran.says("unilith");
        }
    }
    // By the Service, from the node, and through the forwarded port.
    let fetch = "curl -s -m 20 --retry 20 --retry-connrefused";
    let service = "$(kubectl get service hello -o jsonpath={.spec.clusterIP})";
    cluster.shell(&format!("{fetch} http://{service}/")).ok().says("Hello from a machine.");
    let forward = format!(
        "kubectl port-forward deployment/hello 18080:80 >/dev/null & {fetch} http://127.0.0.1:18080/; code=$?; kill $!; exit $code"
    );
    cluster.shell(&forward).ok().says("Hello from a machine.");
    cluster.shell("kubectl exec deployment/hello -- sh -c 'exit 3'").complains("exit code 3");
    cluster.shell("echo through | kubectl exec -i deployment/hello -- cat").ok().says("through");
    cluster.shell("script -qec 'kubectl exec -it deployment/hello -- tty' /dev/null").ok().says("/dev/pts/");
    // A new version, pod by pod, and a change of the ConfigMap in what runs.
    cluster.shell("kubectl set env deployment/hello VERSION=2").ok();
    cluster.shell("kubectl rollout status deployment/hello --timeout=100s").ok();
    cluster.shell("kubectl exec deployment/hello -- sh -c 'echo $VERSION'").ok().says("2");
    cluster.shell(r#"kubectl patch configmap hello -p '{"data": {"index.html": "changed"}}'"#).ok();
    eventually("the page changes", || {
        cluster.shell(&format!("{fetch} http://{service}/")).out.contains("changed")
    });

    cluster.apply(PODS);
    cluster.shell("kubectl wait --for=condition=complete job/retry --timeout=100s").ok();
    cluster.says("get pod oom -o jsonpath={.status.containerStatuses[0].state.terminated.exitCode}", "137");
    cluster.says("logs pair -c shipper", "prepared");
    cluster.says("exec pair -c web -- hostname", "pair");
    cluster.says("logs pair -c third", "prepared");
    cluster.says("logs apart -c shipper", "up");
    cluster.says("get events", "another container has the interface of this network namespace");
    cluster.says("logs term", "up");
    let log = unilith.path("term.log");
    let ended =
        format!("kubectl logs -f term >{} & kubectl delete pod term --timeout=60s; wait", log.display());
    cluster.shell(&ended).ok();
    assert!(fs::read_to_string(&log).unwrap_or_default().contains("ended"), "SIGTERM reaches the program");

    cluster.shell(&format!("kubectl {removal}")).ok();
    cluster.shell("kubectl delete pods,jobs --all --timeout=100s").ok();
    eventually("all machines are gone", || {
        unilith_tests::finish(Command::new("ps").arg("ax"), KUBECTL)
            .out
            .matches("oci --root /run/containerd")
            .count()
            == 0
    });
    drop(cluster);
    let left = client("ip", &["netns", "list"]).ok().out;
    assert!(!left.contains("unilith-k8s"), "{left}");
    let mounts = fs::read_to_string("/proc/mounts").expect("it can be read");
    assert!(!mounts.contains(&unilith.path("cluster").display().to_string()), "{mounts}");
}
