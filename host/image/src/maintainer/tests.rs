// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scripts as Debian's packages have them, and scripts as nobody should write them.

use super::*;
use crate::tree::{Kind, Meta};
use std::path::Path;

fn tree() -> Tree {
    let mut tree = Tree::new();
    crate::etc::merged_usr(&mut tree).unwrap();
    crate::etc::complete(&mut tree, true).unwrap();
    tree
}

fn put(tree: &mut Tree, path: &str, text: &str) {
    tree.put_bytes(Path::new(path), text.as_bytes().to_vec(), Meta::PROGRAM).unwrap();
}

fn meta(tree: &Tree, path: &str) -> (u32, u32, u32) {
    let (_, id) = tree.walk(Path::new(path), true).unwrap_or_else(|| panic!("{path} is not there"));
    let meta = tree.node(id).meta;
    (meta.mode, meta.uid, meta.gid)
}

fn postinst(tree: &mut Tree, text: &str) -> Vec<String> {
    let scripts = Scripts { package: "x".into(), postinst: Some(text.into()), ..Scripts::default() };
    configure(tree, &[scripts]).told
}

fn link(tree: &Tree, path: &str) -> String {
    let (_, id) = tree.walk(Path::new(path), false).unwrap_or_else(|| panic!("{path} is not there"));
    match &tree.node(id).kind {
        Kind::Link(target) => target.to_string_lossy().into_owned(),
        other => panic!("{path} is {other:?}"),
    }
}

#[test]
fn a_server_gets_its_user_and_its_directories() {
    let mut tree = tree();
    let told = postinst(
        &mut tree,
        "#!/bin/sh\nset -e\nUSER=mosquitto\nsetup() {\n\tif ! getent group $USER >/dev/null; then\n\t\taddgroup --quiet --system $USER\n\tfi\n\
         \tif ! getent passwd $USER >/dev/null; then\n\t\tadduser --quiet --system --no-create-home --ingroup $USER --home /var/lib/$USER $USER\n\tfi\n}\n\
         case \"$1\" in\nconfigure)\n setup\n install -d -o $USER -g adm -m 2750 /var/log/$USER\n mkdir -p /var/lib/$USER\n chown $USER: /var/lib/$USER\n\
         adduser --quiet $USER tty\n;;\n*) exit 1;;\nesac\ninvoke-rc.d $USER start || exit 1\ntouch /etc/reached\n",
    );
    assert_eq!(told, Vec::<String>::new());
    assert_eq!(meta(&tree, "/var/log/mosquitto"), (0o2750, 101, 4));
    assert_eq!(meta(&tree, "/var/lib/mosquitto"), (0o755, 101, 101));
    assert!(
        tree.text("/etc/passwd")
            .unwrap()
            .contains("mosquitto:x:101:101::/var/lib/mosquitto:/usr/sbin/nologin\n")
    );
    assert!(tree.text("/etc/group").unwrap().lines().any(|l| l == "tty:x:5:mosquitto"));
    assert!(tree.text("/etc/shadow").unwrap().contains("mosquitto:*:"));
    assert!(tree.walk(Path::new("/etc/reached"), false).is_some());
}

#[test]
fn a_local_variable_of_a_function_hides_the_callers_until_it_returns() {
    let mut tree = tree();
    put(&mut tree, "/usr/share/x/x.conf", "installed");
    // The shape of samba-common's.
    postinst(
        &mut tree,
        "#!/bin/sh\nNEW=/run/x.conf\nCONFIG=/etc/x.conf\nconfigure() {\n local CONFIG unset\n CONFIG=\"$1\"\n unset=here\n\
         inner() { local CONFIG=/etc/inner; echo $CONFIG > /etc/inside; }\n inner\n [ -e \"$CONFIG\" ] && echo $CONFIG > /etc/seen\n}\n\
         cp /usr/share/x/x.conf $NEW\nconfigure $NEW\nucf --three-way $NEW $CONFIG\necho ${unset-no} > /etc/after\n",
    );
    assert_eq!(tree.text("/etc/x.conf").unwrap(), "installed");
    assert_eq!(tree.text("/etc/inside").unwrap(), "/etc/inner\n");
    assert_eq!(tree.text("/etc/seen").unwrap(), "/run/x.conf\n");
    assert_eq!(tree.text("/etc/after").unwrap(), "no\n");
}

