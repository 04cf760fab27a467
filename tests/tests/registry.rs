// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Images of registries: pulled, run, listed, removed, by the command as a user types it, from a registry of the tests' own.

use serde_json::{Value, json};
use std::{
    fs,
    io::Write,
    os::unix::fs::{PermissionsExt, symlink},
    path::PathBuf,
    process::Stdio,
};
use unilith_tests::{
    BUILD_KERNEL, Ran, Unilith, finish,
    page::commands,
    registry::{Auth, Entry, PASSWORD, Registry, Trick, USER, digest, gzip, layer, zstd},
    root, tested_machine,
};

/// Bytes as they are.
fn whole(bytes: &[u8]) -> Vec<u8> {
    bytes.to_vec()
}

/// The command with a cache and files of credentials of its own, and a registry that does what tests want.
struct Shop {
    unilith: Unilith,
    registry: Registry,
}

impl Shop {
    fn open() -> Shop {
        let mut unilith = Unilith::new();
        for (variable, folder) in
            [("XDG_CONFIG_HOME", "config"), ("XDG_RUNTIME_DIR", "run"), ("DOCKER_CONFIG", "docker")]
        {
            let folder = unilith.path(folder);
            unilith.set(variable, folder);
        }
        let settings = unilith.path("registries.conf");
        fs::write(&settings, "").expect("the scratch directory can be written");
        unilith.set("CONTAINERS_REGISTRIES_CONF", settings);
        unilith.set("UNILITH_REGISTRY_TIMEOUT", "2");
        Shop { unilith, registry: Registry::start() }
    }

    /// With a cache of its own as well: nothing that other tests pulled is there. Kernels are the user's.
    fn empty() -> Shop {
        let mut shop = Shop::open();
        let kernels = shop.unilith.kernels();
        let cache = shop.unilith.path("cache");
        fs::create_dir_all(cache.join("unilith")).expect("the scratch directory can be written");
        symlink(kernels, cache.join("unilith/kernels")).expect("a link");
        shop.unilith.set("XDG_CACHE_HOME", cache);
        shop
    }

    fn name(&self, rest: &str) -> String {
        self.registry.name(rest)
    }

    fn pull(&self, rest: &str) -> Ran {
        self.unilith.run(&["pull", &self.name(rest)])
    }

    fn run(&self, words: &[&str]) -> Ran {
        self.unilith.program(words)
    }

    /// The files of the store's blobs.
    fn blobs(&self) -> Vec<PathBuf> {
        let folder = self.unilith.path("cache/unilith/oci/blobs/sha256");
        fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect()
    }
}

impl Drop for Shop {
    /// The cache may be the user's: what this test pulled goes.
    fn drop(&mut self) {
        let listed = self.unilith.run(&["images", "--json"]);
        let rows: Vec<Value> = serde_json::from_str(&listed.out).unwrap_or_default();
        let names = rows.iter().filter_map(|row| row["repository"].as_str());
        for name in names.filter(|name| name.starts_with(&self.registry.host)) {
            self.unilith.run(&["rmi", "-f", name]);
        }
    }
}

fn busybox() -> Vec<u8> {
    fs::read("/bin/busybox").expect("busybox-static is installed")
}

/// Two layers, the second of which takes away what the first has.
fn layers() -> [Vec<u8>; 2] {
    let busybox = busybox();
    let first = layer(&[
        Entry::File("bin/busybox", 0o755, &busybox),
        Entry::Link("bin/sh", "busybox"),
        Entry::File("srv/gone", 0o644, b"1"),
        Entry::File("srv/old/gone", 0o644, b"1"),
        Entry::File("etc/passwd", 0o644, b"root:x:0:0::/root:/bin/sh\nweb:x:101:102::/srv:/bin/sh\n"),
    ]);
    let second = layer(&[
        Entry::File("srv/.wh.gone", 0o644, b""),
        Entry::File("srv/old/.wh..wh..opq", 0o644, b""),
        Entry::File("srv/old/kept", 0o644, b"2"),
    ]);
    [first, second]
}

const SCRIPT: &str = "echo $GREETING from $(id -u) in $PWD: $(ls /srv /srv/old | tr '\\n' ' ')$1";

