// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian's servers that are several processes: a master that replaces its program, its configuration or its workers, logins
//! with a terminal, two servers in one machine, and supervisors that start again what has died.

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};
use unilith_tests::{
    BUILD_KERNEL, FILTER_ONLY, Machine, NETWORKS, Ran, Unilith, client, eventually_within, finish,
    is_skipped_where_slow, slow_client,
};

/// A server under software emulation on a busy computer.
const SLOW: Duration = Duration::from_secs(240);

/// Makes a project of these files (a script is a program) in the test's directory and fetches its packages.
fn project(unilith: &Unilith, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = unilith.path(name);
        fs::write(&path, text).expect("the scratch directory can be written");
        let mode = if text.starts_with("#!") { 0o755 } else { 0o644 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a file of the test");
    }
    // Fetched first: that may take longer than a start.
    finish(&mut unilith.command(&["check"]), BUILD_KERNEL);
}

fn get(machine: &Machine, port: u16, path: &str) -> Ran {
    client("curl", &["-sS", "--max-time", "30", &format!("http://{}{path}", machine.at(port))])
}

/// The numbers of the processes whose name this is, in ascending order.
fn processes(unilith: &Unilith, machine: &Machine, name: &str) -> Vec<u32> {
    let listed = unilith.run(&["exec", &machine.id, "ps"]).ok().out;
    let lines = listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines
        .filter(|words| words.last() == Some(&name))
        .filter_map(|words| words.first()?.parse().ok())
        .collect()
}

fn kill(unilith: &Unilith, machine: &Machine, signal: &str, pid: u32) {
    unilith.run(&["exec", &machine.id, "kill", signal, &pid.to_string()]).ok();
}

#[track_caller]
fn wait_until(what: &str, question: impl FnMut() -> bool) {
    eventually_within(SLOW, what, question);
}

#[test]
fn nginx_replaces_its_program_while_it_serves() {
    if is_skipped_where_slow() {
        return;
    }
    let unilith = Unilith::new();
    unilith.fetch("debian:nginx-light");
    // The first process stays when the old master goes.
    let script = "/usr/sbin/nginx -g 'error_log stderr notice;'; while :; do sleep 1000; done";
    let words = ["--entrypoint", "/bin/sh", "debian:nginx-light", "--", "-c", script];
    let machine = unilith.start(&[&["-m", "128M", "-p", "127.0.0.1::80"][..], &words].concat());
    get(&machine, 80, "/").ok().says("Welcome to nginx!");
    let master =
        || unilith.run(&["exec", &machine.id, "cat", "/run/nginx.pid"]).out.trim().parse::<u32>().ok();
    let old = master().expect("nginx wrote its number");
    kill(&unilith, &machine, "-USR2", old);
    // The new master has inherited the listening sockets and has workers of its own.
    wait_until("a new master", || master().is_some_and(|new| new != old));
    wait_until("its worker", || processes(&unilith, &machine, "nginx").len() == 4);
    kill(&unilith, &machine, "-QUIT", old);
    wait_until("the old master goes", || processes(&unilith, &machine, "nginx").len() == 2);
    assert!(!processes(&unilith, &machine, "nginx").contains(&old));
    get(&machine, 80, "/").ok().says("Welcome to nginx!");
}

#[test]
fn apache_serves_with_processes_and_with_processes_of_threads() {
    if is_skipped_where_slow() {
        return;
    }
    let unilith = Unilith::new();
    let configuration = "\
        PidFile /run/apache2.pid\nListen 80\nServerName machine\nErrorLog /dev/stderr\nDocumentRoot /var/www/html\n\
        LoadModule mpm_${MPM}_module /usr/lib/apache2/modules/mod_mpm_${MPM}.so\n\
        LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so\n\
        User www-data\nGroup www-data\nStartServers 2\nMaxRequestWorkers 50\n<Location />\nRequire all granted\n</Location>\n";
    let settings = "from = \"debian:apache2\"\nprogram = \"/usr/sbin/apache2\"\nmemory = \"256M\"\n\
        args = [\"-f\", \"/etc/apache2/own.conf\", \"-DFOREGROUND\"]\nports = [\"80\"]\n\
        [files]\n\"/etc/apache2/own.conf\" = \"own.conf\"\n\"/var/www/html/index.html\" = \"index.html\"\n";
    project(
        &unilith,
        &[("unilith.toml", settings), ("own.conf", configuration), ("index.html", "a page of apache\n")],
    );
    for (mpm, threads_each) in [("prefork", false), ("event", true)] {
        let machine = unilith.start(&["-e", &format!("MPM={mpm}"), "-p", "127.0.0.1::80"]);
        get(&machine, 80, "/index.html").ok().says("a page of apache");
        let load = [format!("http://{}/index.html", machine.at(80))];
        let load: Vec<&str> = ["-sS", "--max-time", "60", "--parallel", "--parallel-max", "10"]
            .into_iter()
            .chain(load.iter().flat_map(|url| std::iter::repeat_n(url.as_str(), 40)))
            .collect();
        let answers = slow_client("curl", &load, SLOW).ok().out;
        assert_eq!(answers.matches("a page of apache").count(), 40, "{mpm}: {answers}");
        // The overlay lists threads; those of the event module are 25 in each process.
        let is_right = |listed: usize| if threads_each { listed > 50 } else { (3..50).contains(&listed) };
        wait_until(mpm, || is_right(processes(&unilith, &machine, "apache2").len()));
        let stopped = unilith.run(&["stop", &machine.id]).ok();
        assert!(machine.log().contains("caught SIGTERM, shutting down"), "{stopped}\n{}", machine.log());
    }
}