#[test]
fn alternatives_with_variables_are_understood_and_the_highest_priority_wins() {
    let mut tree = tree();
    for name in ["java-old", "java-new", "convert-im6"] {
        put(&mut tree, &format!("/usr/lib/x/{name}"), "");
    }
    put(&mut tree, "/usr/lib/x/java-new.1", "");
    postinst(
        &mut tree,
        "#!/bin/sh\nbase=/usr/lib/x\npriority=1711\nif [ -z \"$2\" ]; then go=y; fi\nif [ \"$go\" = y ]; then\n\
         if [ \"$DPKG_MAINTSCRIPT_ARCH\" != $(dpkg --print-architecture) ]; then priority=$(expr $priority - 1); fi\n\
         for i in java; do\n  if [ -e $base/$i-new.1 ]; then slave=\"--slave \\\n /usr/share/x/$i.1 $i.1 $base/$i-new.1\"; fi\n\
         update-alternatives --install /usr/bin/$i $i $base/$i-new $priority $slave\n\
         update-alternatives --install /usr/bin/$i $i $base/$i-old 100\ndone\nfi\n\
         for prog in convert; do update-alternatives --install /usr/bin/$prog \\\n  $prog /usr/lib/x/$prog-im6 10; done\n\
         update-alternatives --install /usr/bin/gone gone /usr/lib/x/gone 10\n",
    );
    assert_eq!(link(&tree, "/usr/bin/java"), "/usr/lib/x/java-new");
    assert_eq!(link(&tree, "/usr/share/x/java.1"), "/usr/lib/x/java-new.1");
    assert_eq!(link(&tree, "/usr/bin/convert"), "/usr/lib/x/convert-im6");
    assert!(tree.walk(Path::new("/usr/bin/gone"), false).is_none());
}

#[test]
fn the_stacks_of_pam_are_made_of_its_profiles() {
    let mut tree = tree();
    for (path, text) in [
        (
            "/usr/share/pam/common-auth",
            "# auth\n$auth_primary\nauth requisite pam_deny.so\nauth required pam_permit.so\n$auth_additional\n# end\n",
        ),
        (
            "/usr/share/pam/common-session",
            "$session_primary\nsession requisite pam_deny.so\n$session_additional\n",
        ),
        (
            "/usr/share/pam/common-session-noninteractive",
            "$session_nonint_primary\nsession requisite pam_deny.so\n$session_nonint_additional\n",
        ),
        (
            "/usr/share/pam-configs/unix",
            "Name: Unix\nDefault: yes\nPriority: 256\nAuth-Type: Primary\nAuth:\n\t[success=end default=ignore]\tpam_unix.so try_first_pass\n\
             Auth-Initial:\n\t[success=end default=ignore]\tpam_unix.so\nSession-Type: Additional\nSession:\n\trequired\tpam_unix.so\n",
        ),
        (
            "/usr/share/pam-configs/more",
            "Name: More\nDefault: yes\nPriority: 128\nAuth-Type: Primary\nAuth:\n\t[success=end default=ignore]\tpam_more.so again\n\
             Auth-Initial:\n\toptional pam_not_first.so\nSession-Type: Additional\nSession-Interactive-Only: yes\nSession:\n\toptional\tpam_motd.so\n",
        ),
        (
            "/usr/share/pam-configs/not",
            "Name: Not\nDefault: no\nPriority: 900\nAuth-Type: Primary\nAuth:\n\trequired\tpam_not.so\n",
        ),
    ] {
        put(&mut tree, path, text);
    }
    assert_eq!(
        postinst(&mut tree, "#!/bin/sh -e\npam-auth-update --root \"$DPKG_ROOT\" --package --force\n"),
        Vec::<String>::new()
    );
    assert_eq!(
        tree.text("/etc/pam.d/common-auth").as_deref(),
        Some(
            "# auth\nauth\t[success=2 default=ignore]\tpam_unix.so\nauth\t[success=1 default=ignore]\tpam_more.so again\n\
             auth requisite pam_deny.so\nauth required pam_permit.so\n# end\n"
        )
    );
    let session = |name: &str| tree.text(name).expect("a stack of sessions");
    assert!(
        session("/etc/pam.d/common-session")
            .ends_with("session\trequired\tpam_unix.so\nsession\toptional\tpam_motd.so\n")
    );
    assert_eq!(
        session("/etc/pam.d/common-session-noninteractive"),
        "session\t[default=1]\t\t\tpam_permit.so\nsession requisite pam_deny.so\nsession\trequired\tpam_unix.so\n"
    );
}

