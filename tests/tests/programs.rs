// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of `tests/programs` that check what the kernel does from inside, each built with glibc, dynamic and static.

use std::time::Duration;
use unilith_tests::{
    BUILD_KERNEL, MORE_PARTS, Unilith, compile, finish, is_short_of_time, is_skipped_where_slow,
    tested_machine,
};

/// Thousands of signals under software emulation take their time.
const PATIENCE: Duration = Duration::from_secs(180);

#[track_caller]
fn passes(source: &str, says: &str) {
    // The dynamic one asks more of the kernel.
    let linkings: &[&[&str]] = if is_short_of_time() { &[&[]] } else { &[&[], &["-static"]] };
    for linking in linkings {
        let unilith = Unilith::new();
        let compiler = [&["cc", "-O2", "-pthread"], *linking].concat();
        let program = compile(&unilith, &compiler, source, &[]);
        unilith.program_within(&[&program], PATIENCE).ok().says(says);
    }
}

#[test]
fn mappings_faults_and_the_break_are_as_on_linux() {
    passes("memory.c", "memory ok");
}

/// By /dev/kmsg, /proc/kmsg and syslog(2), as dmesg, rsyslog and journald read it.
#[test]
fn the_kernels_log_is_read_as_on_linux() {
    passes("kernel_log.c", "the log is as on Linux");
}

#[test]
fn memory_is_promised_as_vm_overcommit_memory_says() {
    if !unilith_tests::is_skipped_without_micro(
        "the settings are those of the machine, which Linux' tests hold",
    ) {
        passes("overcommit.c", "promises are kept");
    }
}

#[test]
fn volumes_are_read_and_written_with_memory_of_all_kinds() {
    if unilith_tests::is_skipped_on_process("its messages are copied through a socket") {
        return;
    }
    let unilith = Unilith::new();
    let program = compile(&unilith, &["cc", "-O2"], "volume.c", &[]);
    let folder = unilith.path("data");
    std::fs::create_dir(&folder).expect("the scratch directory can be written");
    let volume = format!("{}:/data", folder.display());
    let words = ["-v", &volume, &program, "--", "/data/file"];
    unilith.program_within(&words, PATIENCE).ok().says("volume: all is there");
}

#[test]
fn files_of_a_volume_that_lost_their_name_are_not_taken_for_those_that_have_it_since() {
    let unilith = Unilith::new();
    let program = compile(&unilith, &["cc", "-O2"], "volume_names.c", &[]);
    let folder = unilith.path("data");
    std::fs::create_dir(&folder).expect("the scratch directory can be written");
    let volume = format!("{}:/data", folder.display());
    unilith.program_within(&["-v", &volume, &program, "--", "/data"], PATIENCE).ok().says("each is itself");
}

/// In the root file system, in a volume, and in one whose kernel looks for threads that wait with a lock held.
#[test]
fn watches_hear_of_files_that_only_memory_has() {
    let unilith = Unilith::new();
    let program = compile(&unilith, &["cc", "-O2", "-pthread"], "last_holders.c", &[]);
    let folder = unilith.path("data");
    std::fs::create_dir(&folder).expect("the scratch directory can be written");
    let volume = format!("{}:/data", folder.display());
    unilith.program_within(&[&program, "--", "/tmp"], PATIENCE).ok().says("all have let go");
    unilith.program_within(&["-v", &volume, &program, "--", "/data"], PATIENCE).ok().says("all have let go");
    if !unilith_tests::is_skipped_without_micro("the looking kernel is ours") {
        let words = ["--set", "fail-nth=on", "-v", &volume, &program, "--", "/data"];
        unilith.program_within(&words, BUILD_KERNEL).ok().says("all have let go");
    }
}