#[test]
fn php_fpm_answers_behind_nginx_in_one_machine() {
    if is_skipped_where_slow() {
        return;
    }
    let unilith = Unilith::new();
    let settings = "from = \"debian:php8.2-fpm\"\nwith = [\"debian:nginx-light\"]\nprogram = \"/usr/bin/serve\"\n\
        memory = \"192M\"\nports = [\"80\"]\n[files]\n\"/usr/bin/serve\" = \"serve\"\n\
        \"/etc/nginx/sites-enabled/default\" = \"site\"\n\"/var/www/html/index.php\" = \"index.php\"\n";
    let serve = "#!/bin/sh\nset -e\n\
        php-fpm8.2 --fpm-config /etc/php/8.2/fpm/php-fpm.conf --nodaemonize &\nexec nginx -g 'daemon off;'\n";
    let site = "server { listen 80 default_server; root /var/www/html; index index.php;\n\
        location ~ \\.php$ { include snippets/fastcgi-php.conf; fastcgi_pass unix:/run/php/php8.2-fpm.sock; } }\n";
    // PHP's backticks start a shell.
    let page =
        "<?php echo 'sum ', array_sum(range(1, 10)), ' by ', PHP_SAPI, ' in ', `echo a shell | tr a-z A-Z`;";
    project(&unilith, &[("unilith.toml", settings), ("serve", serve), ("site", site), ("index.php", page)]);
    let machine = unilith.start(&["-p", "127.0.0.1::80"]);
    wait_until("php-fpm answers", || get(&machine, 80, "/").out == "sum 55 by fpm-fcgi in A SHELL\n");
    // A worker that dies is replaced by its master, and the next request is answered.
    let workers = processes(&unilith, &machine, "php-fpm8.2");
    let victim = *workers.last().expect("workers of php-fpm");
    kill(&unilith, &machine, "-KILL", victim);
    let replaced = || {
        let now = processes(&unilith, &machine, "php-fpm8.2");
        now.len() == workers.len() && !now.contains(&victim)
    };
    wait_until("a new worker", replaced);
    wait_until("php-fpm answers again", || get(&machine, 80, "/").out == "sum 55 by fpm-fcgi in A SHELL\n");
}

#[test]
fn gunicorn_starts_a_worker_for_one_that_died() {
    if is_skipped_where_slow() {
        return;
    }
    gunicorn(&Unilith::new(), &[]);
}

/// One host process shows the spaces of the master and its workers in turn there.
#[test]
fn gunicorn_stops_where_the_host_allows_no_namespaces() {
    let unilith = Unilith::filter_only();
    if !unilith.is_skipped_without(&NETWORKS) {
        gunicorn(&unilith, &FILTER_ONLY);
    }
}

