// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whole files: those of usual shape, those with mistakes, and those that somebody damaged.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use unilith_compose::{
    project::{Project, Text, read},
    service::{Condition, Service, Source},
};

fn environment(name: &str) -> Option<String> {
    match name {
        "TAG" => Some("redis".into()),
        "EMPTY" => Some(String::new()),
        _ => None,
    }
}

fn project(text: &str) -> Project {
    read(&[text], &environment).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn service<'a>(project: &'a Project, name: &str) -> &'a Service {
    project.services.iter().find(|s| s.name == name).unwrap()
}

const SHOP: &str = r#"
name: shop
x-base: &base
  restart: always
  environment: &env
    LEVEL: info
services:
  web:
    <<: *base
    image: debian:nginx
    depends_on:
      app:
        condition: service_healthy
      setup: {condition: service_completed_successfully}
    ports:
      - "8080:80"
      - {target: 443, published: 8443, host_ip: 127.0.0.1, protocol: tcp}
      - 81
      - target: 53
        protocol: udp
      - {target: 80, published: 8081, host_ip: "::1"}
      - "[::]:8082:80"
    networks: [front]
    volumes:
      - ./site:/usr/share/nginx/html:ro
      - type: tmpfs
        target: /var/cache/nginx
        tmpfs: {size: 4m}
  app:
    extends: {service: web-base}
    image: ./app
    command: python3 -m http.server "80 80"
    environment:
      <<: *env
      URL: "redis://${HOST:-cache}/${EMPTY:-0}"
      HERE:
    networks:
      front: {aliases: [api]}
      back:
    healthcheck:
      test: ["CMD", "curl", "-f", "http://localhost"]
      interval: 1m30s
      timeout: 5s
      retries: 3
      start_period: 500ms
    deploy:
      replicas: 2
      resources: {limits: {memory: 128M, cpus: '0.5'}}
    secrets: [token, {source: token, target: other}]
    configs: [{source: settings, target: /etc/app.conf}]
    ulimits: {nofile: {soft: 1024, hard: 2048}, memlock: -1}
    cap_drop: [ALL]
    cap_add: [CHOWN, NET_BIND_SERVICE]
    security_opt: ["no-new-privileges:true"]
    group_add: [tty, 1000]
    stop_grace_period: 1m
    labels: [tier=app]
    extra_hosts: ["db=10.0.0.9"]
  web-base:
    image: busybox
    user: "33"
    profiles: [never]
    depends_on: [cache]
  setup:
    image: busybox
    command: ["true"]
    depends_on: [cache]
  cache:
    image: ${TAG}
    volumes: [data:/data]
    networks: [back]
networks:
  front: {}
  back: {name: shop-back}
volumes:
  data:
  old: {external: true}
secrets:
  token: {file: ./token}
configs:
  settings: {content: "a=1\n"}
"#;

