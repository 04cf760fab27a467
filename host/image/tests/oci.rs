// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OCI layouts and docker archives, made here and gathered through the public interface.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use sha2::{Digest, Sha256};
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};
use unilith_image::{Cache, Catalogue, ErrorKind, Image, ImageError, Quiet, Reference, Request, gather};

fn sha(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

fn tar(files: &[(&str, u32, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, mode, data) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(*mode);
        header.set_size(data.len() as u64);
        builder.append_data(&mut header, name, *data).unwrap();
    }
    builder.into_inner().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// A static program: the test binary of this machine would bring its libraries' names, which the image lacks.
fn program() -> Vec<u8> {
    let mut elf = vec![0; 0x78];
    elf[..8].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0]);
    let mut put = |at: usize, bytes: &[u8]| elf[at..at + bytes.len()].copy_from_slice(bytes);
    put(16, &[2, 0, 62, 0, 1]);
    put(24, &0x400078u64.to_le_bytes());
    put(32, &64u64.to_le_bytes());
    put(52, &[64, 0, 56, 0, 1, 0]);
    put(64, &[1, 0, 0, 0, 5]);
    put(80, &0x400000u64.to_le_bytes());
    put(88, &0x400000u64.to_le_bytes());
    put(96, &0x81u64.to_le_bytes());
    put(104, &0x81u64.to_le_bytes());
    // mov $60,%eax; xor %edi,%edi; syscall
    elf.extend([0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05]);
    elf
}

const CONFIG: &str = r#""config": {
    "User": "web", "ExposedPorts": {"80/tcp": {}, "53/udp": {}}, "Env": ["A=b", "PATH=/opt:/bin"],
    "Entrypoint": ["serve"], "Cmd": ["--all"], "WorkingDir": "/srv", "StopSignal": "SIGQUIT", "Volumes": {"/data": {}},
    "Healthcheck": {"Test": ["CMD-SHELL", "serve --ask"], "Interval": 5000000000, "Timeout": 1, "Retries": 2}
}"#;

/// Two layers; the second takes away what the first has.
fn layers() -> [Vec<u8>; 2] {
    let program = program();
    let first = tar(&[
        ("opt/serve", 0o755, &program),
        ("etc/passwd", 0o644, b"root:x:0:0::/root:\nweb:x:101:102::/srv:\n"),
        ("srv/old/file", 0o644, b"1"),
        ("srv/gone", 0o644, b"1"),
        ("etc/resolv.conf", 0o644, b""),
    ]);
    let second = tar(&[
        ("srv/old/.wh..wh..opq", 0o644, b""),
        ("srv/old/new", 0o644, b"2"),
        ("srv/.wh.gone", 0o644, b""),
    ]);
    [first, second]
}

fn configuration(config: &str, layers: &[Vec<u8>]) -> String {
    let ids: Vec<String> = layers.iter().map(|l| format!("\"sha256:{}\"", sha(l))).collect();
    format!(
        r#"{{"architecture": "amd64", "os": "linux", {config}, "rootfs": {{"type": "layers", "diff_ids": [{}]}}}}"#,
        ids.join(",")
    )
}