fn gunicorn(unilith: &Unilith, flags: &[&str]) {
    fs::create_dir(unilith.path("app")).expect("the scratch directory can be written");
    let app = "import os\ndef app(environ, start):\n    start('200 OK', [])\n    return [b'worker %d' % os.getpid()]\n";
    fs::write(unilith.path("app/app.py"), app).expect("the scratch directory can be written");
    unilith.fetch("debian:gunicorn");
    let words = [
        "-m",
        "192M",
        "--stop-timeout",
        "60",
        "-v",
        "./app:/data",
        "-w",
        "/data",
        "-p",
        "127.0.0.1::8000",
        "--entrypoint",
    ];
    let program = ["/usr/bin/gunicorn", "debian:gunicorn", "--", "-w", "2", "-b", "0.0.0.0:8000", "app:app"];
    let machine = unilith.start(&[flags, &words, &program].concat());
    // `run` does not wait for ever for a server that takes its time.
    wait_until("gunicorn answers", || get(&machine, 8000, "/").code == Some(0));
    let worker =
        || get(&machine, 8000, "/").ok().out.strip_prefix("worker ").and_then(|n| n.parse::<u32>().ok());
    let first = worker().expect("a worker's number");
    assert!(first > 1, "{first}");
    kill(unilith, &machine, "-KILL", first);
    wait_until("its death is noticed", || machine.log().matches("Booting worker").count() == 3);
    assert!(worker().is_some_and(|next| next != first));
    // Workers that get nowhere are killed by their master, half a minute later.
    unilith.run(&["stop", &machine.id]).ok();
    let log = machine.log();
    assert!(log.contains("Shutting down: Master") && log.matches("due to signal 9").count() == 1, "{log}");
}

#[test]
fn haproxys_master_takes_a_new_configuration_with_a_new_worker() {
    if is_skipped_where_slow() {
        return;
    }
    let unilith = Unilith::new();
    unilith.fetch("debian:haproxy");
    fs::create_dir(unilith.path("own")).expect("the scratch directory can be written");
    let configure = |answer: &str| {
        let text = format!(
            "global\n maxconn 100\ndefaults\n mode http\n timeout connect 5s\n timeout client 50s\n timeout server 50s\n\
             frontend f\n bind :8080\n http-request return status 200 content-type text/plain string {answer}\n"
        );
        fs::write(unilith.path("own/haproxy.cfg"), text).expect("the scratch directory can be written");
    };
    configure("first");
    let words = ["-m", "128M", "-v", "./own:/own", "-p", "127.0.0.1::8080", "debian:haproxy"];
    let machine = unilith.start(&[&words[..], &["--", "-W", "-f", "/own/haproxy.cfg"]].concat());
    wait_until("haproxy answers", || get(&machine, 8080, "/").out == "first");
    // The worker answers while its master still executes itself anew, and forgets what it was told before.
    wait_until("the master is there", || machine.log().contains("Loading success"));
    configure("second");
    kill(&unilith, &machine, "-USR2", 1);
    wait_until("the new worker answers", || get(&machine, 8080, "/").out == "second");
    wait_until("the old worker goes", || machine.log().contains("exited with code 0"));
    unilith.run(&["stop", &machine.id]).ok();
    assert!(machine.log().contains("All workers exited"), "{}", machine.log());
}

#[test]
fn postgresql_takes_pgbenchs_clients_from_the_host_and_psql_inside() {
    if is_skipped_where_slow() {
        return;
    }
    let unilith = Unilith::new();
    unilith.fetch("postgresql");
    let machine = unilith.start(&["-p", "127.0.0.1::5432", "postgresql"]);
    let inside = |sql: &str| unilith.run(&["exec", &machine.id, "psql", "-U", "postgres", "-Atc", sql]);
    wait_until("the server answers its own client", || inside("select 1").out == "1\n");
    // Debian's package has the benchmark beside the server.
    let pgbench = unilith.path("pgbench").display().to_string();
    let from = format!("{}:/usr/lib/postgresql/15/bin/pgbench", machine.id);
    unilith.run(&["cp", &from, &pgbench]).ok();
    let at = machine.at(5432);
    let (host, port) = (at.ip().to_string(), at.port().to_string());
    let server = ["-h", &host, "-p", &port, "-U", "postgres"];
    let bench = |words: &[&str]| slow_client(&pgbench, &[&server, words, &["postgres"]].concat(), SLOW).ok();
    bench(&["-i", "-q", "-s", "1"]);
    let ran = bench(&["-c", "8", "-j", "2", "-t", "20"]);
    ran.says("actually processed: 160/160").says("failed transactions: 0 ");
    bench(&["-S", "-n", "-c", "8", "-t", "50"]).says("actually processed: 400/400");
    // What each client was told is there, and the three tables agree.
    let sums = "select (select count(*) from pgbench_history), (select sum(abalance) from pgbench_accounts)
        = (select sum(delta) from pgbench_history), (select count(*) from pgbench_accounts)";
    assert_eq!(inside(sums).ok().out, "160|t|100000\n");
}