#[test]
fn a_project_of_usual_shape_is_read_whole() {
    let p = project(SHOP);
    assert_eq!(p.name.as_deref(), Some("shop"));
    let names: Vec<&str> = p.services.iter().map(|s| s.name.as_str()).collect();
    let at = |name: &str| names.iter().position(|n| *n == name).unwrap();
    assert!(at("cache") < at("setup") && at("setup") < at("web") && at("app") < at("web"), "{names:?}");
    let web = service(&p, "web");
    assert_eq!(
        web.ports,
        [
            "8080:80",
            "127.0.0.1:8443:443/tcp",
            "0.0.0.0::81",
            "0.0.0.0::53/udp",
            "[::1]:8081:80",
            "[::]:8082:80"
        ]
    );
    assert_eq!(
        (web.restart.as_deref(), web.tmpfs.as_slice()),
        (Some("always"), &["/var/cache/nginx:size=4m".to_string()][..])
    );
    assert!(web.mounts[0].read_only && web.mounts[0].source == Source::Bind("./site".into()));
    assert_eq!(
        web.depends_on.iter().map(|d| d.condition).collect::<Vec<_>>(),
        [Condition::Healthy, Condition::Completed]
    );
    let app = service(&p, "app");
    assert_eq!(app.command, ["python3", "-m", "http.server", "80 80"]);
    assert_eq!((app.user.as_deref(), app.image.as_str()), (Some("33"), "./app"), "of its base and its own");
    assert!(app.depends_on.is_empty(), "not inherited");
    let pair = |key: &str, value: Option<&str>| (key.to_string(), value.map(String::from));
    assert_eq!(
        app.environment,
        [pair("URL", Some("redis://cache/0")), pair("HERE", None), pair("LEVEL", Some("info"))]
    );
    let health = app.health.as_ref().unwrap();
    assert_eq!(
        (health.interval, health.timeout, health.start_period, health.retries),
        (Some(90_000), Some(5000), Some(500), Some(3))
    );
    assert_eq!((app.replicas, app.memory.as_deref(), app.cpus), (2, Some("128M"), Some(1)));
    assert_eq!(
        app.secrets.iter().map(|u| u.target.as_str()).collect::<Vec<_>>(),
        ["/run/secrets/token", "/run/secrets/other"]
    );
    assert_eq!(app.configs[0].target, "/etc/app.conf");
    assert_eq!(app.networks.as_ref().unwrap()[0].aliases, ["api"]);
    assert_eq!((app.ulimit.join(" ").as_str(), app.stop_grace), ("nofile=1024:2048 memlock=-1:-1", Some(60)));
    let rights = [&app.cap_drop, &app.cap_add, &app.security_opt, &app.group_add].map(|list| list.join(" "));
    assert_eq!(rights, ["ALL", "CHOWN NET_BIND_SERVICE", "no-new-privileges:true", "tty 1000"]);
    assert_eq!(app.extra_hosts, ["db:10.0.0.9"]);
    assert_eq!(service(&p, "cache").image, "redis");
    assert_eq!(p.networks[1].name.as_deref(), Some("shop-back"));
    assert!(p.volumes[1].external && p.secrets[0].text == Text::File("./token".into()));
    // What is written is the same project.
    let again = project(&p.resolved);
    assert_eq!(again.resolved, p.resolved);
    let names = |p: &Project| p.services.iter().map(|s| s.name.clone()).collect::<Vec<_>>();
    assert_eq!((names(&again), again.networks), (names(&p), p.networks));
}

#[test]
fn mistakes_are_told_with_their_path_and_line() {
    let one = "services:\n  a:\n    image: x\n";
    let cases: [(String, usize, &[&str]); 19] = [
        ("".into(), 1, &["no services"]),
        ("services: [a]\n".into(), 1, &["services", "mapping"]),
        ("services:\n  a:\n    command: x\n".into(), 3, &["services.a", "image:"]),
        (format!("{one}    build: .\n"), 4, &["services.a.build", "oci:FILE"]),
        (format!("{one}    privileged: true\n"), 4, &["services.a.privileged", "leave it out"]),
        (format!("{one}    imagine: 1\n"), 4, &["services.a.imagine", "no such key"]),
        (
            format!("{one}    depends_on: [b]\n"),
            4,
            &["services.a.depends_on", "no service `b`", "there are a"],
        ),
        (format!("{one}    depends_on: {{b: {{condition: ready}}}}\n"), 4, &["condition", "`ready`"]),
        (format!("{one}    networks: [b]\n"), 4, &["no network `b`"]),
        (format!("{one}    volumes: [b:/x]\n"), 4, &["no volume `b`", "./b"]),
        (format!("{one}    volumes: [./b:x]\n"), 4, &["absolute"]),
        (format!("{one}    secrets: [b]\n"), 4, &["no secret `b`"]),
        (format!("{one}    environment: {{A: [1]}}\n"), 4, &["services.a.environment.A", "not a list"]),
        (format!("{one}    image: ${{NO:?give it}}\n"), 4, &["second time"]),
        (
            "services:\n  a:\n    image: ${NO:?give it}\n".into(),
            3,
            &["services.a.image", "NO is not set: give it"],
        ),
        (format!("{one}    healthcheck: {{interval: 1x}}\n"), 4, &["say test"]),
        (format!("{one}    deploy: {{replicas: 100000}}\n"), 2, &["at most 256"]),
        (format!("{one}    stop_grace_period: soon\n"), 4, &["`soon`"]),
        (format!("{one}serivces: 1\n"), 4, &["serivces", "no such key"]),
    ];
    for (text, line, words) in cases {
        let mistake = read(&[&text], &environment).expect_err(&text);
        let said = mistake.to_string();
        assert!(words.iter().all(|w| said.contains(w)), "{text}: {said}");
        // A mapping begins where its first key does.
        assert!(mistake.line.number.abs_diff(line) <= 1, "{text}: {said}");
    }
}