fn config() -> Value {
    json!({
        "Env": ["GREETING=hello", "PATH=/bin"], "Entrypoint": ["/bin/sh", "-c", SCRIPT, "sh"], "Cmd": ["by default"],
        "User": "web", "WorkingDir": "/srv"
    })
}

#[test]
fn an_image_is_pulled_once_and_run_as_its_configuration_says() {
    let shop = Shop::open();
    let digest = shop.registry.image("team/tool", "7", &layers(), gzip, config());
    let name = shop.name("team/tool:7");
    shop.run(&[&name]).ok().says("hello from 101 in /srv: /srv: old /srv/old: kept by default");
    assert!(shop.registry.requests().iter().any(|r| r.ends_with("/v2/team/tool/manifests/7")));
    shop.run(&[&name, "and words"]).ok().says("kept and words");
    assert_eq!(shop.registry.requests(), [""; 0], "nothing is asked for again");
    // By digest, under another name: the manifest is fetched, and no blob is.
    shop.pull(&format!("team/tool@{digest}")).ok().says(&digest).complains("0B of");
    assert!(!shop.registry.requests().iter().any(|r| r.contains("/blobs/")));
}

#[test]
fn a_program_has_the_capabilities_that_its_file_has_in_the_image() {
    const CAP_NET_BIND_SERVICE: u32 = 1 << 10;
    let shop = Shop::open();
    let busybox = busybox();
    let program = layer(&[Entry::Capable("able/busybox", &busybox, CAP_NET_BIND_SERVICE)]);
    let [first, _] = layers();
    let config = json!({ "Env": ["PATH=/bin"], "Entrypoint": ["/able/busybox", "grep", "CapEff", "/proc/self/status"], "User": "web" });
    shop.registry.image("team/able", "1", &[first, program], gzip, config);
    let name = shop.name("team/able:1");
    shop.run(&[&name]).ok().says("CapEff:\t0000000000000400");
    shop.run(&["--security-opt", "no-new-privileges", &name]).ok().says("CapEff:\t0000000000000000");
}

#[test]
fn volumes_that_an_image_declares_begin_with_its_files_and_go_with_the_machine() {
    let mut shop = Shop::open();
    let data = shop.unilith.path("data");
    shop.unilith.set("XDG_DATA_HOME", data);
    let content =
        layer(&[Entry::File("data/first", 0o640, b"of the image\n"), Entry::Link("data/link", "first")]);
    let [first, second] = layers();
    let config = json!({
        "Env": ["PATH=/bin"], "Entrypoint": ["/bin/sh", "-c"], "Volumes": {"/data": {}, "/new/place/": {}}
    });
    shop.registry.image("team/keeps", "1", &[first, second, content], gzip, config);
    let name = shop.name("team/keeps:1");
    let volumes = || shop.unilith.run(&["volume", "ls", "-q"]).ok().out.lines().count();
    let look = "cat /data/link; stat -c %a /data/first; echo more > /data/new; echo x > /new/place/y; grep -c -E ' /(data|new/place) ' /proc/mounts";
    shop.run(&[&name, look]).ok().says("of the image\n640\n2\n");
    assert_eq!(volumes(), 0, "--rm removes them");

    // `program` says --rm; here the machine stays.
    let machine = tested_machine();
    let kept = |label: &str, flags: &[&str], script: &str| {
        let words = [&["run", "--machine", &machine, "--name", label], flags, &[&name, script]].concat();
        shop.unilith.run(&words).ok()
    };
    kept("one", &[], "echo kept > /data/new");
    assert_eq!(volumes(), 2);
    let machine_now = shop.unilith.inspect("one");
    let mounts = machine_now["volumes"].as_array().expect("the machine's volumes");
    let host = mounts.iter().find(|m| m["guest"] == "/data").expect("a volume for /data")["host"].as_str();
    let host = PathBuf::from(host.expect("a path"));
    assert_eq!(fs::read_to_string(host.join("new")).expect("the program's file"), "kept\n");
    shop.unilith.run(&["rm", "one"]).ok();
    assert_eq!(volumes(), 2, "as with docker rm keeps them");
    shop.unilith.run(&["volume", "create", "named"]).ok();
    shop.unilith.run(&["volume", "prune"]).ok();
    assert_eq!(shop.unilith.run(&["volume", "ls", "-q"]).ok().out, "named\n");

    // What the user gives stands in their place, and rm -v leaves it alone.
    let two =
        kept("two", &["-v", "named:/data", "--tmpfs", "/new/place"], "ls /data; echo mine > /data/mine");
    assert!(!two.out.contains("first"), "{two}");
    kept("three", &["-v", "named:/data"], "cat /data/mine").says("mine");
    assert_eq!(volumes(), 2, "one is without a name");
    shop.unilith.run(&["rm", "-v", "two", "three"]).ok();
    assert_eq!(shop.unilith.run(&["volume", "ls", "-q"]).ok().out, "named\n");
}