#[test]
fn a_warning_that_a_program_brings_about_again_and_again_does_not_fill_the_log() {
    if unilith_tests::is_skipped_without_micro("what it asks for is refused by our kernel alone") {
        return;
    }
    let unilith = Unilith::new();
    let program = compile(&unilith, &["cc", "-O2", "-static"], "warned.c", &[]);
    let ran = unilith.program_within(&[&program], PATIENCE).ok().says("asked");
    let warnings = ran.err.lines().filter(|line| line.contains("ARCH_SET_GS")).count();
    // Ten in five seconds, and the program may take longer than these.
    assert!((1..=30).contains(&warnings), "{warnings} warnings in {ran}");
}

#[test]
fn signals_are_those_of_linux() {
    passes("signals.c", "all signal tests passed");
}

#[test]
fn a_program_that_changes_gs_changes_nothing_for_the_kernel() {
    passes("segments.c", "segment tests");
}

#[test]
fn sockets_that_are_bound_connected_and_shut_again_are_as_on_linux() {
    passes("reconnected.c", "all tests of sockets that are connected again passed");
}

#[test]
fn clocks_and_timers_are_those_of_linux() {
    passes("timers.c", "all timer tests passed");
}

#[test]
fn ids_limits_and_names_are_those_of_linux() {
    passes("identity.c", "all identity tests passed");
}

#[test]
fn processes_are_those_of_linux() {
    passes("processes.c", "all process tests passed");
}

#[test]
fn threads_are_traced_as_on_linux() {
    passes("ptrace.c", "all ptrace tests passed");
}

#[test]
fn a_program_is_replaced_whatever_its_threads_do() {
    passes("exec.c", "all exec tests passed");
}

#[test]
fn calls_that_a_program_gives_away_are_gone() {
    passes("seccomp.c", "all filter tests passed");
}

#[test]
fn filters_have_other_processes_decide_as_on_linux() {
    passes("seccomp_notify.c", "another process decides");
}

#[test]
fn restartable_sequences_are_those_of_linux() {
    passes("rseq.c", "restartable sequences work");
}

#[test]
fn time_namespaces_are_those_of_linux() {
    passes("time_namespaces.c", "each namespace has its time");
}

#[test]
fn memory_of_other_processes_and_nodes_is_as_on_linux() {
    passes("others_memory.c", "memory of others works");
}

#[test]
fn a_system_call_changes_no_vector_register() {
    passes("registers.c", "all register tests passed");
}

#[test]
fn limits_hold() {
    passes("limits.c", "all limit tests passed");
}

#[test]
fn message_queues_are_those_of_posix() {
    passes("queues.c", "all queue tests passed");
}

#[test]
fn system_v_ipc_is_that_of_linux() {
    passes("ipc.c", "all IPC tests passed");
}

#[test]
fn tables_of_sockets_and_memory_by_process_are_those_of_linux() {
    passes("tables.c", "all table tests passed");
}

#[test]
fn asynchronous_io_is_that_of_linux() {
    passes("aio.c", "all AIO tests passed");
}

/// The part is not in the kernel unless it is asked for.
/// In the kernel that has all parts that are not put in by themselves, so that there is one more to build.
fn passes_with_more_parts(source: &str, says: &str) {
    let unilith = Unilith::new();
    let machine = tested_machine();
    let program = compile(&unilith, &["cc", "-O2", "-pthread"], source, &[]);
    let words = [&["run", "--rm", "--machine", &machine][..], &MORE_PARTS, &[&program]].concat();
    finish(&mut unilith.command(&words), BUILD_KERNEL).ok().says(says);
}

#[test]
fn keys_and_keyrings_are_those_of_linux() {
    passes_with_more_parts("keys.c", "all key tests passed");
}

#[test]
fn rights_on_files_are_given_away_as_on_linux() {
    passes_with_more_parts("landlock.c", "all landlock tests passed");
}

#[test]
fn unions_of_directories_are_those_of_linux() {
    passes_with_more_parts("overlay_mounts.c", "all tests of union mounts passed");
}