#[test]
fn services_that_wait_for_each_other_are_named() {
    let text = "services:\n  a: {image: x, depends_on: [b]}\n  b: {image: x, depends_on: [c]}\n  c: {image: x, depends_on: [b]}\n";
    let said = read(&[text], &environment).unwrap_err().to_string();
    assert_eq!(said, "line 4: services wait for each other: b -> c -> b");
    let text = "services:\n  a: {extends: b}\n  b: {extends: {service: a}}\n";
    assert!(read(&[text], &environment).unwrap_err().to_string().contains("extend each other: a -> b -> a"));
    let itself = "services:\n  a: {image: x, depends_on: [a]}\n";
    assert!(read(&[itself], &environment).unwrap_err().to_string().contains("a -> a"));
}

#[test]
fn a_variable_without_a_value_is_told_once() {
    let p = project("services:\n  a:\n    image: x\n    command: [\"$NOBODY\", \"${NOBODY}\", \"$$HOME\"]\n");
    assert_eq!(p.unset, ["NOBODY"]);
    assert_eq!(p.services[0].command, ["", "", "$HOME"]);
}

#[test]
fn files_are_put_on_top_of_each_other() {
    let base = r#"
services:
  web:
    image: nginx
    command: [a, b]
    environment: [LEVEL=info, KEPT=1, HERE]
    ports: ["80:80", "81:81"]
    volumes: ["./site:/site", "data:/data"]
    depends_on: [cache]
    env_file: one.env
    dns: 1.1.1.1
    healthcheck: {test: [CMD, old, way], retries: 7}
    tmpfs: /tmp
    profiles: [x]
  cache: {image: redis}
  gone: {image: redis}
volumes: {data: }
"#;
    let over = r#"
services:
  web:
    image: debian:nginx
    command: c d e
    environment: {LEVEL: debug, MORE: "2"}
    ports: ["80:80", {target: 82, published: 83}]
    volumes: ["./other:/site:ro", "./more:/more"]
    depends_on: {cache: {condition: service_healthy}, db: {condition: service_started}}
    env_file: [two.env]
    dns: [1.1.1.1, 8.8.8.8]
    healthcheck: {test: [CMD, new]}
    tmpfs: [/run]
    profiles: !reset []
    restart:
  db: {image: postgresql}
  gone: !reset
"#;
    let p = read(&[base, over], &environment).unwrap();
    let web = service(&p, "web");
    assert_eq!((web.image.as_str(), web.command.join(" ").as_str()), ("debian:nginx", "c d e"));
    let pair = |key: &str, value: Option<&str>| (key.to_string(), value.map(String::from));
    let expected =
        [pair("LEVEL", Some("debug")), pair("KEPT", Some("1")), pair("HERE", None), pair("MORE", Some("2"))];
    assert_eq!(web.environment, expected);
    assert_eq!(web.ports, ["80:80", "81:81", "83:82"]);
    let mounts: Vec<_> = web.mounts.iter().map(|m| (m.target.as_str(), m.read_only)).collect();
    assert_eq!(mounts, [("/site", true), ("/data", false), ("/more", false)]);
    let needs: Vec<_> = web.depends_on.iter().map(|d| (d.service.as_str(), d.condition)).collect();
    assert_eq!(needs, [("cache", Condition::Healthy), ("db", Condition::Started)]);
    assert_eq!(web.env_files.iter().map(|f| f.path.as_str()).collect::<Vec<_>>(), ["one.env", "two.env"]);
    assert_eq!((web.dns.join(" ").as_str(), web.tmpfs.join(" ").as_str()), ("1.1.1.1 8.8.8.8", "/tmp /run"));
    let health = web.health.as_ref().unwrap();
    assert_eq!((health.command.clone().unwrap().join(" ").as_str(), health.retries), ("new", Some(7)));
    assert!(web.profiles.is_empty() && !p.services.iter().any(|s| s.name == "gone"));
    // What is written is one file that says the same.
    assert_eq!(project(&p.resolved).resolved, p.resolved);

    let third = "services:\n  web:\n    ports: !override [\"90:90\"]\n    environment: !override {ONLY: 1}\n";
    let p = read(&[base, over, third], &environment).unwrap();
    assert_eq!(service(&p, "web").ports, ["90:90"]);
    assert_eq!(service(&p, "web").environment, [pair("ONLY", Some("1"))]);
}