#[test]
fn what_is_no_name_and_what_is_not_there_is_said_in_a_line() {
    let shop = Shop::empty();
    for (name, part) in [
        ("a b:1", "no name of an image"),
        ("Redis:7", "small letters"),
        ("redis@sha256:12", "no name of an image"),
        ("redis@sha512:12", "no name of an image"),
    ] {
        shop.unilith.run(&["pull", name]).fails_with(&[part]);
    }
    for (name, save) in [
        ("podman:redis", "podman save --format oci-archive -o image.tar redis"),
        ("docker:redis:7", "docker save -o image.tar redis:7"),
        ("containerd:redis:7", "ctr images export image.tar redis:7"),
    ] {
        shop.run(&[name]).fails_with(&[save, "unilith run oci:image.tar"]);
        shop.unilith.run(&["pull", name]).fails_with(&[save]);
    }
    shop.pull("nobody/nothing").fails_with(&["has no image", "nobody/nothing"]);
    let name = shop.name("nobody/nothing");
    shop.run(&["--pull", "never", &name]).fails_with(&["not on this computer", "unilith pull"]);
    shop.run(&["--offline", &name]).fails_with(&["not on this computer"]);
    shop.unilith.run(&["pull", "127.0.0.1:1/x"]).fails_with(&["127.0.0.1:1"]);
    shop.unilith.run(&["run", "--pull", "sometimes", &name]).code(2);
}

#[test]
fn a_registry_that_lies_stalls_or_sends_half_is_named_and_nothing_is_kept() {
    let shop = Shop::empty();
    let [first, second] = layers();
    let manifest = shop.registry.image("x", "1", &[first.clone(), second], gzip, config());
    let layer = digest(&gzip(&first));
    let blob = format!("/blobs/{layer}");
    let cases: [(&str, Trick, &[&str]); 9] = [
        (&blob, Trick::Lie, &["digest", &layer, "layer"]),
        (&blob, Trick::Stall, &["stalled", "2 s"]),
        (&blob, Trick::Half(99), &["layer", &layer]),
        (&blob, Trick::Endless, &["more than", "manifest says"]),
        (&blob, Trick::Status(404, 99), &["has no layer"]),
        ("/manifests/1", Trick::Lie, &["digest", &manifest]),
        ("/manifests/1", Trick::Stall, &["stalled"]),
        ("/manifests/1", Trick::Endless, &["too long"]),
        ("/v2/", Trick::Status(503, 99), &["503"]),
    ];
    for (path, trick, parts) in cases {
        eprintln!("{path}: {trick:?}");
        shop.registry.honest();
        shop.registry.trick(path, trick);
        shop.pull("x:1").fails_with(parts);
        let layers = shop.blobs().iter().filter(|p| p.to_string_lossy().contains(&layer[7..])).count();
        assert_eq!(layers, 0);
        assert!(!shop.blobs().iter().any(|p| p.to_string_lossy().contains(".new.")), "{:?}", shop.blobs());
        shop.run(&["--pull", "never", &shop.name("x:1")]).fails_with(&["not on this computer"]);
    }
    // What breaks twice is gone on with where it broke; what is elsewhere is fetched there.
    shop.registry.honest();
    shop.registry.trick(&blob, Trick::Half(2));
    shop.pull("x:1").ok();
    let other = Registry::start();
    other.blob(&gzip(&first));
    let there = Shop::empty();
    there.registry.image("x", "1", &layers(), gzip, config());
    there.registry.trick(&blob, Trick::Redirect(format!("http://{}/v2/y{blob}", other.host)));
    there.registry.trick("/v2/", Trick::Status(503, 1));
    there.pull("x:1").ok();
    assert_eq!(other.requests(), [format!("GET /v2/y{blob}")]);
}

