// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian's programs of several processes: shells, Python's, nginx with workers, Redis that saves in the background, and
//! PostgreSQL, each driven as its users drive it.

use std::time::Duration;
use unilith_tests::{
    FILTER_ONLY, Machine, NETWORKS, PATIENCE, Unilith, client, compile, eventually, eventually_within,
    slow_client, terminal::Terminal,
};

/// initdb and a recovery under software emulation, and building a kernel at first.
const SLOW: Duration = Duration::from_secs(240);

/// Waits until the machine's log holds the text as often as this.
#[track_caller]
fn wait_for_log(machine: &Machine, text: &str, times: usize) {
    let what = format!("`{text}` is {times} times in the log");
    eventually_within(SLOW, &what, || machine.log().matches(text).count() >= times);
}

#[test]
fn bash_runs_pipes_substitutions_traps_and_background_jobs() {
    let script = r#"
        trap 'echo bye' EXIT
        seq 1 100 | grep -c 7
        (exit 3); echo "status $?"
        tr a-z A-Z <<< "here $(echo inner)"
        { trap 'exit 5' TERM; echo up > /tmp/up; while :; do sleep 0.05; done; } &
        while [ ! -s /tmp/up ]; do sleep 0.05; done
        kill -TERM $!; wait $!; echo "job $?"
        for i in 1 2 3; do echo $i & done | sort | paste -sd+
    "#;
    let ran = Unilith::new().program_within(&["debian:bash", "--", "-c", script], SLOW).ok();
    assert_eq!(ran.out, "19\nstatus 3\nHERE INNER\njob 5\n1+2+3\nbye\n");
}

#[test]
fn dash_runs_here_documents_functions_traps_and_background_jobs() {
    let script = r#"
        set -eu
        trap 'echo bye' EXIT
        who=you
        cat <<END | tr a-z A-Z
here $who
END
        cat <<'END'
not $who
END
        count() { while read -r word; do n=$((n + 1)); done; echo $n; }
        n=0; seq 12 | count
        (trap 'echo asked; exit 6' USR1; : > /tmp/up; while :; do sleep 0.05; done) &
        until [ -e /tmp/up ]; do sleep 0.05; done
        kill -USR1 $!; code=0; wait $! || code=$?; echo "job $code"
        sh -c 'kill -9 $$' || echo "ended $?"
        mkfifo /tmp/fifo; echo through > /tmp/fifo & cat /tmp/fifo
        ( cd /usr; echo "$(pwd)" ); exec 3>/tmp/three; echo three >&3; cat < /tmp/three
    "#;
    let words = ["--entrypoint", "/bin/dash", "debian:dash", "--", "-c", script];
    let ran = Unilith::new().program_within(&words, SLOW).ok();
    let expected = "HERE YOU\nnot $who\n12\nasked\njob 6\nended 137\nthrough\n/usr\nthree\nbye\n";
    assert_eq!(ran.out, expected);
    assert!(ran.err.lines().any(|line| line == "Killed"), "{ran}");
}

#[test]
fn bash_is_the_first_process_of_a_terminal_and_has_job_control() {
    let unilith = Unilith::new();
    let words = ["-it", "-e", "PS1=> ", "--entrypoint", "/bin/bash", "debian:bash", "--", "--norc"];
    let mut terminal = Terminal::start(&unilith.program_command(&words));
    terminal.shows("", "> ");
    terminal.shows("echo $$ $(tty)\r", "1 /dev/console");
    // Each key is typed when a job has said that the terminal is its own: Ctrl-Z, bg, fg and Ctrl-C.
    let job = "sh -c 'trap \"echo goes on\" CONT; echo up; while :; do sleep 0.1; done'\r";
    terminal.shows(job, "up\n");
    terminal.shows("\x1a", "Stopped");
    terminal.shows("bg\r", "goes on\n");
    terminal.shows("jobs\r", "Running");
    terminal.shows("kill -STOP %1; wait %1; echo state $?\r", "state 147\n");
    terminal.shows("fg\r", "goes on\n");
    terminal.shows("\x03", "^C");
    terminal.shows("echo code $?\r", "code 130\n");
    // A job of the background that reads is stopped until it has the terminal.
    terminal.shows("cat & wait $!; echo state $?\r", "state 149\n");
    terminal.shows("fg\r", "cat\n");
    terminal.shows("typed\r", "typed\ntyped\n");
    terminal.shows("\x04", "> ");
    // A pipeline is one job.
    terminal.shows("sleep 1000000 | sh -c 'echo up; exec cat'\r", "up\n");
    terminal.shows("\x1a", "Stopped");
    terminal.shows("kill %1; wait; jobs; echo none\r", "\nnone\n");
    terminal.types("exit 5\r");
    assert_eq!(terminal.ends().0, Some(5));
}