/// Writes an OCI layout and returns its blobs' folder.
fn layout(folder: &Path, config: &str, layers: &[Vec<u8>], pack: fn(&[u8]) -> Vec<u8>) -> PathBuf {
    let blobs = folder.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let blob = |bytes: &[u8]| {
        fs::write(blobs.join(sha(bytes)), bytes).unwrap();
        format!(r#"{{"mediaType": "x", "size": {}, "digest": "sha256:{}"}}"#, bytes.len(), sha(bytes))
    };
    let packed: Vec<String> = layers.iter().map(|l| blob(&pack(l))).collect();
    let manifest = format!(
        r#"{{"schemaVersion": 2, "config": {}, "layers": [{}]}}"#,
        blob(configuration(config, layers).as_bytes()),
        packed.join(",")
    );
    let index = format!(r#"{{"schemaVersion": 2, "manifests": [{}]}}"#, blob(manifest.as_bytes()));
    fs::write(folder.join("index.json"), index).unwrap();
    fs::write(folder.join("oci-layout"), r#"{"imageLayoutVersion": "1.0.0"}"#).unwrap();
    blobs
}

fn run(path: &Path, cache: &Path, words: &[&str]) -> Result<Image, ImageError> {
    let catalogue = Catalogue::open("/nonexistent");
    let reference = Reference::parse(path.to_str().unwrap(), &catalogue)?;
    assert!(matches!(reference, Reference::Oci(_)), "{reference:?}");
    let mut request = Request::new(reference, catalogue);
    request.words = words.iter().map(|w| w.to_string()).collect();
    gather(&request, &Cache::new(cache), &Quiet)
}

fn check(image: &Image) {
    let c = &image.config;
    assert_eq!(c.args, ["/opt/serve", "--all"]);
    assert_eq!((c.uid, c.gid, c.cwd.as_str(), c.stop_signal), (101, 102, "/srv", 3));
    assert!(c.env.contains(&("A".into(), "b".into())) && c.env.contains(&("HOME".into(), "/srv".into())));
    assert_eq!(c.ports.iter().map(ToString::to_string).collect::<Vec<_>>(), ["53/udp", "80"]);
    assert_eq!(c.volumes, ["/data"]);
    let health = c.health.as_ref().expect("a health check");
    assert_eq!(health.command, ["/bin/sh", "-c", "serve --ask"]);
    assert_eq!((health.interval, health.timeout, health.retries), (Some(5000), Some(1), Some(2)));
    assert_eq!((health.start_period, health.start_interval), (None, None));
    let root = fs::read(&image.root).unwrap();
    let has = |name: &[u8]| root.windows(name.len()).any(|w| w == name);
    assert!(
        has(b"srv/old/new")
            && !has(b"srv/old/file")
            && !has(b"srv/gone")
            && !has(b"etc/resolv.conf")
            && !has(b".wh.")
    );
}

#[test]
fn a_layout_is_gathered_whatever_packs_its_layers() {
    for pack in [<[u8]>::to_vec as fn(&[u8]) -> Vec<u8>, gzip, zstd] {
        let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        layout(folder.path(), CONFIG, &layers(), pack);
        let image = run(folder.path(), cache.path(), &[]).unwrap();
        check(&image);
        let other = run(folder.path(), cache.path(), &["-x"]).unwrap();
        assert_eq!(other.config.args, ["/opt/serve", "-x"]);
        assert_eq!(other.digest, image.digest);
    }
}

#[test]
fn a_tar_file_of_a_layout_and_a_docker_archive_give_the_same() {
    let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let inner = folder.path().join("layout");
    layout(&inner, CONFIG, &layers(), gzip);
    let mut builder = tar::Builder::new(Vec::new());
    builder.append_dir_all(".", &inner).unwrap();
    let archive = folder.path().join("image.tar.gz");
    fs::write(&archive, gzip(&builder.into_inner().unwrap())).unwrap();
    let first = run(&archive, cache.path(), &[]).unwrap();
    check(&first);
    assert_eq!(first.name, "image");

    let [one, two] = layers();
    let config = configuration(CONFIG, &layers());
    let manifest =
        br#"[{"Config": "abc.json", "RepoTags": ["x:latest"], "Layers": ["1/layer.tar", "2/layer.tar"]}]"#;
    let docker = tar(&[
        ("manifest.json", 0o644, manifest),
        ("abc.json", 0o644, config.as_bytes()),
        ("1/layer.tar", 0o644, &one),
        ("2/layer.tar", 0o644, &two),
    ]);
    let archive = folder.path().join("docker.tar");
    fs::write(&archive, docker).unwrap();
    let second = run(&archive, cache.path(), &[]).unwrap();
    check(&second);
    assert_eq!(first.digest, second.digest);
}

#[test]
fn damage_is_named() {
    let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let blobs = layout(folder.path(), CONFIG, &layers(), gzip);
    let layer = blobs.join(sha(&gzip(&layers()[0])));
    let whole = fs::read(&layer).unwrap();
    let mut changed = whole.clone();
    changed[20] ^= 1;
    for (bytes, word) in [(&changed[..], "digest"), (&whole[..50], "digest")] {
        fs::write(&layer, bytes).unwrap();
        let error = run(folder.path(), cache.path(), &[]).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Corrupt);
        assert!(error.message.contains(word), "{error}");
    }
    fs::remove_file(&layer).unwrap();
    let error = run(folder.path(), cache.path(), &[]).unwrap_err();
    assert!(error.message.contains("missing"), "{error}");
    let roots = cache.path().join("roots");
    assert!(!roots.exists() || fs::read_dir(roots).unwrap().count() == 0, "something was left behind");
}

#[test]
fn a_layer_of_other_content_than_the_configuration_says_is_refused() {
    let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let [one, two] = layers();
    layout(folder.path(), CONFIG, &[one.clone(), two], gzip);
    // The same blobs in the other order: every blob's own digest is right.
    let index = fs::read_to_string(folder.path().join("index.json")).unwrap();
    let start = index.find("sha256:").unwrap() + 7;
    let path = folder.path().join("blobs/sha256").join(&index[start..start + 64]);
    let manifest: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let mut swapped = manifest.clone();
    swapped["layers"][0] = manifest["layers"][1].clone();
    swapped["layers"][1] = manifest["layers"][0].clone();
    let text = swapped.to_string();
    fs::write(folder.path().join("blobs/sha256").join(sha(text.as_bytes())), &text).unwrap();
    fs::write(
        folder.path().join("index.json"),
        index.replace(&index[start..start + 64], &sha(text.as_bytes())),
    )
    .unwrap();
    let error = run(folder.path(), cache.path(), &[]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
}

#[test]
fn images_that_cannot_run_say_why() {
    let cache = tempfile::tempdir().unwrap();
    for (config, words, part) in [
        (r#""config": {}"#, &[][..], "neither entrypoint nor command"),
        (r#""config": {"Cmd": ["nothing"]}"#, &[], "no program `nothing`"),
        (
            r#""config": {"Cmd": ["/opt/serve"], "User": "nobody-here"}"#,
            &[],
            "no user or group `nobody-here`",
        ),
        (r#""config": {"Cmd": ["/opt/serve"], "WorkingDir": "x"}"#, &[], "not an absolute path"),
        (r#""config": {"Cmd": ["/etc/passwd"]}"#, &[], "no program"),
        (r#""config": 7"#, &[], "damaged image"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        layout(folder.path(), config, &layers(), gzip);
        let error = run(folder.path(), cache.path(), words).unwrap_err();
        assert!(error.message.contains(part) && !error.message.contains('\n'), "{error}");
    }
}

#[test]
fn an_image_for_another_machine_is_refused() {
    let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    layout(folder.path(), CONFIG, &layers(), gzip);
    let index = fs::read_to_string(folder.path().join("index.json")).unwrap();
    let other =
        index.replace(r#""mediaType": "x""#, r#""platform": {"os": "linux", "architecture": "arm64"}"#);
    fs::write(folder.path().join("index.json"), other).unwrap();
    let error = run(folder.path(), cache.path(), &[]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotRunnable);
    assert!(error.message.contains("linux/arm64"), "{error}");
}

#[test]
fn digests_cannot_be_paths() {
    let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    layout(folder.path(), CONFIG, &layers(), gzip);
    let index = r#"{"manifests": [{"digest": "sha256:../../../../etc/passwd"}]}"#;
    fs::write(folder.path().join("index.json"), index).unwrap();
    let error = run(folder.path(), cache.path(), &[]).unwrap_err();
    assert!(error.message.contains("no sha256 digest"), "{error}");
}

#[test]
fn an_archive_that_unpacks_without_end_is_stopped() {
    let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // A header that promises eight gigabytes.
    let mut header = tar::Header::new_gnu();
    header.set_path("big").unwrap();
    header.set_mode(0o644);
    header.set_size(8 << 30);
    header.set_cksum();
    let mut bomb = header.as_bytes().to_vec();
    bomb.extend([0; 4096]);
    layout(folder.path(), CONFIG, &[bomb], gzip);
    let error = run(folder.path(), cache.path(), &[]).unwrap_err();
    assert!(error.message.contains("too much"), "{error}");
}
