// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith exec`: programs of the image in a running machine, as docker's users start them, and how they are told from the
//! overlay's commands.

use rustix::process::Signal;
use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::{PermissionsExt, symlink},
    process::{Child, Stdio},
};
use unilith_tests::{
    Machine, Ran, Unilith, compile, eventually, signal, terminal::Terminal, tested_kernel, tested_machine,
};

/// Nothing that is written is larger than what pipes and windows hold together.
const LARGE: usize = 1 << 20;

/// Linux machines have programs without a terminal (`overlay`), and another overlay.
fn is_micro() -> bool {
    tested_kernel() == "micro"
}

/// A machine whose first process is a shell with a child, which it waits for: it says what became of each.
fn shell(unilith: &Unilith) -> Machine<'_> {
    let script = "sleep 1000000 & while :; do wait -n -p who; echo \"waited $? for $who\"; done";
    unilith.start(&["-e", "FROM=image", "-m", "256M", "debian:bash", "--", "-c", script])
}

#[track_caller]
fn exec(unilith: &Unilith, words: &[&str]) -> Ran {
    unilith.run(&[&["exec"], words].concat())
}

/// Runs it with these bytes as its input.
fn with_input(unilith: &Unilith, words: &[&str], input: Vec<u8>) -> (Option<i32>, Vec<u8>) {
    let mut command = unilith.command(&[&["exec"], words].concat());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("unilith runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || {
        // A program that does not read all of it is no mistake of ours.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().expect("it can be waited for");
    writer.join().expect("the writer ends");
    (output.status.code(), output.stdout)
}

/// Processes of the machine, without the kernel's threads.
fn processes(unilith: &Unilith, machine: &Machine) -> Vec<String> {
    let listed = exec(unilith, &[&machine.id, "ps"]).ok().out;
    let rows = listed.lines().skip(1).filter(|row| !row.trim_start().starts_with('-'));
    rows.filter_map(|row| row.split_whitespace().last()).map(Into::into).collect()
}

/// Waits until nothing but the first process and its child is there, and says that neither heard of anything.
#[track_caller]
fn is_as_before(unilith: &Unilith, machine: &Machine) {
    eventually("what was started is gone", || processes(unilith, machine) == ["bash", "sleep"]);
    let count = "n=0; for p in /proc/[0-9]*; do n=$((n+1)); done; echo $n";
    // Zombies have a directory as well: the two, and the shell that counts.
    eventually("nothing is left to be reaped", || {
        exec(unilith, &[&machine.id, "--", "sh", "-c", count]).ok().out == "3\n"
    });
    assert_eq!(machine.log(), "", "the first process waited for what is not its own");
}

#[test]
fn standard_error_of_the_first_program_is_told_from_its_output() {
    let unilith = Unilith::new();
    // Bytes by which the machine could be mistaken about it are among them; the long lines are more than it takes at once.
    let script = r"printf 'out\020\002\n'; printf 'err\020\003\n' >&2; seq -s , 2000;
        seq -s , 3000 >&2; [ ! -t 2 ] && echo again >/dev/stderr; exit 7";
    let numbers = |last: u32| (1..=last).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let (out, err) =
        (format!("out\x10\x02\n{}\n", numbers(2000)), format!("err\x10\x03\n{}\nagain\n", numbers(3000)));
    let words = ["debian:dash", "--", "-c", script];
    let ran = unilith.program(&words).code(7);
    assert!(ran.out == out && ran.err.contains(&err), "{ran}");
    let machine = unilith.start(&words);
    unilith.run(&["wait", &machine.id]).ok();
    let logs = unilith.run(&["logs", &machine.id]).ok();
    assert!(logs.out == out && logs.err.contains(&err), "{logs}");
    let terminal = unilith.program(&["-t", "debian:dash", "--", "-c", "echo out; echo err >&2"]).ok();
    assert_eq!(terminal.out, "out\r\nerr\r\n", "a terminal is one");
}

#[test]
fn what_a_program_may_do_is_limited_by_name_and_so_is_what_starts_beside_it() {
    if !is_micro() {
        return;
    }
    const TELL: &str = "while read -r key value; do case $key in Cap*|NoNew*) echo $key $value;; esac; done </proc/self/status";
    let unilith = Unilith::new();
    let limits = ["--cap-drop", "ALL", "--cap-add", "chown", "--security-opt", "no-new-privileges"];
    let told = |effective: u32| {
        format!(
            "CapInh: {:016x}\nCapPrm: {effective:016x}\nCapEff: {effective:016x}\nCapBnd: {:016x}\nCapAmb: {:016x}\n\
             NoNewPrivs: 1\n",
            0, 1, 0
        )
    };
    let script =
        format!("{TELL}; : >/tmp/a && chown 7 /tmp/a && chroot / true || echo refused; sleep 1000000; :");
    let machine = unilith.start(&[&limits[..], &["debian:dash", "--", "-c", &script]].concat());
    eventually("it has told", || machine.log().contains("refused"));
    let logs = unilith.run(&["logs", &machine.id]).ok();
    assert!(logs.out == told(1) + "refused\n" && logs.err.contains("Operation not permitted"), "{logs}");
    assert_eq!(exec(&unilith, &[&machine.id, "--", "sh", "-c", TELL]).ok().out, told(1));
    assert_eq!(exec(&unilith, &["-u", "0", &machine.id, "sh", "-c", TELL]).ok().out, told(1));
    assert_eq!(exec(&unilith, &["-u", "daemon", &machine.id, "sh", "-c", TELL]).ok().out, told(0));
    unilith
        .program(&["--cap-drop", "FLY", "debian:dash"])
        .code(2)
        .fails_with(&["--cap-drop FLY", "capabilities(7)"]);
    let option = ["--security-opt", "seccomp=unconfined", "debian:dash"];
    unilith.program(&option).code(2).fails_with(&["seccomp=unconfined", "the machine itself"]);
}

#[test]
fn a_program_of_the_image_runs_beside_the_first_one_as_with_docker() {
    if !is_micro() {
        return;
    }
    let unilith = Unilith::new();
    let machine = shell(&unilith);
    let id = machine.id.as_str();
    // Streams and exit codes.
    let ran = exec(&unilith, &[id, "/bin/sh", "-c", "echo out; echo err >&2; exit 7"]).code(7);
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("out\n", "err\n"));
    exec(&unilith, &[id, "sh", "-c", "kill -KILL $$"]).code(137);
    exec(&unilith, &[id, "sh", "-c", "kill -TERM $$"]).code(143);
    exec(&unilith, &[id, "--program", "nothing"]).code(127).complains("no such program in the image");
    exec(&unilith, &[id, "/none/nothing"]).code(127).complains("no such program in the image");
    exec(&unilith, &[id, "/etc/passwd"]).code(126).complains("not an executable file");
    exec(&unilith, &[id, "/etc"]).code(126).complains("not an executable file");
    // Who it is, where it is, what it is told.
    let tells = "echo $FROM $MORE $HOME; pwd; id -u; id -g; echo $PPID; readlink /proc/self/fd/0";
    let ran = exec(&unilith, &["-e", "MORE=less", "-w", "/tmp", id, "sh", "-c", tells]).ok();
    assert_eq!(ran.out, "image less /root\n/tmp\n0\n0\n0\n/dev/null\n");
    let ran = exec(&unilith, &["-u", "daemon", id, "sh", "-c", tells]).ok();
    assert_eq!(ran.out, "image /usr/sbin\n/\n1\n1\n0\n/dev/null\n");
    assert_eq!(exec(&unilith, &["-u", "7:8", id, "sh", "-c", "id -u; id -g"]).ok().out, "7\n8\n");
    exec(&unilith, &["-u", "nobody-knows", id, "true"]).code(126).complains("no user nobody-knows");
    exec(&unilith, &["-w", "/none", id, "true"]).code(126).complains("No such file");
    // Commands of the overlay, and programs of the same name.
    exec(&unilith, &[id, "ps"]).ok().says("[overlay]");
    exec(&unilith, &[id, "ls", "-l", "/etc/passwd"]).ok().says("/etc/passwd");
    exec(&unilith, &[id, "--", "ls", "--version"]).ok().says("coreutils");
    exec(&unilith, &[id, "nothing"]).code(127).complains("no such command").complains("`help` lists");
    // In the background.
    exec(&unilith, &["-d", id, "sh", "-c", "echo detached > /tmp/said; sleep 1000000; :"]).ok();
    eventually("it runs", || exec(&unilith, &[id, "cat", "/tmp/said"]).out == "detached\n");
    assert_eq!(processes(&unilith, &machine).len(), 4);
    let kill = "for p in /proc/[0-9]*; do [ ${p#/proc/} -gt 2 ] && [ ${p#/proc/} != $$ ] && kill -9 ${p#/proc/}; done; :";
    exec(&unilith, &[id, "sh", "-c", kill]).ok();
    is_as_before(&unilith, &machine);
}