#[test]
fn openssh_lets_a_user_in_with_a_terminal_and_takes_files() {
    if is_skipped_where_slow() {
        return;
    }
    let unilith = Unilith::new();
    let settings = "from = \"debian:openssh-server\"\nprogram = \"/usr/bin/serve\"\nmemory = \"128M\"\nports = [\"22\"]\n\
        [files]\n\"/usr/bin/serve\" = \"serve\"\n\"/home/ann/.ssh/authorized_keys\" = \"key.pub\"\n";
    // As a package's postinst would: an ordinary user.
    let serve = "#!/bin/sh\nset -e\nmkdir -p /run/sshd\necho 'ann:x:1000:1000::/home/ann:/bin/sh' >> /etc/passwd\n\
        echo 'ann:*:19000:0:99999:7:::' >> /etc/shadow\necho 'ann:x:1000:' >> /etc/group\nchown -R ann: /home/ann\n\
        ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key\n\
        exec /usr/sbin/sshd -D -e -h /etc/ssh/ssh_host_ed25519_key\n";
    let key = unilith.path("key").display().to_string();
    client("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", &key]).ok();
    project(&unilith, &[("unilith.toml", settings), ("serve", serve)]);
    let machine = unilith.start(&["-p", "127.0.0.1::22"]);
    let at = machine.at(22);
    let (host, port) = (at.ip().to_string(), at.port().to_string());
    let options = ["-i", &key, "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o"];
    let common = [&options[..], &["UserKnownHostsFile=/dev/null", "-o", "IdentitiesOnly=yes"]].concat();
    let user = format!("ann@{host}");
    let ssh = |words: &[&str]| slow_client("ssh", &[&["-p", &port][..], &common, words].concat(), SLOW);
    ssh(&[&user, "id -un; tty; exit 3"]).code(3).says("ann\nnot a tty");
    // PAM's session, the terminal, its size and its foreground group.
    let script =
        "tty; id -un; stty size; sh -c 'kill -INT $$'; echo interrupted $?; test -O $(tty) && echo mine";
    let ran = ssh(&["-tt", &user, script]).ok();
    assert!(ran.out.contains("/dev/pts/0\r\nann\r\n"), "{ran}");
    ran.says("interrupted 130").says("mine");
    let batch = unilith.path("batch");
    fs::write(&batch, format!("put {key}.pub copied\nls -l copied\n")).expect("a scratch file");
    let batch = batch.display().to_string();
    let sftp = [&["-P", &port][..], &common, &["-b", &batch, &user]].concat();
    slow_client("sftp", &sftp, SLOW).ok().says("copied");
}

#[test]
fn redis_rewrites_its_log_under_load_and_a_sentinel_replaces_a_master_that_died() {
    if is_skipped_where_slow() {
        return;
    }
    let unilith = Unilith::new();
    unilith.fetch("debian:redis-server,redis-sentinel,redis-tools");
    let script = "cd /tmp\n\
        redis-server --port 6379 --protected-mode no --appendonly yes --dir /tmp &\n\
        redis-server --port 6380 --protected-mode no --replicaof 127.0.0.1 6379 --save '' &\n\
        printf 'port 26379\\nprotected-mode no\\nsentinel monitor main 127.0.0.1 6379 1\\n\
        sentinel down-after-milliseconds main 2000\\nsentinel failover-timeout main 10000\\n' > sentinel.conf\n\
        until redis-cli -p 6380 info replication | grep -q master_link_status:up; do sleep 0.1; done\n\
        exec redis-sentinel sentinel.conf";
    let ports = ["-m", "192M", "-p", "127.0.0.1::6379", "-p", "127.0.0.1::6380", "-p", "127.0.0.1::26379"];
    let packages = "debian:redis-server,redis-sentinel,redis-tools";
    let machine =
        unilith.start(&[&ports[..], &["--entrypoint", "/bin/sh", packages, "--", "-c", script]].concat());
    let ask = |port: u16, words: &[&str]| {
        let at = machine.at(port);
        let (host, port) = (at.ip().to_string(), at.port().to_string());
        slow_client("redis-cli", &[&["-h", &host, "-p", &port], words].concat(), SLOW).out
    };
    wait_until("the sentinel knows the replica", || {
        ask(26379, &["sentinel", "replicas", "main"]).contains("6380")
    });
    // The log is rewritten by a child while clients write.
    let fill = "for i = 1, 10000 do redis.call('SET', 'key:' .. i, string.rep('x', 1000)) end";
    ask(6379, &["eval", fill, "0"]);
    assert!(ask(6379, &["bgrewriteaof"]).contains("started"));
    let at = machine.at(6379);
    let (host, port) = (at.ip().to_string(), at.port().to_string());
    let load = ["-h", &host, "-p", &port, "-q", "-n", "2000", "-c", "10", "-t", "incr"];
    slow_client("redis-benchmark", &load, SLOW).ok().says("requests per second");
    wait_until("the rewrite ends", || {
        ask(6379, &["info", "persistence"]).contains("aof_rewrite_in_progress:0")
    });
    let said = ask(6379, &["info", "persistence"]);
    assert!(said.contains("aof_last_bgrewrite_status:ok") && said.contains("aof_rewrites:1"), "{said}");
    // WAIT would be for what its own connection wrote, which is nothing.
    let caught_up = || {
        let said = ask(6379, &["info", "replication"]);
        let value = |key: &str| said.split_once(key)?.1.split([',', '\r', '\n']).next()?.parse::<u64>().ok();
        let (written, replicated) = (value("master_repl_offset:"), value(",offset="));
        written.is_some() && written == replicated
    };
    wait_until("the replica has everything", caught_up);
    // The master of the three dies; the sentinel makes the replica one.
    let info = ask(6379, &["info", "server"]);
    let pid = info.lines().find_map(|l| l.strip_prefix("process_id:")?.trim().parse().ok());
    kill(&unilith, &machine, "-KILL", pid.expect("its number"));
    wait_until("a new master", || ask(6380, &["role"]).starts_with("master"));
    assert_eq!(ask(6380, &["dbsize"]).trim(), "10001");
    assert_eq!(ask(6380, &["get", "counter:__rand_int__"]).trim(), "2000");
}