#[test]
fn rings_of_requests_are_those_of_linux() {
    passes_with_more_parts("io_uring.c", "all io_uring tests passed");
}

#[test]
fn hostile_rings_end_no_kernel() {
    passes_with_more_parts("io_uring_hostile.c", "all hostile rings answered");
}

#[test]
fn the_clock_can_be_set() {
    passes("clock.c", "all clock tests passed");
}

#[test]
fn names_contents_and_descriptors_are_those_of_linux() {
    passes("files.c", "all file tests passed");
}

#[test]
fn hostile_arguments_end_no_kernel() {
    passes("hostile.c", "all hostile calls answered");
}

#[test]
fn sockets_are_those_of_linux() {
    passes("sockets.c", "all socket tests passed");
}

#[test]
fn threads_are_who_they_are_and_sockets_tell_it_as_on_linux() {
    passes("likeness.c", "all likeness tests passed");
    passes("likeness_files.c", "all likeness tests of files passed");
}

#[test]
fn what_the_suites_of_libraries_and_languages_ask_for_is_as_on_linux() {
    passes("likeness_suites.c", "all likeness tests of suites passed");
    passes("likeness_systemd.c", "all likeness tests of systemd passed");
}

#[test]
fn what_a_program_says_of_itself_is_as_on_linux() {
    passes("proc_title.c", "what it says of itself");
}

#[test]
fn what_straces_tests_ask_for_is_as_on_linux() {
    let says = "all likeness tests of strace passed";
    passes("likeness_strace.c", says);
    if tested_machine() != "process" {
        // QEMU's server of volumes opens no sockets, and to make one it opens it (ENXIO).
        return;
    }
    // In a volume the host gives the numbers of files.
    let unilith = Unilith::new();
    let data = unilith.path("data");
    std::fs::create_dir(&data).unwrap();
    let program = compile(&unilith, &["cc", "-O2", "-static"], "likeness_strace.c", &[]);
    let volume = format!("{}:/data", data.display());
    unilith.program_within(&["-v", &volume, &program, "--", "/data"], PATIENCE).ok().says(says);
}

#[test]
fn what_linux_own_tests_ask_for_is_as_on_linux() {
    passes("likeness_selftests.c", "all likeness tests of selftests passed");
}

#[test]
fn what_proc_says_of_memory_and_calls_is_as_on_linux() {
    passes("likeness_proc.c", "all likeness tests of /proc passed");
}

#[test]
fn calls_with_a_deadline_go_on_as_restart_syscall() {
    passes("likeness_restart.c", "all tests of calls that are made again passed");
}

#[test]
fn settings_that_tests_write_have_the_effect_they_have_on_linux() {
    passes("likeness_sysctl.c", "all likeness tests of settings passed");
}

#[test]
fn the_mtu_of_loopback_keys_of_fast_open_and_ramfs_are_as_on_linux() {
    passes("likeness_network.c", "all likeness tests of the network passed");
}

#[test]
fn what_gvisors_tests_of_system_calls_ask_for_is_as_on_linux() {
    passes("likeness_gvisor.c", "all likeness tests of gVisor's passed");
}

#[test]
fn what_the_open_posix_test_suite_asks_for_is_as_on_linux() {
    passes("likeness_posix.c", "all likeness tests of POSIX passed");
}

/// With several processors its storm of signals crosses from one to another.
#[test]
fn signals_between_processors_do_not_pile_up() {
    if unilith_tests::is_skipped_without_micro("several processors of Linux have tests of their own") {
        return;
    }
    let unilith = Unilith::new();
    let program = compile(&unilith, &["cc", "-O2", "-pthread"], "likeness_posix.c", &[]);
    let ran = unilith.program_within(&["--cpus", "2", &program], PATIENCE);
    ran.ok().says("all likeness tests of POSIX passed");
}

#[test]
fn options_of_sockets_are_kept_refused_and_read_back_as_on_linux() {
    passes("socket_options.c", "socket options: ok");
}