/// As with docker: the terminal is free, and the machine goes on without it.
#[test]
fn a_program_on_a_terminal_is_left_running_by_the_detach_keys() {
    let unilith = Unilith::new();
    let run = |name: &str, flags: &[&str]| {
        let words = ["-it", "-e", "PS1=> ", "--name", name];
        let program = ["--entrypoint", "/bin/bash", "debian:bash", "--", "--norc"];
        Terminal::start(&unilith.program_command(&[&words, flags, &program].concat()))
    };
    let is_there =
        |name: &str| !unilith.run(&["ps", "-aq", "--filter", &format!("name={name}")]).out.is_empty();
    for (name, flags, keys) in
        [("usual", &[][..], "\x10\x11"), ("chosen", &["--detach-keys", "ctrl-x,d"], "\x18d")]
    {
        let mut terminal = run(name, flags);
        terminal.shows("", "> ");
        // What only begins like the keys is the program's: Ctrl-P is the line before, Ctrl-X alone begins commands.
        terminal.shows("echo on$((40 + 2))\r", "on42\n");
        terminal.shows("\x10\r", "on42\n");
        terminal.shows("(sleep 1; echo later) & \r", "> ");
        terminal.types(keys);
        let (code, shown) = terminal.ends();
        assert_eq!(code, Some(0), "{shown}");
        assert!(shown.contains(&format!("unilith stop {name}")), "{shown}");
        // It prints to its log, and no end of its input has come.
        eventually("it goes on", || unilith.run(&["logs", name]).out.contains("later\r"));
        unilith.run(&["exec", name, "--", "bash", "-c", "echo here"]).ok().says("here");
        unilith.run(&["kill", name]).ok();
        eventually("it is removed at its end", || !is_there(name));
    }
    // Whoever kills the command that waits ends the machine, as if it were one process.
    let mut terminal = run("killed", &[]);
    terminal.shows("", "> ");
    drop(terminal);
    eventually("it ended with the command", || !is_there("killed"));
    let wrong = unilith.run(&["run", "-it", "--detach-keys", "ctrl-1", "debian:bash"]);
    wrong.code(2).complains("`ctrl-1` is no key");
    unilith
        .run(&["exec", "-it", "--detach-keys", "x", "killed", "sh"])
        .code(2)
        .fails_with(&["run -it", "-d"]);
}

/// A thousand processes in 256 MiB, and thousands of forks: what was free is free again.
#[test]
fn a_thousand_processes_live_in_a_small_machine_and_leave_nothing() {
    let unilith = Unilith::new();
    let program = compile(&unilith, &["cc", "-O2", "-static"], "many.c", &[]);
    let ran = unilith.program_within(&["-m", "256M", &program, "--", "1000", "2000"], SLOW).ok();
    ran.says("1000 are alive\n").says("memory is back");
}

#[test]
fn python_starts_programs_and_shares_work_among_processes() {
    let program = r"
import subprocess, multiprocessing, concurrent.futures as f
def square(n): return n * n
if __name__ == '__main__':
    print(subprocess.run(['/bin/sh', '-c', 'cat; exit 4'], input=b'in', capture_output=True))
    with multiprocessing.get_context('fork').Pool(3) as pool: print(pool.map(square, range(5)))
    with f.ProcessPoolExecutor(2) as pool: print(sum(pool.map(square, range(10))))
";
    let ran = Unilith::new().program_within(&["-m", "256M", "python", "--", "-c", program], SLOW).ok();
    ran.says("returncode=4, stdout=b'in'").says("[0, 1, 4, 9, 16]").says("285");
}

#[test]
fn nginx_serves_with_workers_and_takes_new_ones_when_it_is_told() {
    let unilith = Unilith::new();
    let directives = "daemon off; error_log stderr notice;";
    let program = ["--entrypoint", "/usr/sbin/nginx", "debian:nginx-light", "--", "-g", directives];
    let all = [&["-m", "128M", "-p", "127.0.0.1::80"][..], &program].concat();
    let machine = unilith.start(&all);
    let url = format!("http://{}/", machine.at(80));
    client("curl", &["-sS", "--max-time", "30", &url]).ok().says("Welcome to nginx!");
    let worker = |log: &str| log.matches("start worker process ").count();
    let before = worker(&machine.log());
    assert!(before > 0, "{}", machine.log());
    unilith.run(&["exec", &machine.id, "kill", "-HUP", "1"]).ok();
    wait_for_log(&machine, "exited with code 0", 1);
    client("curl", &["-sS", "--max-time", "30", &url]).ok().says("Welcome to nginx!");
    assert!(worker(&machine.log()) > before, "{}", machine.log());
}

#[test]
fn redis_saves_in_the_background_while_it_serves() {
    redis_saves(&Unilith::new(), &[]);
}

/// One host process shows both spaces in turn there. Several machines at a time, so that each is interrupted at many places.
#[test]
fn redis_saves_where_the_host_allows_no_namespaces() {
    if Unilith::new().is_skipped_without(&NETWORKS) {
        return;
    }
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| redis_saves(&Unilith::filter_only(), &FILTER_ONLY));
        }
    });
}