#[test]
fn input_comes_through_a_pipe_with_its_end_and_without_i_there_is_none() {
    if !is_micro() {
        return;
    }
    let unilith = Unilith::new();
    let machine = shell(&unilith);
    let id = machine.id.as_str();
    let bytes: Vec<u8> = (0..LARGE as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let (code, back) = with_input(&unilith, &["-i", id, "cat"], bytes.clone());
    assert!(code == Some(0) && back == bytes, "{code:?}, {} bytes", back.len());
    // A program that reads a part of it, and one that ends before it was sent.
    let (code, back) = with_input(&unilith, &["-i", id, "head", "-c", "3"], bytes.clone());
    assert!(code == Some(0) && back == bytes[..3]);
    assert_eq!(with_input(&unilith, &["-i", id, "sh", "-c", "exit 3"], bytes.clone()).0, Some(3));
    assert_eq!(with_input(&unilith, &[id, "--", "cat"], b"not for it".to_vec()), (Some(0), Vec::new()));
    exec(&unilith, &["-it", id, "sh"]).fails_with(&["-t needs a terminal"]);
    is_as_before(&unilith, &machine);
}

#[test]
fn directories_come_and_go_with_their_links_and_modes() {
    if !is_micro() {
        return;
    }
    let unilith = Unilith::new();
    let machine = shell(&unilith);
    let from = unilith.path("from");
    fs::create_dir_all(from.join("below")).expect("the scratch directory can be written");
    fs::write(from.join("script"), "#!/bin/sh\n").expect("it can be written");
    fs::set_permissions(from.join("script"), fs::Permissions::from_mode(0o751)).expect("a file of the test");
    fs::set_permissions(from.join("below"), fs::Permissions::from_mode(0o700)).expect("a directory");
    symlink("script", from.join("link")).expect("a link of the test");
    // It leads out of what is copied, there as here.
    symlink("/etc", from.join("out")).expect("a link of the test");
    let inside = |script: &str| exec(&unilith, &[&machine.id, "--", "sh", "-c", script]).ok().out;
    unilith.run(&["cp", &from.display().to_string(), &format!("{}:/tmp/there", machine.id)]).ok();
    let shown = inside("cd /tmp/there; readlink link out; stat -c %a script below; ls -A");
    assert_eq!(shown, "script\n/etc\n751\n700\nbelow\nlink\nout\nscript\n");
    inside("cd /tmp/there/below; ln -s ../link up; mkfifo a-pipe; chmod 711 .");
    let to = unilith.path("to");
    let out = unilith.run(&["cp", &format!("{}:/tmp/there", machine.id), &to.display().to_string()]);
    // What is no file is named, and all else comes.
    out.code(1).complains("/tmp/there/below/a-pipe");
    let target = |name: &str| fs::read_link(to.join(name)).expect("a link").display().to_string();
    assert_eq!([target("link"), target("out"), target("below/up")], ["script", "/etc", "../link"]);
    let mode = |name: &str| fs::metadata(to.join(name)).expect("a file").permissions().mode() & 0o777;
    assert_eq!((mode("script"), mode("below")), (0o751, 0o711));
    assert_eq!(fs::read_to_string(to.join("link")).expect("a file"), "#!/bin/sh\n");
}

#[test]
fn archives_come_and_go_through_standard_input_and_output() {
    if !is_micro() {
        return;
    }
    let unilith = Unilith::new();
    let machine = shell(&unilith);
    let inside = |script: &str| exec(&unilith, &[&machine.id, "--", "sh", "-c", script]).ok().out;
    let line = |line: &str| {
        let line = line.replace("unilith", &unilith_tests::root().join("unilith").display().to_string());
        unilith_tests::finish(&mut unilith.shell(&line.replace("ID", &machine.id)), unilith_tests::PATIENCE)
    };
    line("mkdir -p site/below; echo page > site/below/page; chmod 640 site/below/page; ln -s below/page site/link").ok();
    line("tar -c site | unilith cp - ID:/tmp").ok();
    let shown = inside("cd /tmp/site; cat link; readlink link; stat -c %a below/page");
    assert_eq!(shown, "page\nbelow/page\n640\n");
    let listed = line("unilith cp ID:/tmp/site - | tar -tv").ok().out;
    for entry in [" site/\n", " site/below", " site/link -> below/page\n"] {
        assert!(listed.contains(entry), "{entry:?} of {listed}");
    }
    assert!(
        listed.lines().any(|l| l.starts_with("-rw-r-----") && l.ends_with(" site/below/page")),
        "{listed}"
    );
    // One file is an archive with one entry; what comes back is what went.
    line("unilith cp ID:/tmp/site/below/page - | tar -xO").ok().says("page\n");
    line("unilith cp ID:/tmp/site - | tar -x --one-top-level=back; diff -r site back/site").ok();

    let ran = line("tar -c site | unilith cp - ID:/tmp/nowhere");
    ran.code(1).complains("/tmp/nowhere");
    line("echo no archive | unilith cp - ID:/tmp")
        .code(1)
        .fails_with(&["standard input is no whole tar archive"]);
    line("mkfifo site/pipe; tar -c site | unilith cp - ID:/tmp").code(1).complains("site/pipe is left out");
}

#[test]
fn a_shell_on_a_terminal_has_job_control_and_learns_of_its_size() {
    if !is_micro() {
        return;
    }
    let unilith = Unilith::new();
    let machine = shell(&unilith);
    let words = ["exec", "-it", "-e", "PS1=> ", &machine.id, "bash", "--norc"];
    let mut terminal = Terminal::start(&unilith.command(&words));
    terminal.shows("", "> ");
    terminal.shows("tty; stty size; echo $TERM-\r", "/dev/pts/0\n24 80\nxterm-");
    // The foreground group has the keys; the shell gets the terminal back.
    terminal.shows("sleep 1000000\r", "sleep 1000000\n");
    terminal.shows("\x1a", "Stopped");
    terminal.shows("jobs; fg\r", "sleep 1000000\nsleep 1000000\n");
    terminal.shows("\x03", "^C");
    terminal.shows("echo code $?\r", "code 130");
    terminal.shows("sleep 1000000 & jobs\r", "Running");
    // A job that has ended before `wait` begins is not told of by bash: its code is.
    terminal.shows("kill %1; wait %1; echo code $?\r", "code 143");
    // A line that is edited, and one that is given up.
    terminal.shows("echo wrong\x15echo right\r", "\nright\n");
    // The new size comes by a way of its own, beside what is typed.
    terminal.resize(50, 132);
    let until = "until [ $(stty size | cut -d' ' -f1) = 50 ]; do sleep 0.1; done; stty size\r";
    terminal.shows(until, "\n50 132");
    terminal.shows("trap 'echo WINCH $(stty size)' WINCH; echo set\r", "\nset\n");
    terminal.resize(30, 100);
    terminal.shows("", "WINCH 30 100");
    terminal.types("exit 5\r");
    assert_eq!(terminal.ends().0, Some(5));
    // The end of input ends a shell.
    let mut terminal = Terminal::start(&unilith.command(&words));
    terminal.shows("", "> ");
    terminal.types("\x04");
    assert_eq!(terminal.ends().0, Some(0));
    is_as_before(&unilith, &machine);
}

/// Starts a program whose output nobody reads, or that waits.
fn start(unilith: &Unilith, words: &[&str]) -> Child {
    let mut command = unilith.command(&[&["exec"], words].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().expect("unilith runs")
}

/// Reads a line of what it prints.
fn line(child: &mut Child) -> String {
    let (mut out, mut byte) = (String::new(), [0]);
    let stdout = child.stdout.as_mut().expect("a pipe");
    while stdout.read(&mut byte).expect("its output") == 1 && byte[0] != b'\n' {
        out.push(byte[0].into());
    }
    out
}

#[test]
fn a_client_that_goes_hangs_up_and_one_that_is_interrupted_interrupts() {
    if !is_micro() {
        return;
    }
    let unilith = Unilith::new();
    let machine = shell(&unilith);
    let id = machine.id.as_str();
    // With pipes, and with a terminal.
    let waits = "trap 'echo hung up > /tmp/$1; exit' HUP; echo up; while :; do sleep 0.1; done";
    let mut child = start(&unilith, &["-i", id, "sh", "-c", waits, "sh", "one"]);
    assert_eq!(line(&mut child), "up");
    signal(Signal::KILL, child.id());
    child.wait().expect("it ended");
    eventually("it hears of it", || exec(&unilith, &[id, "cat", "/tmp/one"]).out == "hung up\n");
    let words = ["exec", "-it", id, "sh", "-c", waits, "sh", "two"];
    let mut terminal = Terminal::start(&unilith.command(&words));
    terminal.shows("", "up");
    drop(terminal);
    eventually("it hears of it", || exec(&unilith, &[id, "cat", "/tmp/two"]).out == "hung up\n");
    // Ctrl-C without a terminal.
    let asks = "trap 'echo asked; exit 9' INT; echo up; while :; do sleep 0.1; done";
    let mut child = start(&unilith, &[id, "--", "sh", "-c", asks]);
    assert_eq!(line(&mut child), "up");
    signal(Signal::INT, child.id());
    assert_eq!(line(&mut child), "asked");
    assert_eq!(child.wait().expect("it ended").code(), Some(9));
    // Nobody reads any more.
    let line = format!("{} exec {id} -- yes | head -n 1", unilith_tests::root().join("unilith").display());
    unilith_tests::finish(&mut unilith.shell(&line), unilith_tests::PATIENCE).ok().says("y\n");
    is_as_before(&unilith, &machine);
}

#[test]
fn many_programs_run_at_once_and_one_whose_client_does_not_read_stops_alone() {
    if !is_micro() {
        return;
    }
    let unilith = Unilith::new();
    let machine = shell(&unilith);
    let id = machine.id.as_str();
    let mut slow = start(&unilith, &[id, "--", "yes"]);
    assert_eq!(line(&mut slow), "y");
    let many: Vec<_> = (0..12)
        .map(|n| start(&unilith, &["-i", id, "sh", "-c", &format!("read x; echo $x; exit {n}")]))
        .collect();
    for (n, mut child) in many.into_iter().enumerate() {
        let mut stdin = child.stdin.take().expect("a pipe");
        writeln!(stdin, "line {n}").expect("it reads");
        drop(stdin);
        assert_eq!(line(&mut child), format!("line {n}"));
        assert_eq!(child.wait().expect("it ended").code(), Some(n as i32));
    }
    // What it left behind has nobody in the machine: the kernel reaps it, and its streams end with the program.
    exec(&unilith, &[id, "sh", "-c", "(sleep 0.2; exit 4) & exit 6"]).code(6);
    slow.kill().expect("it runs");
    slow.wait().expect("it ended");
    is_as_before(&unilith, &machine);
}

#[test]
fn the_end_of_the_machine_ends_its_programs_and_one_that_has_ended_says_so() {
    if !is_micro() {
        return;
    }
    let unilith = Unilith::new();
    let machine = shell(&unilith);
    let mut terminal = Terminal::start(&unilith.command(&["exec", "-it", &machine.id, "bash", "--norc"]));
    terminal.shows("echo $((6*7))-\r", "42-");
    unilith.run(&["kill", &machine.id]).ok();
    let (code, shown) = terminal.ends();
    assert!(code == Some(137) && shown.contains("the machine ended"), "{code:?} {shown:?}");
    exec(&unilith, &["-it", &machine.id, "bash"]).fails_with(&["is not running"]);
}

#[test]
fn a_process_machine_with_several_processors_runs_further_programs_or_says_why_not() {
    if !is_micro() || tested_machine() != "process" {
        return;
    }
    let unilith = Unilith::new();
    let machine = unilith.start(&["--cpus", "2", "debian:bash", "--", "-c", "exec sleep 1000000"]);
    let pipeline = exec(&unilith, &[&machine.id, "bash", "-c", "echo $((6*7)) | cat"]);
    if unilith.inspect(&machine.id)["state"]["isolation"] == "filter-only" {
        pipeline.code(126).complains("leave --cpus out");
    } else {
        assert_eq!(pipeline.ok().out, "42\n");
    }
    exec(&unilith, &[&machine.id, "ps"]).ok();
}

/// Programs that take all processes: somebody from outside still gets in, looks around and ends them.
#[test]
fn a_machine_whose_program_has_used_up_all_processes_can_be_entered() {
    let unilith = Unilith::new();
    compile(&unilith, &["cc", "-O1", "-static"], "zombies.c", &[]);
    let bomb = "bomb() { bomb | bomb & }; bomb; while :; do sleep 1000; done";
    for (script, left) in [(bomb, &["bash", "sleep"][..]), ("exec /here/program", &["program"])] {
        let words = ["-m", "96M", "--network", "none", "-v", ".:/here:ro", "debian:bash", "--", "-c", script];
        let machine = unilith.start(&words);
        eventually("it is refused a process", || machine.log().contains("fork: "));
        exec(&unilith, &[&machine.id, "bash", "-c", "echo in; (echo and its child) | cat"])
            .ok()
            .says("in\nand its child\n");
        exec(&unilith, &[&machine.id, "bash", "-c", "kill -9 -1; echo killed"]).ok().says("killed");
        eventually("all others are dead", || processes(&unilith, &machine) == left);
        assert!(!machine.log().contains("out of memory"), "others had to end");
    }
}

#[test]
fn output_that_nobody_reads_holds_up_who_writes_it_and_nobody_else() {
    if !is_micro() {
        return;
    }
    let unilith = Unilith::new();
    let program = compile(&unilith, &["cc", "-O2", "-static"], "unread.c", &[]);
    let mut command =
        unilith.command(&["run", "--rm", "--name", "unread", "--machine", &tested_machine(), &program]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("unilith runs");
    eventually("the machine runs", || exec(&unilith, &["unread", "ps"]).code == Some(0));
    // The machine answers, and its clock goes on, while it writes.
    exec(&unilith, &["unread", "--", "/app/program", "look"]).ok().says("it is full");
    let mut out = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut out).expect("its output");
    let lines: String = (0..200_000).map(|i| format!("{i:07}\n")).collect();
    assert!(
        out == lines + "ok\n",
        "{} bytes, the last are {:?}",
        out.len(),
        &out[out.len().saturating_sub(60)..]
    );
    assert_eq!(child.wait().expect("it ended").code(), Some(0));
}