#[test]
fn configuration_is_installed_and_debconfs_defaults_count() {
    let mut tree = tree();
    put(&mut tree, "/usr/share/x/server.xml", "<x/>");
    put(&mut tree, "/usr/share/x/root/index.html", "hello");
    let scripts = Scripts {
        package: "x".into(),
        templates: Some("Template: x/port\nType: string\nDefault: 8080\n\nTemplate: x/ask\nType: boolean\n".into()),
        postinst: Some(
            "#!/bin/sh -e\n. /usr/share/debconf/confmodule\ndb_get x/port\nport=\"$RET\"\ndb_get x/ask || true\n\
             if [ \"$RET\" = false ]; then asked=no; fi\nfor f in server.xml; do\n mkdir -pZ /etc/x\n ucf --three-way --debconf-ok --sum-file /usr/share/x/$f.md5sum /usr/share/x/$f /etc/x/$f\n chown root:www-data /etc/x/$f\n chmod 640 /etc/x/$f\ndone\n\
             cat > /etc/default/x <<EOF\nPORT=$port\nASKED=\"$asked\"\nEOF\necho 'X=1' >> /etc/default/x\n\
             cp -r /usr/share/x/root /var/www/ROOT\nln -sf ../x /etc/y\nwhile read a b; do mkdir -p $b; done <<E\nq /srv/one\nq /srv/two\nE\n"
                .into(),
        ),
        ..Scripts::default()
    };
    assert_eq!(configure(&mut tree, &[scripts]).told, Vec::<String>::new());
    assert_eq!(tree.text("/etc/x/server.xml").as_deref(), Some("<x/>"));
    assert_eq!(meta(&tree, "/etc/x/server.xml"), (0o640, 0, 33));
    assert_eq!(tree.text("/etc/default/x").as_deref(), Some("PORT=8080\nASKED=\"no\"\nX=1\n"));
    assert_eq!(tree.text("/var/www/ROOT/index.html").as_deref(), Some("hello"));
    assert_eq!(link(&tree, "/etc/y"), "../x");
    assert!(tree.is_directory(Path::new("/srv/one")) && tree.is_directory(Path::new("/srv/two")));
}

#[test]
fn what_is_not_known_does_not_keep_the_rest_from_being_done() {
    let mut tree = tree();
    put(&mut tree, "/usr/lib/x/pinger", "");
    let told = postinst(
        &mut tree,
        "#!/bin/sh\nres=`squid -k parse 2>&1 | grep \"Processing:\" | sed s/x/y/`\n[ -n \"$res\" ] || res=proxy\n\
         if [ \"$(stat -c %U /var/log)\" != \"$res\" ]; then chown $res:$res /var/log; fi\n\
         if command -v setcap > /dev/null; then setcap x; else chmod u+s /usr/lib/x/pinger; fi\n\
         unheard-of --do-it || exit 1\nmkdir /srv/done\nrm -rf /usr /etc\n",
    );
    assert_eq!(told, Vec::<String>::new());
    assert_eq!(meta(&tree, "/var/log"), (0o755, 13, 13));
    assert_eq!(meta(&tree, "/usr/lib/x/pinger").0, 0o4755);
    assert!(tree.is_directory(Path::new("/srv/done")) && tree.is_directory(Path::new("/etc")));
}

#[test]
fn scripts_without_end_or_measure_are_given_up_and_named() {
    for script in [
        "while true; do :; done",
        "f() { f; }; f",
        "x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done",
        "eval_me='eval \"$eval_me\"'; eval \"$eval_me\"",
        "while :; do mkdir -p /srv/$x; x=${x}a; done",
        "f() { echo $(f)$(f); }; f",
    ] {
        let told = postinst(&mut tree(), &format!("#!/bin/sh\n{script}\n"));
        assert!(told.len() == 1 && told[0].contains("postinst of x"), "{script}: {told:?}");
    }
    let told = postinst(&mut tree(), "#!/bin/bash\na=1\nx=(1 2 3)\n");
    assert!(told[0].contains("line 3"), "{told:?}");
}

#[test]
fn programs_that_make_indexes_are_noted_once_and_only_where_the_image_has_them() {
    let mut tree = tree();
    put(&mut tree, "/usr/bin/ghc-pkg", "x");
    put(&mut tree, "/usr/bin/ssh-keygen", "x");
    let script = "#!/bin/sh\nset -e\nd=/usr/bin\n$d/ghc-pkg recache --global\nssh-keygen -A\n\
        if which ghc-pkg >/dev/null && ! which fc-cache; then ghc-pkg 'a b'; fi\nfc-cache -f\n$d/ghc-pkg recache --global\n";
    let scripts = Scripts { package: "x".into(), postinst: Some(script.into()), ..Scripts::default() };
    let done = configure(&mut tree, &[scripts]);
    assert!(done.told.is_empty(), "{:?}", done.told);
    assert_eq!(
        done.generators,
        [vec!["/usr/bin/ghc-pkg", "recache", "--global"], vec!["/usr/bin/ghc-pkg", "a b"]]
    );
}