#[test]
fn mistakes_of_several_files_are_told_by_file() {
    let base = "services:\n  web: {image: nginx, deploy: {replicas: 2}}\n";
    for (over, line, words) in [
        ("services:\n  web:\n    privileged: true\n", 3, "services.web.privileged"),
        ("services:\n  web:\n    deploy: [x]\n", 3, "here it is no mapping"),
        ("services:\n  web:\n    environment:\n      - [x]\n", 4, "one value, not a list"),
        ("- x\n", 1, "a compose file is a mapping"),
        ("services:\n  web: {extends: other}\n", 2, "no service `other`"),
    ] {
        let mistake = read(&[base, over], &environment).expect_err(over);
        assert_eq!((mistake.line.file, mistake.line.number), (1, line), "{mistake}");
        assert!(mistake.message.contains(words), "{mistake}");
    }
    let many = vec![base; 33];
    assert!(read(&many, &environment).unwrap_err().message.contains("more than 32 files"));
}

/// Damaged files: each is a project or a mistake of one line, and what is a project can be written and read again.
#[test]
fn damaged_files_are_refused_or_read() {
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed as usize
    };
    let pieces = [
        "\n",
        "  ",
        ":",
        "- ",
        "[",
        "]",
        "{",
        "}",
        "*base",
        "&x ",
        "<<: *base",
        "${A:-",
        "}",
        "$",
        "null",
        "\"",
        "!x ",
        "#",
        "\u{1b}[2J",
        "é",
        "0",
        "services:\n",
    ];
    let mut read_well = 0;
    for n in 0..5000 {
        let mut text = SHOP.to_string();
        for _ in 0..1 + random() % 4 {
            let mut at = random() % text.len().max(1);
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            match random() % 4 {
                0 => text.insert_str(at, pieces[random() % pieces.len()]),
                1 => {
                    let mut end = (at + random() % 12).min(text.len());
                    while !text.is_char_boundary(end) {
                        end -= 1;
                    }
                    text.replace_range(at.min(end)..end, "");
                }
                2 => text.truncate(at.max(10).min(text.len())),
                _ => {
                    let lines: Vec<&str> = if text.is_empty() { vec![""] } else { text.lines().collect() };
                    let (from, to) = (random() % lines.len(), random() % lines.len());
                    let mut lines: Vec<String> = lines.into_iter().map(String::from).collect();
                    let line = lines[from].clone();
                    lines.insert(to, line);
                    text = lines.join("\n");
                }
            }
        }
        if n % 8 == 0 {
            let of_two = [read(&[SHOP, &text], &environment), read(&[&text, SHOP], &environment)];
            of_two.into_iter().flatten().for_each(|two| drop(project(&two.resolved)));
        }
        match read(&[&text], &environment) {
            Ok(project) => {
                read_well += 1;
                let again = read(&[&project.resolved], &environment);
                assert_eq!(
                    again.map(|p| p.resolved).map_err(|e| e.to_string()),
                    Ok(project.resolved),
                    "{text}"
                );
            }
            Err(mistake) => {
                assert!(
                    !mistake.message.is_empty() && mistake.line.number <= text.lines().count() + 1,
                    "{mistake}"
                )
            }
        }
    }
    // Most are refused; of these seeds so many are not.
    assert!(read_well > 100, "{read_well}");
}