#[test]
fn filters_of_sockets_see_and_leave_of_packets_what_they_do_on_linux() {
    passes("socket_filters.c", "socket filters: ok");
}

#[test]
fn looks_at_an_offset_and_sends_without_a_copy_are_told_of_as_on_linux() {
    passes("peek_and_zero_copy.c", "peek offsets and zero copy: ok");
}

#[test]
fn the_urgent_byte_of_an_af_unix_stream_is_read_and_passed_over_as_on_linux() {
    passes("unix_urgent.c", "urgent bytes of AF_UNIX: ok");
}

#[test]
fn raw_sockets_of_ipv6_and_what_shutdown_does_to_raw_sockets_are_as_on_linux() {
    passes("raw_ipv6.c", "raw sockets of IPv6: ok");
}

#[test]
fn groups_of_raw_sockets_shared_ports_and_answers_of_netlink_are_as_on_linux() {
    passes("groups_and_answers.c", "groups and answers: ok");
}

#[test]
fn sockets_of_all_programs_are_told_as_on_linux() {
    passes("sock_diag.c", "sock_diag: ok");
}

#[test]
fn sys_says_of_interfaces_what_their_calls_say() {
    passes("class_net.c", "interfaces in /sys: ok");
}

#[test]
fn packet_sockets_see_and_send_frames_as_on_linux() {
    passes("packet_sockets.c", "packet sockets: ok");
}

#[test]
fn rings_of_packet_sockets_are_mapped_and_filled_as_on_linux() {
    passes("packet_rings.c", "packet rings: ok");
}

#[test]
fn interfaces_addresses_routes_and_rules_are_made_and_used_as_on_linux() {
    passes_with_more_parts("interfaces.c", "interfaces: ok");
}

#[test]
fn interfaces_without_end_and_frames_in_circles_leave_the_machine_to_others() {
    passes_with_more_parts("hostile_interfaces.c", "hostile interfaces: ok");
}

#[test]
fn random_requests_of_rtnetlink_and_packets_of_tunnels_end_no_kernel() {
    passes_with_more_parts("hostile_netlink.c", "hostile netlink: ok");
}

/// In a machine of that size.
fn passes_in(size: &[&str], source: &str, says: &str) {
    let unilith = Unilith::new();
    let program = compile(&unilith, &["cc", "-O2", "-pthread", "-static"], source, &[]);
    unilith.program_within(&[size, &[&program]].concat(), PATIENCE).ok().says(says);
}

fn passes_on_two(source: &str, says: &str) {
    passes_in(&["--cpus", "2"], source, says);
}

#[test]
fn mounts_in_circles_and_trees_without_a_bottom_end_no_kernel() {
    passes_on_two("hostile_mounts.c", "hostile mounts: ok");
}

#[test]
fn namespaces_that_are_entered_traced_and_left_at_once_end_no_kernel() {
    passes_on_two("hostile_namespaces.c", "hostile namespaces: ok");
}

#[test]
fn a_user_gets_nothing_of_another_one_nor_of_the_machine() {
    passes("hostile_users.c", "hostile users: ok");
}

#[test]
fn objects_without_end_leave_a_small_machine_its_memory() {
    let unilith = Unilith::new();
    let program = compile(&unilith, &["cc", "-O2", "-pthread", "-static"], "hoards.c", &[]);
    for kind in [
        "mounts",
        "mount namespaces",
        "network namespaces",
        "sockets",
        "unread answers",
        "pipes",
        "zombies",
        "connections",
    ] {
        let words = ["-m", "64M", &program, "--", kind];
        unilith.program_within(&words, PATIENCE).ok().says("hoards: ok");
    }
}

#[test]
fn calls_without_end_let_others_run() {
    passes_in(&["-m", "1G"], "long_calls.c", "long calls: ok");
}