/// Pieces of which scripts are made; joined at random they are nearly scripts.
const PIECES: [&str; 78] = [
    "if ",
    "then ",
    "fi",
    "case ",
    " in ",
    "esac",
    "for ",
    "do ",
    "done",
    "while ",
    "; ",
    "\n",
    "$(",
    ")",
    "`",
    "\"",
    "'",
    "${x",
    "}",
    ":-",
    "%%",
    "<<E\n",
    "E\n",
    "|",
    "&&",
    "||",
    "> ",
    "{ ",
    "}",
    "x",
    "$x",
    "$1",
    "[ ",
    " ]",
    "-e ",
    "/",
    "*",
    "..",
    "echo ",
    "chown ",
    "chmod ",
    "mkdir -p ",
    "ln -sf ",
    "cp -a ",
    "mv ",
    "rm -rf ",
    "install -d ",
    "adduser ",
    "addgroup ",
    "update-alternatives --install ",
    "root",
    "0777",
    "u+s",
    "eval ",
    "read ",
    "cut -d: -f1 ",
    "printf ",
    "%s",
    "expr ",
    "1",
    "-",
    "\\",
    "ä",
    "\0",
    "!",
    "(",
    "set -- ",
    "shift",
    "cd ",
    "ucf ",
    "mktemp",
    "\t",
    "#",
    "~",
    "/usr/share/x/a ",
    "/etc/passwd ",
    "$((",
    "=",
];

/// Numbers that are the same in each run (xorshift64, Marsaglia 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }

    fn text(&mut self, pieces: &[&str], most: usize) -> String {
        let count = self.below(most);
        (0..count).map(|_| pieces[self.below(pieces.len())]).collect()
    }
}

#[test]
fn no_script_panics_or_leaves_the_tree_unusable() {
    let mut random = Random(0x5eed);
    for _ in 0..500 {
        let mut tree = tree();
        put(&mut tree, "/usr/share/x/a", "a\nb\n");
        let script = format!("#!/bin/sh\n{}", random.text(&PIECES, 60));
        postinst(&mut tree, &script);
        assert!(tree.is_directory(Path::new("/usr")) && tree.text("/etc/passwd").is_some(), "{script}");
        let mut archive: Vec<u8> = Vec::new();
        crate::cpio::write(&tree, &mut archive).unwrap();
        crate::cpio::read(&archive, "x").unwrap();
    }
}

#[test]
fn no_declaration_panics() {
    const WORDS: [&str; 40] = [
        "[Service]\n",
        "[Install]\n",
        "ExecStart=",
        "ExecStartPre=",
        "Environment=",
        "EnvironmentFile=",
        "User=",
        "Group=",
        "RuntimeDirectory=",
        "StateDirectoryMode=",
        "Type=forking",
        "WorkingDirectory=",
        "\n",
        "\n",
        " ",
        "/bin/mkdir ",
        "-p ",
        "/x",
        "$A",
        "${A}",
        "%t",
        "%",
        "@",
        "\"",
        "'",
        "\\",
        "=",
        "ä",
        "A=b",
        "..",
        "d ",
        "u ",
        "m ",
        "z ",
        "0777 ",
        "root ",
        "- ",
        "C ",
        "/etc ",
        "#",
    ];
    let mut random = Random(0xfeed);
    for _ in 0..500 {
        let mut tree = tree();
        let texts = [(); 3].map(|()| random.text(&WORDS, 40));
        put(&mut tree, "/usr/lib/sysusers.d/x.conf", &texts[0]);
        put(&mut tree, "/usr/lib/tmpfiles.d/x.conf", &texts[1]);
        configure(&mut tree, &[]);
        let unit = crate::service::Unit::parse("x.service", &format!("[Service]\n{}", texts[2]));
        unit.prepare(&mut tree);
        if let Some(service) = unit.service(&tree) {
            assert!(service.command[0].starts_with('/'), "{texts:?}");
        }
        assert!(tree.is_directory(Path::new("/usr")), "{texts:?}");
    }
}