#[test]
fn supervisors_start_again_what_has_died_and_entry_points_become_what_they_start() {
    if is_skipped_where_slow() {
        return;
    }
    let unilith = Unilith::new();
    let settings = "from = \"debian:tini,gosu,dumb-init,s6,runit\"\nprogram = \"/usr/bin/entry\"\nmemory = \"128M\"\n\
        ready = \"exits\"\n[files]\n\"/usr/bin/entry\" = \"entry\"\n";
    // As images have it: preparation as root, then the program in its place, as somebody else.
    let entry = "#!/bin/sh\nset -e\nfor name in one two; do\n  mkdir -p /srv/$name\n\
        printf '#!/bin/sh\\necho %s is up as $$\\nexec sleep 1000\\n' $name > /srv/$name/run\n  chmod +x /srv/$name/run\ndone\n\
        if [ \"$1\" = as ]; then shift; exec gosu \"$@\"; fi\nexec \"$@\"\n";
    project(&unilith, &[("unilith.toml", settings), ("entry", entry)]);
    let run = |words: &[&str]| {
        unilith.program_within(&[&["--entrypoint", "/usr/bin/entry", ".", "--"], words].concat(), SLOW)
    };
    run(&["as", "daemon", "sh", "-c", "id -un; echo $$"]).ok().says("daemon\n1\n");
    // Zombies of others are reaped, and the code is the program's.
    run(&["tini", "-s", "--", "sh", "-c", "(sleep 0.05 &); sleep 0.2; exit 7"]).code(7);
    let script = "trap 'echo asked; exit 0' TERM; kill -TERM 1; while :; do sleep 0.05; done";
    run(&["dumb-init", "sh", "-c", script]).ok().says("asked");
    for supervisor in ["s6-svscan", "runsvdir"] {
        let machine = unilith.start(&["--entrypoint", "/usr/bin/entry", ".", "--", supervisor, "/srv"]);
        let up = |name: &str| {
            let log = machine.log();
            let numbers = log.lines().filter_map(|l| l.strip_prefix(&format!("{name} is up as ")));
            numbers.filter_map(|n| n.trim().parse::<u32>().ok()).collect::<Vec<_>>()
        };
        wait_until("both are up", || up("one").len() == 1 && up("two").len() == 1);
        let victim = up("one")[0];
        wait_until("it sleeps", || processes(&unilith, &machine, "sleep").contains(&victim));
        kill(&unilith, &machine, "-KILL", victim);
        wait_until("another one is up", || up("one").len() == 2);
        assert!(up("two").len() == 1 && up("one")[1] != victim, "{supervisor}");
        unilith.run(&["stop", &machine.id]).ok();
    }
}