#[test]
fn programs_with_set_user_id_bits_get_their_owners_rights() {
    passes("set_id.c", "all set-id tests passed");
}

#[test]
fn programs_whose_files_have_capabilities_get_them_within_the_bounds() {
    passes("file_capabilities.c", "all tests of files' capabilities passed");
}

#[test]
fn what_the_linux_test_project_asks_for_is_as_on_linux() {
    passes("likeness_ltp.c", "all likeness tests of LTP passed");
    passes("likeness_shared.c", "all likeness tests of shared directories passed");
}

#[test]
fn a_number_that_is_given_out_again_leads_nobody_to_the_wrong_process() {
    passes("reused_numbers.c", "all tests of reused numbers passed");
}

#[test]
fn numbers_and_ids_are_those_of_the_viewers_namespace() {
    passes("namespaces.c", "all namespace tests passed");
}

#[test]
fn threads_have_files_and_namespaces_of_their_own() {
    passes("threads_apart.c", "all tests of threads apart passed");
}

#[test]
fn mounts_are_bound_moved_and_seen_in_their_namespace() {
    passes("mounts.c", "all mount tests passed");
}

#[test]
fn mounts_are_made_kept_and_changed_by_descriptors() {
    passes("mount_trees.c", "all tests of mounts by descriptors passed");
}

#[test]
fn mounts_show_where_their_peers_and_masters_are() {
    passes("shared_mounts.c", "all tests of shared mounts passed");
}

#[test]
fn sockets_that_hold_only_each_other_are_closed() {
    passes("flight.c", "all flight tests passed");
}

#[test]
fn many_objects_take_no_walk_over_all_for_each() {
    passes("scaling.c", "all scaling tests passed");
}

#[test]
fn access_control_lists_are_those_of_tmpfs() {
    passes("acl.c", "all acl tests passed");
}

#[test]
fn settings_of_the_kernel_that_are_written_take_effect() {
    passes("sysctl.c", "all sysctl tests passed");
}

#[test]
fn settings_of_a_namespace_forbid_and_bring_about_what_they_do_on_linux() {
    passes("namespaced.c", "all tests of namespaced settings passed");
}

#[test]
fn settings_locks_and_lists_of_objects_are_those_of_linux() {
    passes("settings.c", "all settings tests passed");
}

#[test]
fn files_within_files_close_and_wake_as_on_linux() {
    passes("readiness.c", "all readiness tests passed");
}

#[test]
fn sockets_of_the_machine_are_those_of_linux() {
    passes("unix.c", "all unix tests passed");
}

#[test]
fn what_threads_and_calls_share_is_kept_as_on_linux() {
    passes("state.c", "all state tests passed");
}

/// More sockets than a table in one block would hold, and memory that is used up.
#[test]
fn a_hundred_thousand_sockets_and_full_memory_end_no_kernel() {
    let unilith = Unilith::new();
    let program = compile(&unilith, &["cc", "-O2"], "exhaustion.c", &[]);
    let words = ["-m", "512M", &program, "--", "fill"];
    unilith.program_within(&words, PATIENCE).ok().says("all exhaustion tests passed");
}

/// In a machine so small that memory is what ends it: the call is refused, or a process is ended, if need be the first one and
/// with it the machine. The kernel has no fault of its own.
#[test]
fn objects_of_every_kind_are_refused_when_memory_ends() {
    if is_skipped_where_slow() {
        return;
    }
    let unilith = Unilith::new();
    let program = compile(&unilith, &["cc", "-O2", "-static"], "objects.c", &[]);
    let kinds = [
        "terminals",
        "attributes",
        "semaphores",
        "messages",
        "advice",
        "locks",
        "loopback",
        "netlink",
        "datagrams",
        "epolls",
    ];
    for kind in kinds {
        let ran = unilith.program_within(&["-m", "48M", &program, kind], PATIENCE);
        let is_refused = ran.code == Some(0) && ran.out.contains("all object tests passed");
        let is_ended = ran.err.contains("ran out of memory: it had 48 MiB");
        assert!((is_refused || is_ended) && !ran.err.contains("panic"), "{kind}: {ran}");
    }
}

