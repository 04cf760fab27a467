// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kubernetes with the runtime class "unilith": a cluster of one node in a network namespace of its own, the commands of
//! `docs/how-to/kubernetes.md` as printed, and what users do with pods. For `./unilith test --long`: Kubernetes takes half an
//! hour to build, once, by `tests/kubernetes/build`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
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
    _alone: MutexGuard<'static, ()>,
}

fn script(words: &[&str]) -> Command {
    let mut command = Command::new(root().join("tests/kubernetes/cluster"));
    command.args(words).env("K8S_DIR", parts()).env("UNILITH_RUNTIME", root().join("unilith-runc"));
    command.stdin(Stdio::null());
    command
}

impl Cluster<'_> {
    fn up(unilith: &Unilith) -> Cluster<'_> {
        Cluster::up_with(unilith, "")
    }

    /// With an image of these packages of Debian's.
    fn up_with<'u>(unilith: &'u Unilith, packages: &str) -> Cluster<'u> {
        // There is one namespace of the node.
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        unilith.build_kernel_of_containers("process");
        let folder = unilith.path("cluster");
        fs::create_dir(&folder).expect("a folder can be made");
        image(unilith, &folder, packages);
        let cluster = Cluster { unilith, folder, _alone: alone };
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

    /// Deletes all pods and ends; nothing is left of either.
    fn end(self) {
        self.shell("kubectl delete pods,jobs --all --timeout=100s").ok();
        eventually("all machines are gone", || machines().is_empty());
        let groups = "find /sys/fs/cgroup -path '*kubepods*/pod*' -type d";
        eventually("all groups are gone", || self.shell(groups).out.is_empty());
        let folder = self.folder();
        drop(self);
        let left = client("ip", &["netns", "list"]).ok().out;
        assert!(!left.contains("unilith-k8s"), "{left}");
        let mounts = fs::read_to_string("/proc/mounts").expect("it can be read");
        assert!(!mounts.contains(&folder), "{mounts}");
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

/// The images of all pods, as `docker save` writes them: busybox with its tools, the program of sandboxes, and a Debian with packages if
/// there are any.
fn image(unilith: &Unilith, folder: &Path, packages: &str) {
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
        more=
        if [ -n "$2" ]; then
          command -v mmdebstrap >/dev/null || apt-get install -qy mmdebstrap >/dev/null
          rm -r root
          mmdebstrap --quiet --variant=minbase --include="$2" bookworm root
          image servers '{"Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"], "Cmd": ["bash"]}'
          more=', {"Config": "servers.json", "RepoTags": ["docker.io/library/servers:1"], "Layers": ["servers.tar"]}'
        fi
        echo '[{"Config": "busybox.json", "RepoTags": ["docker.io/library/busybox:stable"], "Layers": ["busybox.tar"]},
          {"Config": "pause.json", "RepoTags": ["registry.k8s.io/pause:3.10"], "Layers": ["pause.tar"]}'"$more]" >manifest.json
        tar -cf "$0" manifest.json ./*.tar busybox.json pause.json ${more:+servers.json}"#;
    let made = unilith.path("image");
    fs::create_dir(&made).expect("a folder can be made");
    let (archive, pause) = (folder.join("image.tar"), parts().join("bin/pause"));
    let mut make = Command::new("sh");
    make.args(["-c", MAKE]).arg(archive).arg(pause).arg(packages).current_dir(made);
    finish(&mut make, BUILD_KERNEL).ok();
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

/// Whether there is a Kubernetes; says what is missing.
fn is_there() -> bool {
    let lacking: Vec<&str> = PARTS.into_iter().filter(|part| !parts().join(part).exists()).collect();
    let is_there = lacking.is_empty() && rustix::process::geteuid().is_root();
    if !is_there {
        let at = parts();
        eprintln!(
            "skipped: run as root; {at:?} (K8S_DIR) lacks {lacking:?}: run tests/kubernetes/build once"
        );
    }
    is_there
}

#[test]
#[ignore = "long: needs a built Kubernetes"]
fn pods_of_the_runtime_class_are_machines() {
    if !is_there() {
        return;
    }
    let unilith = Unilith::new();
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
    cluster.end();
}

/// Processes of the host that are containers of the cluster: number and arguments.
fn machines() -> Vec<String> {
    let all = finish(Command::new("ps").args(["ax", "-o", "pid,args"]), KUBECTL).ok().out;
    all.lines().filter(|line| line.contains("oci --root /run/containerd")).map(String::from).collect()
}

/// Pods of several containers. `RUN` and `IMAGE` stand for what all of them say.
const SEVERAL: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: full}
spec:
  RUN
  initContainers:
  - {name: init, IMAGE, command: [sh, -c, "echo prepared >/shared/file"], volumeMounts: [{name: shared, mountPath: /shared}]}
  - name: native
    IMAGE
    restartPolicy: Always
    command: [sh, -c, "cat /shared/file; exec sleep 1000"]
    startupProbe: {exec: {command: [test, -e, /shared/file]}, periodSeconds: 1}
    volumeMounts: [{name: shared, mountPath: /shared}]
  containers:
  - name: web
    IMAGE
    command: [httpd, -f, -p, "80", -h, /shared]
    readinessProbe: {httpGet: {port: 80, path: /file}, periodSeconds: 1}
    volumeMounts: [{name: shared, mountPath: /shared}]
  - name: sick
    IMAGE
    command: [sh, -c, "touch /ok; exec sleep 1000"]
    livenessProbe: {exec: {command: [test, -e, /ok]}, periodSeconds: 1, failureThreshold: 1}
  volumes: [{name: shared, emptyDir: {}}]
---
apiVersion: v1
kind: Pod
metadata: {name: typed}
spec:
  RUN
  shareProcessNamespace: true
  containers:
  - {name: shell, IMAGE, command: [sh], stdin: true, tty: true}
  - {name: echo, IMAGE, command: [cat], stdin: true}
---
apiVersion: v1
kind: Pod
metadata: {name: hungry}
spec:
  RUN
  containers:
  - {name: free, IMAGE, command: [sh, -c, "(busybox head -c 80000000 /dev/zero; echo full >&2; exec sleep 1000) | tail"]}
  - {name: hog, IMAGE, command: [sh, -c, "sleep 2; exec tail /dev/zero"], resources: {limits: {memory: 24Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: crashing}
spec:
  RUN
  containers:
  - {name: good, IMAGE, command: [httpd, -f, -p, "80", -h, /bin]}
  - {name: bad, IMAGE, command: [sh, -c, "exit 3"]}
---
apiVersion: v1
kind: Pod
metadata: {name: stubborn}
spec:
  runtimeClassName: unilith
  terminationGracePeriodSeconds: 3
  containers:
  - {name: deaf, IMAGE, command: [sh, -c, "trap 'echo asked' TERM; echo up; while :; do sleep 0.2; done"]}
  - {name: other, IMAGE, command: [sleep, "1000"]}
"#;

#[test]
#[ignore = "long: needs a built Kubernetes"]
fn containers_of_a_pod_share_its_machine_and_end_and_begin_alone() {
    if !is_there() {
        return;
    }
    let unilith = Unilith::new();
    let cluster = Cluster::up(&unilith);
    cluster.shell("kubectl label nodes --all unilith.dev/runtime=true").ok();
    cluster.shell("kubectl apply -k deploy/kubernetes").ok();
    let whole = |text: &str| {
        text.replace("RUN", "runtimeClassName: unilith\n  terminationGracePeriodSeconds: 1")
            .replace("IMAGE", "image: \"docker.io/library/busybox:stable\"")
            .replace(
                "    image: \"docker.io/library/busybox:stable\"\n",
                "    image: docker.io/library/busybox:stable\n",
            )
    };
    cluster.apply(&whole(SEVERAL));
    let of = |pod: &str, list: &str, name: &str, what: &str| {
        format!("get pod {pod} -o jsonpath='{{.status.{list}[?(@.name==\"{name}\")].{what}}}'")
    };
    let restarts = |pod: &str, name: &str| {
        cluster.shell(&format!("kubectl {}", of(pod, "containerStatuses", name, "restartCount"))).ok().out
    };

    // Init containers, one of which stays, volumes and probes; commands of kubectl for one container of several.
    cluster.shell("kubectl wait --for=condition=Ready pod/full pod/typed --timeout=100s").ok();
    cluster.says("logs full -c native", "prepared");
    cluster.shell("kubectl exec full -c sick -- wget -q -O - http://127.0.0.1/file").ok().says("prepared");
    let copy = unilith.path("copied").display().to_string();
    cluster.shell(&format!("echo there >{copy} && kubectl cp {copy} full:/shared/copied -c native")).ok();
    cluster
        .shell(&format!("kubectl cp full:/shared/copied {copy}.back -c web && cat {copy}.back"))
        .ok()
        .says("there");
    let forward = "kubectl port-forward pod/full 18082:80 >/dev/null & \
        curl -s -m 20 --retry 20 --retry-connrefused http://127.0.0.1:18082/file; code=$?; kill $!; exit $code";
    cluster.shell(forward).ok().says("prepared");
    // A probe that fails restarts its container and no other.
    cluster.shell("kubectl exec full -c sick -- rm /ok").ok();
    cluster.says(&of("full", "containerStatuses", "sick", "restartCount"), "1");
    cluster.shell("kubectl wait --for=condition=Ready pod/full --timeout=100s").ok();
    assert_eq!(restarts("full", "web"), "0");

    // Terminals and pipes that are attached to, and a container that looks into another one's processes.
    cluster
        .shell("(sleep 2; echo 'echo from-$((40+2)); tty'; sleep 2) | timeout 10 script -qec 'kubectl attach -it typed -c shell' /dev/null; true")
        .ok()
        .says("from-42");
    cluster
        .shell("(echo through; sleep 2) | timeout 10 kubectl attach -i typed -c echo; true")
        .ok()
        .says("through");
    cluster.shell("kubectl debug typed --image=docker.io/library/busybox:stable --target=echo --profile=general -c look -- sh -c 'ps; exec sleep 1000'").ok();
    cluster.says("logs typed -c look", "root     cat");

    // Limits of memory: who has one is within it, and who has none has memory all the same.
    cluster.says(&of("hungry", "containerStatuses", "hog", "lastState.terminated.exitCode"), "137");
    cluster.says("logs hungry -c free", "full");
    assert_eq!(restarts("hungry", "free"), "0");
    // One that always ends leaves the other alone.
    cluster.says(&of("crashing", "containerStatuses", "bad", "lastState.terminated.exitCode"), "3");
    let serves = "curl -s -m 20 -o /dev/null -w '%{http_code}' http://$(kubectl get pod crashing -o jsonpath={.status.podIP})/busybox";
    cluster.shell(serves).ok().says("200");
    assert_eq!(restarts("crashing", "good"), "0");

    // A container that does not end when it is asked is given its time.
    cluster.says("logs stubborn -c deaf", "up");
    let log = unilith.path("deaf.log");
    let ended = format!(
        "kubectl logs -f stubborn -c deaf >{} & kubectl delete pod stubborn --timeout=60s; wait",
        log.display()
    );
    cluster.shell(&ended).ok();
    assert!(fs::read_to_string(&log).unwrap_or_default().contains("asked"), "SIGTERM reaches the program");

    // Neither the engine nor the kubelet is needed for what runs.
    let web = restarts("full", "web");
    for name in ["containerd", "kubelet"] {
        finish(&mut script(&["restart", &cluster.folder(), name]), KUBECTL).ok();
    }
    eventually("the kubelet is there again", || {
        cluster.shell("kubectl exec full -c web -- cat /shared/file").out.contains("prepared")
    });
    assert_eq!(restarts("full", "web"), web);
    // The end of a machine is that of all its containers, which begin again in another one.
    let id =
        cluster.shell(&format!("kubectl {}", of("full", "containerStatuses", "web", "containerID"))).ok().out;
    let id = id.trim().trim_start_matches("containerd://").to_string();
    let keeper = machines().into_iter().find(|line| line.contains("--pod") && line.trim().ends_with(&id));
    let keeper = keeper.expect("the container has a process");
    let sandbox = keeper
        .split("--pod ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .expect("it names its sandbox")
        .to_string();
    let sandbox =
        machines().into_iter().find(|line| !line.contains("--pod") && line.trim().ends_with(&sandbox));
    let sandbox = sandbox.expect("the sandbox has a process");
    let number = sandbox.trim().split(' ').next().expect("ps prints numbers").to_string();
    client("pkill", &["-KILL", "-P", &number]).ok();
    cluster.says(&of("full", "containerStatuses", "web", "lastState.terminated.exitCode"), "137");
    cluster.shell("kubectl wait --for=condition=Ready pod/full --timeout=100s").ok();
    cluster.shell("kubectl exec full -c sick -- wget -q -O - http://127.0.0.1/file").ok().says("prepared");

    // Many at once.
    let many = |n: usize| {
        let line = "{name: side, IMAGE, command: [sh, -c, \"until wget -q -O - http://127.0.0.1/busybox >/dev/null; do sleep 0.2; done; \
            echo reached; exec sleep 1000\"]}";
        whole(&format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: many{n}, labels: {{group: many}}}}\nspec:\n  RUN\n  containers:\n\
            \x20 - {{name: web, IMAGE, command: [httpd, -f, -p, \"80\", -h, /bin]}}\n  - {line}\n"
        ))
    };
    cluster.apply(&(0..20).map(many).collect::<String>());
    cluster.shell("kubectl wait --for=condition=Ready pod -l group=many --timeout=110s").ok();
    eventually("all of them answer their neighbours", || {
        cluster
            .shell("kubectl logs -l group=many -c side --max-log-requests=20")
            .out
            .matches("reached")
            .count()
            == 20
    });
    cluster.end();
}

/// Servers as people run them. `IMAGE` stands for Debian's, `DATA` for a directory of the node.
const SERVERS: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: redis}
spec:
  selector: {matchLabels: {app: redis}}
  template:
    metadata: {labels: {app: redis}}
    spec:
      runtimeClassName: unilith
      containers:
      - name: redis
        IMAGE
        command: [redis-server, --bind, 0.0.0.0, --protected-mode, "no", --dir, /data]
        startupProbe: {exec: {command: [redis-cli, ping]}, periodSeconds: 1, failureThreshold: 30}
        readinessProbe: {tcpSocket: {port: 6379}, periodSeconds: 1}
        livenessProbe: {exec: {command: [sh, -c, "redis-cli ping | grep PONG"]}, periodSeconds: 2}
        resources: {limits: {memory: 128Mi, cpu: "1"}, requests: {cpu: 50m, memory: 64Mi}}
        volumeMounts: [{name: data, mountPath: /data}]
      volumes: [{name: data, emptyDir: {}}]
---
apiVersion: v1
kind: Service
metadata: {name: redis}
spec: {type: NodePort, selector: {app: redis}, ports: [{port: 6379, nodePort: 30379}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: nginx}
data:
  site.conf: |
    server { listen 8080; location / { root /www; } location = /healthz { return 200 "ok\n"; } }
  index.html: "page by USER\n"
---
apiVersion: v1
kind: Secret
metadata: {name: login}
stringData: {password: "hunter2", user: admin}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: nginx}
spec:
  replicas: 2
  strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}
  selector: {matchLabels: {app: nginx}}
  template:
    metadata: {labels: {app: nginx}}
    spec:
      runtimeClassName: unilith
      securityContext: {fsGroup: 33}
      initContainers:
      - name: render
        IMAGE
        command: [sh, -c, "sed s/USER/$USER/ /etc/page/index.html >/www/index.html"]
        env: [{name: USER, valueFrom: {secretKeyRef: {name: login, key: user}}}]
        volumeMounts: [{name: www, mountPath: /www}, {name: conf, mountPath: /etc/page}]
      containers:
      - name: nginx
        IMAGE
        command: [nginx, -g, "daemon off;"]
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
        livenessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 2}
        lifecycle: {preStop: {exec: {command: [sh, -c, "sleep 1; nginx -s quit; sleep 1"]}}}
        resources: {limits: {memory: 96Mi, cpu: 500m}, requests: {cpu: 50m, memory: 64Mi}}
        volumeMounts:
        - {name: www, mountPath: /www}
        - {name: conf, mountPath: /etc/nginx/conf.d}
        - {name: login, mountPath: /etc/login, readOnly: true}
      volumes:
      - {name: www, emptyDir: {}}
      - {name: conf, configMap: {name: nginx}}
      - {name: login, secret: {secretName: login, defaultMode: 0400}}
---
apiVersion: v1
kind: Service
metadata: {name: nginx}
spec: {selector: {app: nginx}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: pg}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  hostPath: {path: DATA}
  claimRef: {namespace: default, name: data-pg-0}
---
apiVersion: v1
kind: Service
metadata: {name: pg}
spec: {clusterIP: None, selector: {app: pg}, ports: [{port: 5432}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: pg}
spec:
  serviceName: pg
  selector: {matchLabels: {app: pg}}
  template:
    metadata: {labels: {app: pg}}
    spec:
      runtimeClassName: unilith
      terminationGracePeriodSeconds: 20
      initContainers:
      - name: init
        IMAGE
        command:
        - sh
        - -ec
        - |
          chown postgres /data
          test -e /data/db/PG_VERSION && exit
          su postgres -c '/usr/lib/postgresql/15/bin/initdb -D /data/db --pwfile=/etc/login/password -A scram-sha-256'
          echo 'host all all all scram-sha-256' >>/data/db/pg_hba.conf
        volumeMounts: [{name: data, mountPath: /data}, {name: login, mountPath: /etc/login}]
      containers:
      - name: postgres
        IMAGE
        command: [su, postgres, -c, "exec /usr/lib/postgresql/15/bin/postgres -D /data/db -h '*' -k /tmp"]
        readinessProbe: {exec: {command: [pg_isready, -h, 127.0.0.1]}, periodSeconds: 1}
        volumeMounts: [{name: data, mountPath: /data}]
      volumes: [{name: login, secret: {secretName: login}}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], storageClassName: "", resources: {requests: {storage: 1Gi}}}
"#;

#[test]
#[ignore = "long: needs a built Kubernetes"]
fn servers_are_deployed_updated_moved_away_and_keep_their_data() {
    if !is_there() {
        return;
    }
    let unilith = Unilith::new();
    let cluster = Cluster::up_with(&unilith, "redis-server,nginx-light,postgresql");
    cluster.shell("kubectl label nodes --all unilith.dev/runtime=true").ok();
    cluster.shell("kubectl apply -k deploy/kubernetes").ok();
    let data = unilith.path("pg");
    fs::create_dir(&data).expect("a folder can be made");
    let image = "image: docker.io/library/servers:1\n        imagePullPolicy: IfNotPresent";
    cluster.apply(&SERVERS.replace("IMAGE", image).replace("DATA", &data.display().to_string()));
    let rolled_out = "for what in deployment/redis deployment/nginx statefulset/pg; do
        kubectl rollout status $what --timeout=100s || exit; done";
    cluster.shell(rolled_out).ok();

    // By the Service, and by the port of the node.
    let at = |name: &str| format!("$(kubectl get service {name} -o jsonpath={{.spec.clusterIP}})");
    cluster.shell(&format!("timeout 20 redis-cli -h {} set key value", at("redis"))).ok().says("OK");
    cluster.shell("timeout 20 redis-cli -h 10.250.0.2 -p 30379 get key").ok().says("value");
    let page = format!("curl -s -m 20 http://{}/", at("nginx"));
    cluster.shell(&page).ok().says("page by admin");
    let secret = "kubectl exec deployment/nginx -c nginx -- sh -c 'cat /etc/login/password; stat -Lc \" %a %g\" /etc/login/password'";
    cluster.shell(secret).ok().says("hunter2 440 33");
    let query = |text: &str| {
        let pod = "$(kubectl get pod pg-0 -o jsonpath={.status.podIP})";
        cluster.shell(&format!("PGPASSWORD=hunter2 timeout 20 psql -h {pod} -U postgres -tAc '{text}'"))
    };
    query("create table t as select generate_series(1, 1000) n").ok();

    // A new version, of which no client notices anything.
    let clients = format!(
        "(for i in $(seq 100); do {page} -o /dev/null -w '%{{http_code}}\\n'; sleep 0.1; done | sort | uniq -c) &
        kubectl set env deployment/nginx VERSION=2 >/dev/null &&
        kubectl rollout status deployment/nginx --timeout=100s >/dev/null; code=$?; wait; exit $code"
    );
    assert_eq!(cluster.shell(&clients).ok().out.trim(), "100 200");
    // What is in the volume is there for the next pod of the same name.
    cluster.shell("kubectl delete pod pg-0 --timeout=60s").ok();
    cluster.shell("kubectl rollout status statefulset/pg --timeout=100s").ok();
    query("select count(*) from t").ok().says("1000");
    // The node is emptied, and takes pods again.
    cluster.shell("kubectl drain unilith --ignore-daemonsets --delete-emptydir-data --timeout=100s").ok();
    eventually("no machine is left", || machines().is_empty());
    cluster.shell("kubectl uncordon unilith").ok();
    cluster.shell(rolled_out).ok();
    query("select count(*) from t").ok().says("1000");
    // The Service learns of new pods when they are ready.
    eventually("the page is served again", || cluster.shell(&page).out.contains("page by admin"));

    // Fifty at once.
    let many = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: many}\nspec:\n  replicas: 50\n  selector: {matchLabels: {app: many}}\n\
        \x20 template:\n    metadata: {labels: {app: many}}\n    spec:\n      runtimeClassName: unilith\n      terminationGracePeriodSeconds: 1\n\
        \x20     containers:\n      - name: web\n        image: docker.io/library/busybox:stable\n        command: [httpd, -f, -p, \"80\"]\n\
        \x20       readinessProbe: {tcpSocket: {port: 80}, periodSeconds: 1}\n";
    cluster.apply(many);
    cluster.shell("kubectl rollout status deployment/many --timeout=110s").ok();
    cluster.shell("kubectl delete deployment,statefulset --all --timeout=100s").ok();
    cluster.end();
}
