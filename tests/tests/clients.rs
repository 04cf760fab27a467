// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Servers as Debian's packages install them (tests/clients/servers.toml), each driven by clients of its own kind.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod long {
    use serde::Deserialize;
    use std::{
        collections::BTreeMap,
        fs,
        time::{Duration, Instant},
    };
    use unilith_tests::{Ran, Unilith, finish, root, tested_machine};

    /// Fetching a program's packages and building its image.
    const FETCHED: Duration = Duration::from_secs(400);
    /// How long a server has until a client has what it wants of it.
    const READY: Duration = Duration::from_secs(120);

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Server {
        server: String,
        #[serde(default)]
        files: BTreeMap<String, String>,
        clients: Vec<Client>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Client {
        exec: Option<String>,
        machine: Option<String>,
        prints: String,
    }

    /// A server's network, which is gone with the server when the test is over.
    struct Network<'a> {
        unilith: &'a Unilith,
        name: String,
        server: &'a str,
    }

    impl Drop for Network<'_> {
        fn drop(&mut self) {
            self.unilith.run(&["rm", "-f", self.server]);
            self.unilith.run(&["network", "rm", &self.name]);
        }
    }

    fn typed(unilith: &Unilith, words: &str) -> Ran {
        let line = format!("exec {} {words}", root().join("unilith").display());
        finish(&mut unilith.shell(&line), FETCHED)
    }

    /// The reason why it does not work.
    fn attempt(name: &str, server: &Server) -> Result<(), String> {
        let unilith = Unilith::new();
        for (path, text) in &server.files {
            let path = unilith.path("own").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let network = Network { unilith: &unilith, name: format!("clients-{name}"), server: name };
        unilith.run(&["network", "create", &network.name]).ok();
        let machine = format!("run --machine {} --network {}", tested_machine(), network.name);
        let began = typed(&unilith, &format!("{machine} -d --name {name} {}", server.server));
        if began.code != Some(0) {
            return Err(format!("does not start: {}{}", began.out, began.err));
        }
        for client in &server.clients {
            let words = match (&client.exec, &client.machine) {
                (Some(words), None) => format!("exec {name} {words}"),
                (None, Some(words)) => format!("{machine} --rm {words}"),
                _ => return Err("a client is either `exec` or `machine`".into()),
            };
            let begin = Instant::now();
            loop {
                let ran = typed(&unilith, &words);
                if ran.code == Some(0) && ran.out.contains(&client.prints) {
                    break;
                }
                if begin.elapsed() > READY {
                    let logs = unilith.run(&["logs", "--tail", "5", name]);
                    return Err(format!("{words}: {ran}; the server printed {}{}", logs.out, logs.err));
                }
                std::thread::sleep(Duration::from_millis(500));
            }
        }
        Ok(())
    }

    #[test]
    #[ignore = "fetches gigabytes of packages"]
    fn servers_answer_clients_of_their_own_kind() {
        let text = fs::read_to_string(root().join("tests/clients/servers.toml")).unwrap();
        let servers: BTreeMap<String, Server> = toml::from_str(&text).unwrap();
        let only = std::env::var("UNILITH_CLIENTS").unwrap_or_default();
        // Builds the kernel.
        Unilith::new().program(&["busybox", "true"]).ok();
        let mut failed = Vec::new();
        for (name, server) in servers.iter().filter(|(name, _)| name.contains(&only)) {
            let begin = Instant::now();
            let result = attempt(name, server);
            eprintln!(
                "{name}: {} s: {}",
                begin.elapsed().as_secs(),
                result.as_ref().err().map_or("works", |e| e)
            );
            failed.extend(result.err().map(|why| format!("{name}: {why}")));
        }
        assert!(failed.is_empty(), "{failed:#?}");
    }
}