#[test]
fn shells_fork_where_the_host_allows_no_namespaces() {
    let script =
        "for i in 1 2 3 4 5; do x=$(echo $i | (read a; echo $((a * a)))); echo $x & done; wait; echo all";
    let words = ["--network", "none", "--entrypoint", "/bin/bash", "debian:bash", "--", "-c", script];
    let ran = Unilith::filter_only().program_within(&[&FILTER_ONLY[..], &words].concat(), SLOW).ok();
    let mut lines: Vec<&str> = ran.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["1", "16", "25", "4", "9", "all"]);
}

/// Both processors are in use when the second process comes: one has to go.
#[test]
fn threads_and_then_processes_where_the_host_allows_no_namespaces() {
    let unilith = Unilith::filter_only();
    let program = compile(&unilith, &["cc", "-O1", "-pthread", "-static"], "threads_then_processes.c", &[]);
    let words = [&FILTER_ONLY[..], &["--network", "none", &program]].concat();
    unilith.program_within(&words, SLOW).ok().says("twenty children, and theirs");
}

fn redis_saves(unilith: &Unilith, flags: &[&str]) {
    let words = ["-m", "160M", "-p", "127.0.0.1::6379", "redis"];
    let machine = unilith.start(&[flags, &words].concat());
    let (host, port) = (machine.at(6379).ip().to_string(), machine.at(6379).port().to_string());
    let cli = |words: &[&str]| client("redis-cli", &[&["-h", &host, "-p", &port], words].concat()).ok().out;
    // 40 MB in 40,000 values.
    let fill = "for i = 1, 40000 do redis.call('SET', 'key:' .. i, string.rep('x', 1000)) end";
    cli(&["eval", fill, "0"]);
    assert!(cli(&["bgsave"]).contains("Background saving started"));
    let load = ["-h", &host, "-p", &port, "-q", "-n", "3000", "-c", "10", "-t", "set"];
    slow_client("redis-benchmark", &load, PATIENCE).ok().says("requests per second");
    eventually_within(SLOW, "the save has ended", || {
        cli(&["info", "persistence"]).contains("rdb_bgsave_in_progress:0")
    });
    let said = cli(&["info", "persistence"]);
    assert!(said.contains("rdb_last_bgsave_status:ok") && said.contains("rdb_saves:1"), "{said}");
    assert_eq!(cli(&["dbsize"]).trim(), "40001");
}

#[test]
fn postgresql_recovers_from_the_death_of_a_process_and_of_its_machine() {
    let unilith = Unilith::new();
    std::fs::create_dir(unilith.path("data")).expect("the scratch directory can be written");
    let words = ["-p", "127.0.0.1::5432", "-v", "./data:/data", "postgresql"];
    let machine = unilith.start(&words);
    let ready = "database system is ready to accept connections";
    wait_for_log(&machine, ready, 1);
    let (host, port) = (machine.at(5432).ip().to_string(), machine.at(5432).port().to_string());
    let psql = |sql: &str| {
        let words = ["-h", &host, "-p", &port, "-U", "postgres", "-At", "-v", "ON_ERROR_STOP=1", "-c", sql];
        slow_client("psql", &words, SLOW)
    };
    psql("create table t as select n, md5(n::text) as m from generate_series(1, 20000) n").ok();
    assert_eq!(psql("select count(*), count(distinct m) from t").ok().out.trim(), "20000|20000");
    // One of its processes dies; as after `kill -9` on Linux, the server ends the others and recovers from its log.
    let listed = unilith.run(&["exec", &machine.id, "ps"]).ok().out;
    let pids = listed.lines().filter(|l| l.contains("postgres")).filter_map(|l| l.split_whitespace().next());
    let victim = pids.filter_map(|pid| pid.parse::<u32>().ok()).find(|pid| *pid > 1).expect("its processes");
    unilith.run(&["exec", &machine.id, "kill", "-KILL", &victim.to_string()]).ok();
    wait_for_log(&machine, ready, 2);
    let count = "select count(*), count(distinct m) from t";
    assert_eq!(psql(count).ok().out.trim(), "20000|20000");
    // A machine that ends without a word to its server, and another one with the same data.
    unilith.run(&["kill", &machine.id]).ok();
    drop(machine);
    let machine = unilith.start(&words);
    wait_for_log(&machine, ready, 1);
    let (host, port) = (machine.at(5432).ip().to_string(), machine.at(5432).port().to_string());
    let words = ["-h", &host, "-p", &port, "-U", "postgres", "-At", "-c", count];
    assert_eq!(slow_client("psql", &words, SLOW).ok().out.trim(), "20000|20000");
    unilith.run(&["stop", &machine.id]).ok();
    assert!(machine.log().contains("database system is shut down"), "{}", machine.log());
}