#[test]
fn of_an_index_the_image_for_this_computer_is_taken_whatever_packs_its_layers() {
    let shop = Shop::open();
    let other = shop.registry.manifest_of(&[layer(&[Entry::Directory("x")])], gzip, json!({}), "arm64");
    for (number, pack) in [whole as fn(&[u8]) -> Vec<u8>, gzip, zstd].into_iter().enumerate() {
        let tag = format!("v{number}");
        let ours = shop.registry.manifest_of(&layers(), pack, config(), "amd64");
        shop.registry.index("multi", &tag, &[("arm64", other.clone()), ("amd64", ours)]);
        let name = shop.name(&format!("multi:{tag}"));
        shop.run(&[&name]).ok().says("hello from 101 in /srv: /srv: old /srv/old: kept by default");
    }
    shop.registry.index("multi", "arm", &[("arm64", other.clone())]);
    shop.pull("multi:arm").fails_with(&["no image for linux/amd64", "linux/arm64"]);
    shop.registry.manifest("multi", "alone", "application/vnd.oci.image.manifest.v1+json", &other);
    shop.pull("multi:alone").fails_with(&["linux/arm64", "only linux/amd64"]);
}

#[test]
fn what_is_no_image_or_an_old_one_is_refused_by_name() {
    let shop = Shop::empty();
    let image = shop.registry.manifest_of(&layers(), gzip, config(), "amd64");
    let changed = |pointer: &str, value: Value| {
        let mut other = image.clone();
        *other.pointer_mut(pointer).expect("it is there") = value;
        other
    };
    let cases: [(Value, &str); 8] = [
        (json!({"schemaVersion": 1, "name": "x", "fsLayers": []}), "schema 1"),
        (json!([]), "damaged manifest"),
        (json!({"schemaVersion": 2, "mediaType": "application/x-pony"}), "application/x-pony"),
        (changed("/config/mediaType", json!("application/vnd.cncf.helm.config.v1+json")), "artifact"),
        (
            changed(
                "/layers/0/mediaType",
                json!("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"),
            ),
            "not in the registry",
        ),
        (changed("/layers/0/digest", json!("sha256:../../../../etc/passwd")), "damaged manifest"),
        (changed("/layers/0/size", json!(u64::MAX >> 1)), "limit"),
        (changed("/layers/1/size", json!(3)), "more than the 3 bytes"),
    ];
    for (number, (manifest, part)) in cases.iter().enumerate() {
        let tag = format!("t{number}");
        shop.registry.manifest("odd", &tag, "application/json", manifest);
        shop.pull(&format!("odd:{tag}")).fails_with(&[part]);
    }
}

#[test]
fn hostile_layers_stay_inside_and_bombs_are_stopped() {
    let shop = Shop::open();
    let outside = shop.unilith.path("outside");
    let target = outside.to_str().expect("text");
    let busybox = busybox();
    let hostile = layer(&[
        Entry::File("bin/busybox", 0o4755, &busybox),
        Entry::Link("bin/sh", "busybox"),
        Entry::File("../../../../escaped", 0o644, b"1"),
        Entry::Link("out", "/../../../.."),
        Entry::File("out/through-a-link", 0o644, b"1"),
        Entry::Link("absolute", target),
        Entry::File("absolute/file", 0o644, b"1"),
        Entry::HardLink("hard", "../../escaped"),
        Entry::Device("dev/kmem"),
        Entry::File(".wh...", 0o644, b""),
    ]);
    let line = "cat /escaped /through-a-link /hard; ls -l /dev/kmem 2>/dev/null; echo; cd /bin && stat -c %a busybox";
    shop.registry.image(
        "bad",
        "1",
        &[hostile],
        gzip,
        json!({"Cmd": ["/bin/sh", "-c", line], "Env": ["PATH=/bin"]}),
    );
    let ran = shop.run(&[&shop.name("bad:1")]).ok();
    assert_eq!(ran.out, "111\n4755\n", "{ran}");
    assert!(!outside.exists(), "a layer wrote outside of its image");

    // Eight gigabytes in some bytes.
    let mut header = tar::Header::new_gnu();
    header.set_path("big").expect("a short name");
    header.set_mode(0o644);
    header.set_size(8 << 30);
    header.set_cksum();
    let mut bomb = header.as_bytes().to_vec();
    bomb.extend([0; 4096]);
    let dangling = layer(&[Entry::HardLink("a", "nothing")]);
    let long = layer(&[Entry::File(&"d/".repeat(45), 0o644, b""), Entry::File("d", 0o644, b"")]);
    for (tag, bytes, part) in [("bomb", bomb, "too much"), ("link", dangling, "hard link")] {
        shop.registry.image("bad", tag, &[bytes], gzip, json!({"Cmd": ["/x"]}));
        shop.run(&[&shop.name(&format!("bad:{tag}"))]).fails_with(&[part]);
    }
    shop.registry.image("bad", "long", &[long], gzip, json!({"Cmd": ["/d"]}));
    shop.run(&[&shop.name("bad:long")]).code(125);
    // The configuration promises another layer than the manifest has.
    let mut swapped = shop.registry.manifest_of(&layers(), gzip, config(), "amd64");
    swapped["layers"].as_array_mut().expect("layers").reverse();
    shop.registry.manifest("bad", "swapped", "application/vnd.oci.image.manifest.v1+json", &swapped);
    shop.run(&[&shop.name("bad:swapped")]).fails_with(&["digest", "expected"]);
}