/// One kind after the other in one machine: what each took serves the next.
#[test]
fn memory_that_the_kernel_took_for_a_program_is_free_when_that_has_ended() {
    let unilith = Unilith::new();
    let program = compile(&unilith, &["cc", "-O2", "-static"], "objects.c", &[]);
    let kinds = ["tcp", "udp", "clocks", "datagrams", "attributes", "messages", "advice", "locks"];
    let words = [&["-m", "64M", &program], &kinds[..]].concat();
    unilith.program_within(&words, PATIENCE).ok().says("all object tests passed");
}

/// All kinds in a machine as large as most: what is left of its heap are small holes between objects. Its emulation takes minutes.
#[test]
fn objects_of_all_kinds_find_an_end_in_an_ordinary_machine() {
    if tested_machine() != "process" {
        return;
    }
    let unilith = Unilith::new();
    let program = compile(&unilith, &["cc", "-O2", "-static"], "objects.c", &[]);
    unilith.program_within(&[&program], 2 * PATIENCE).ok().says("all object tests passed");
}

/// Whoever has the memory ends, and neither a call nor a signal of another process fails for want of a page.
#[test]
fn the_kernel_waits_for_its_pages_when_memory_ends() {
    let unilith = Unilith::new();
    let program = compile(&unilith, &["cc", "-O2", "-static"], "victims.c", &[]);
    unilith.program_within(&["-m", "64M", &program], PATIENCE).ok().says("beside 6 victims");
}

/// What the kernel notes of a range in many pieces is as long as they are many.
#[test]
fn calls_on_many_pieces_of_memory_come_about_where_there_is_no_more_of_it() {
    let unilith = Unilith::new();
    let program = compile(&unilith, &["cc", "-O2", "-static"], "brimful.c", &[]);
    unilith.program_within(&["-m", "768M", &program], PATIENCE).ok().says("the kernel went on");
}

#[test]
fn children_are_handed_on_where_there_is_no_memory() {
    let unilith = Unilith::new();
    let program = compile(&unilith, &["cc", "-O2", "-static"], "handed_on.c", &[]);
    unilith.program_within(&["-m", "64M", &program, "100000"], PATIENCE).ok().says("handed on many: ok");
}

/// A process of the host has fewer mappings than a machine's program may have pieces of memory.
#[test]
fn memory_in_more_pieces_than_a_host_has_mappings_for_is_all_there() {
    let unilith = Unilith::new();
    let program = compile(&unilith, &["cc", "-O2", "-static"], "scattered.c", &[]);
    unilith.program_within(&["-m", "768M", &program], PATIENCE).ok().says("all scattered pages are right");
}

#[test]
fn what_proc_tells_of_memory_and_of_others_sockets_is_true() {
    passes("maps.c", "all tests of maps passed");
}

#[test]
fn sockets_of_ipv6_serve_both_families() {
    passes("ipv6.c", "all IPv6 tests passed");
}

#[test]
fn changes_of_files_are_told() {
    passes("inotify.c", "all inotify tests passed");
}

#[test]
fn events_processes_and_memory_are_those_of_linux() {
    passes("events.c", "all event tests passed");
}

#[test]
fn processor_time_and_priorities_are_those_of_linux() {
    passes("scheduling.c", "all scheduling tests passed");
}

#[test]
fn urgent_data_and_signals_of_files_are_those_of_linux() {
    passes("urgent.c", "all urgent tests passed");
}

#[test]
fn sockets_below_the_transports_are_those_of_linux() {
    passes("raw.c", "all raw tests passed");
}

#[test]
fn of_several_errors_calls_answer_that_of_linux() {
    passes("precedence.c", "all precedence tests passed");
}