impl Shop {
    fn login(&self, password: &str) -> Ran {
        let mut command =
            self.unilith.command(&["login", "-u", USER, "--password-stdin", &self.registry.host]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        child.stdin.take().expect("a pipe").write_all(password.as_bytes()).expect("it reads");
        let done = child.wait_with_output().expect("it ends");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ran {
            code: done.status.code(),
            out: text(&done.stdout),
            err: text(&done.stderr),
            took: Default::default(),
        }
    }
}

#[test]
fn a_registry_gets_the_password_that_the_user_gave_and_a_wrong_one_is_not_kept() {
    let shop = Shop::empty();
    shop.registry.image("private", "1", &layers(), gzip, config());
    let (file, docker) = (shop.unilith.path("config/unilith/auth.json"), shop.unilith.path("docker"));
    for auth in [Auth::Basic, Auth::Bearer] {
        shop.registry.protect(Some(auth));
        shop.pull("private:1").fails_with(&["unilith login"]);
        shop.login("wrong").fails_with(&["refuses the user name and password"]);
        assert!(!file.exists());
        shop.login(PASSWORD).ok().says("Login Succeeded");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        shop.pull("private:1").ok();
        shop.unilith.run(&["logout", &shop.registry.host]).ok();
        shop.unilith.run(&["logout", &shop.registry.host]).fails_with(&["not logged in"]);
        fs::remove_file(&file).unwrap();
    }
    shop.pull("private:1").fails_with(&["unilith login"]);
    // What docker keeps is used: `me:secret:word`.
    fs::create_dir(&docker).unwrap();
    let host = &shop.registry.host;
    let kept = format!(r#"{{"auths": {{"{host}": {{"auth": "bWU6c2VjcmV0OndvcmQ="}}}}}}"#);
    fs::write(docker.join("config.json"), kept).unwrap();
    shop.pull("private:1").ok();
    let helper = format!(r#"{{"credHelpers": {{"{host}": "surely-not-here"}}}}"#);
    fs::write(docker.join("config.json"), helper).unwrap();
    shop.pull("private:1").fails_with(&["docker-credential-surely-not-here"]);
    fs::write(docker.join("config.json"), r#"{"auths": {"x": {"auth": "c2VjcmV0"#).unwrap();
    let ran = shop.pull("private:1").fails_with(&["config.json", "damaged"]);
    assert!(!ran.err.contains("c2VjcmV0"), "{ran}");
}

#[test]
fn images_are_listed_share_their_layers_and_go_when_no_machine_has_them() {
    let shop = Shop::open();
    // Its own content: the cache is shared with other tests.
    let mine = layer(&[Entry::File("mine", 0o644, shop.registry.host.as_bytes())]);
    let theirs = layer(&[Entry::File("theirs", 0o644, shop.registry.host.as_bytes())]);
    let [first, _] = layers();
    shop.registry.image("a", "1", &[first.clone(), mine.clone()], gzip, config());
    shop.registry.image("b", "1", &[first, mine, theirs], gzip, config());
    let (a, b) = (shop.name("a:1"), shop.name("b:1"));
    shop.unilith.run(&["pull", "-q", &a]).ok();
    shop.registry.requests();
    shop.unilith.run(&["pull", &b]).ok();
    let blobs = shop.registry.requests().iter().filter(|r| r.contains("/blobs/")).count();
    assert_eq!(blobs, 2, "the configuration and one layer");
    shop.run(&["--name", "gone", &a]).ok();
    let keep = ["run", "--machine", &unilith_tests::tested_machine(), "--name", "keeper", &b];
    shop.unilith.run(&keep).ok();
    let listed = shop.unilith.run(&["images"]).ok();
    assert!(listed.out.contains(&a) && listed.out.contains(&b) && listed.out.contains("keeper"), "{listed}");
    let found: Value = serde_json::from_str(&shop.unilith.run(&["image", "inspect", &b]).ok().out).unwrap();
    assert_eq!((&found[0]["RepoTags"][0], &found[0]["Config"]["WorkingDir"]), (&json!(b), &json!("/srv")));
    shop.unilith.run(&["system", "df"]).ok().says("registry images");

    shop.unilith.run(&["rmi", &b]).fails_with(&["keeper", "unilith rm keeper"]);
    shop.unilith.run(&["rmi", &a]).ok().says("Untagged").says("Deleted");
    shop.unilith.run(&["rmi", &a]).fails_with(&["no such image"]);
    shop.unilith.run(&["start", "keeper"]).ok();
    shop.unilith.run(&["rm", "-f", "keeper"]).ok();
    let id = found[0]["Id"].as_str().unwrap().trim_start_matches("sha256:")[..12].to_string();
    shop.unilith.run(&["rmi", &id]).ok().says("Deleted");
    let listed = shop.unilith.run(&["images"]).ok();
    assert!(!listed.out.contains(&shop.registry.host), "{listed}");
}

#[test]
fn a_mirror_is_asked_first_and_the_registry_where_it_has_nothing() {
    let shop = Shop::empty();
    let mirror = Registry::start();
    shop.registry.image("team/tool", "1", &layers(), gzip, config());
    let text = format!(
        "[[registry]]\nprefix = \"hub.test\"\nlocation = \"{}\"\n[[registry.mirror]]\nlocation = \"{}/copy\"\n",
        shop.registry.host, mirror.host
    );
    fs::write(shop.unilith.path("registries.conf"), text).unwrap();
    shop.unilith.run(&["pull", "hub.test/team/tool:1"]).ok().complains("mirror").complains("has no image");
    mirror.image("copy/team/tool", "2", &layers(), gzip, config());
    shop.registry.requests();
    shop.unilith.run(&["pull", "hub.test/team/tool:2"]).ok().says("hub.test/team/tool:2");
    assert_eq!(shop.registry.requests(), [""; 0]);
    fs::write(shop.unilith.path("registries.conf"), "[[registry]\n").unwrap();
    shop.unilith.run(&["pull", "hub.test/team/tool:2"]).fails_with(&["registries.conf"]);
}

#[test]
fn the_page_about_registries_works_as_printed() {
    let mut shop = Shop::open();
    shop.registry.image("team/tool", "7", &layers(), gzip, config());
    shop.registry.protect(Some(Auth::Basic));
    shop.login(PASSWORD).ok();
    shop.unilith.set("PASSWORD", PASSWORD);
    symlink(root().join("unilith"), shop.unilith.path("unilith")).unwrap();
    let page = fs::read_to_string(root().join("docs/how-to/registry.md")).unwrap();
    let mut said = String::new();
    // The page's registry is one on this computer, wherever it listens.
    for line in commands(&page.replace("localhost:5000", &shop.registry.host)) {
        let ran = finish(&mut shop.unilith.shell(&line), BUILD_KERNEL);
        assert!(ran.code == Some(0), "{line}: {ran}");
        said.push_str(&ran.out);
    }
    for part in ["hello from 101 in /srv", "team/tool", "\"Entrypoint\"", "Login Succeeded"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}
