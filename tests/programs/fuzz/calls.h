// SPDX-License-Identifier: Apache-2.0 OR MIT
// The calls with the kinds of their arguments. What is not here is made with arguments of any kind.
#pragma once
#include "arguments.h"

struct call {
    long number;
    const char *name;
    argument *arguments[6];
};

#define CALL(name, ...)                                                                                            \
    {                                                                                                              \
        SYS_##name, #name, { __VA_ARGS__ }                                                                         \
    }

static uint64_t open_flags(void)
{
    return BITS(O_WRONLY, O_RDWR, O_RDWR, O_CREAT, O_APPEND, O_NONBLOCK, O_TRUNC, O_DIRECTORY, O_PATH, O_NOFOLLOW,
                O_TMPFILE, O_CLOEXEC, O_EXCL, O_DIRECT, O_ASYNC);
}
static uint64_t at_flags(void)
{
    return BITS(AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, AT_NO_AUTOMOUNT, 1, 2);
}
static uint64_t access_mode(void) { return below(9); }
static uint64_t whence(void) { return below(6); }
static uint64_t fcntl_command(void) { return one_in(3) ? 1024 + below(20) : below(42); }
static uint64_t fcntl_argument(void) { return one_in(3) ? lock() : one_in(2) ? odd() : file(); }
static uint64_t fallocate_mode(void) { return one_in(2) ? 0 : BITS(1, 2, 8, 16, 32, 64); }
static uint64_t splice_flags(void) { return 2 | below(16); }
static uint64_t rw_flags(void) { return BITS(1, 2, 4, 8, 16); }
static uint64_t file_lock(void) { return ONE(1, 2, 5, 6, 8) | 4; }
static uint64_t ioctl_request(void)
{
    return one_in(3)   ? 0x5400 + below(0x80)
           : one_in(2) ? 0x8900 + below(0x100)
                       : ONE(0x80045430, 0x40045431, 0x80045438, 0x80045439, 0x40049409, 0xc0189436, 0x80086601,
                             0x40086602, 0x1260, 0x80081272, 0x80045200, 0x541b, 0x5421, 0x5441);
}
static uint64_t ioctl_argument(void) { return one_in(4) ? odd() : structure(); }

static uint64_t family(void) { return ONE(AF_UNIX, AF_INET, AF_INET, AF_INET6, AF_NETLINK, 17, 0, 44); }
static uint64_t socket_type(void)
{
    return ONE(SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET, SOCK_RAW, SOCK_STREAM, SOCK_DGRAM) |
           BITS(SOCK_NONBLOCK, SOCK_CLOEXEC);
}
static uint64_t protocol(void) { return ONE(0, 0, 0, 1, 6, 17, 58, 255); }
static uint64_t send_flags(void)
{
    return BITS(MSG_DONTWAIT, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_MORE, MSG_OOB, MSG_EOR, MSG_CONFIRM, MSG_FASTOPEN,
                MSG_ZEROCOPY) |
           (one_in(8) ? 0 : MSG_DONTWAIT);
}
static uint64_t receive_flags(void)
{
    return BITS(MSG_PEEK, MSG_TRUNC, MSG_OOB, MSG_WAITALL, MSG_ERRQUEUE, MSG_CMSG_CLOEXEC) |
           (one_in(8) ? 0 : MSG_DONTWAIT);
}
static uint64_t accept_flags(void) { return SOCK_NONBLOCK | BITS(SOCK_CLOEXEC); }
static uint64_t level(void) { return ONE(SOL_SOCKET, SOL_SOCKET, SOL_SOCKET, 0, 6, 6, 17, 41, 58, 255, 270); }
static uint64_t option(void) { return below(84); }
static uint64_t option_value(void)
{
    int value = one_in(3) ? (int)odd() : (int)below(4);
    return one_in(3) ? structure() : pointer_to(&value, sizeof value);
}
static uint64_t option_length(void) { return one_in(2) ? 4 : length(); }
static uint64_t shutdown_how(void) { return below(4); }
static uint64_t epoll_operation(void) { return 1 + below(3); }
static uint64_t milliseconds(void) { return below(3); }

static uint64_t protection(void) { return one_in(8) ? number() : below(8); }
static uint64_t map_flags(void)
{
    return ONE(0x11, 0x12, 0x31, 0x32, 0x22, 0x1032, 0x4032, 0x8032, 0x2012, 0x100022, 0x100032, 0x0112, 0x40022);
}
static uint64_t map_offset(void) { return one_in(8) ? odd() : below(8) * PAGE; }
static uint64_t remap_flags(void) { return below(8); }
static uint64_t advice(void) { return one_in(4) ? ONE(100, 101, 20, 21, 22, 23, 24, 25) : below(20); }
static uint64_t sync_flags(void) { return below(8); }
static uint64_t memfd_flags(void) { return BITS(1, 2, 4, 8, 16); }
static uint64_t attach_flags(void) { return ONE(0, 010000, 020000, 040000, 060000); }

static uint64_t futex_operation(void) { return below(14) | (one_in(2) ? 128 : 0) | (one_in(4) ? 256 : 0); }
static uint64_t clock_id(void) { return one_in(8) ? odd() : below(12); }
static uint64_t timer_id(void) { return below(8); }
static uint64_t key(void) { return below(4); }
static uint64_t ipc_id(void) { return below(8); }
static uint64_t ipc_flags(void) { return ONE(0666, 01666, 01666, 03666); }
static uint64_t ipc_command(void) { return one_in(8) ? 256 | below(20) : below(20); }
static uint64_t ipc_argument(void) { return one_in(2) ? odd() : structure(); }
static uint64_t receive_message_flags(void) { return IPC_NOWAIT | BITS(010000, 020000, 040000); }
static uint64_t message_type(void) { return (uint64_t)((long)below(9) - 4); }
static uint64_t queue_flags(void) { return O_RDWR | O_NONBLOCK | BITS(O_CREAT, O_CREAT, O_EXCL); }
static uint64_t prctl_option(void)
{
    return one_in(8) ? 0x53564d41
                     : ONE(1, 2, 3, 4, 7, 8, 13, 14, 15, 16, 21, 23, 24, 25, 26, 28, 29, 30, 35, 36, 37, 38, 39, 40,
                           42, 45, 47, 48, 52, 53, 55, 62, 65, 66, 67, 68);
}
static uint64_t watch_mask(void) { return one_in(2) ? 0xfff : number(); }

static uint64_t below_slot(void) { return one_in(12) ? odd() : below(SLOT); }
static uint64_t virtual_timer(void) { return 1 + below(3); }
static uint64_t few_blocks(void) { return one_in(12) ? odd() : 1; }
static uint64_t wait_flags(void) { return 1 | BITS(2, 4, 8, 0x1000000, 0x40000000); }
static uint64_t namespaces(void)
{
    return BITS(0x200, 0x400, 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x40000000);
}

static const struct call calls[] = {
    // Files by name.
    CALL(openat, directory, path, open_flags, mode),
    CALL(openat, directory, path, open_flags, mode),
    CALL(openat, directory, own_path, open_flags, mode),
    CALL(open, path, open_flags, mode),
    CALL(creat, own_path, mode),
    CALL(openat2, directory, path, structure, length),
    CALL(mkdir, own_path, mode),
    CALL(mknodat, directory, own_path, mode, zero),
    CALL(unlink, own_path),
    CALL(rmdir, own_path),
    CALL(unlinkat, directory, own_path, at_flags),
    CALL(rename, own_path, own_path),
    CALL(renameat2, directory, own_path, directory, own_path, few),
    CALL(link, path, own_path),
    CALL(linkat, directory, path, directory, own_path, at_flags),
    CALL(symlink, path, own_path),
    CALL(readlink, path, memory, length),
    CALL(readlinkat, directory, path, memory, length),
    CALL(stat, path, memory),
    CALL(lstat, path, memory),
    CALL(newfstatat, directory, path, memory, at_flags),
    CALL(statx, directory, path, at_flags, odd, memory),
    CALL(statfs, path, memory),
    CALL(access, path, access_mode),
    CALL(faccessat2, directory, path, access_mode, at_flags),
    CALL(chmod, own_path, mode),
    CALL(fchmodat, directory, own_path, mode),
    CALL(chown, own_path, user, user),
    CALL(fchownat, directory, own_path, user, user, at_flags),
    CALL(truncate, own_path, offset),
    CALL(utimensat, directory, own_path, structure, at_flags),
    CALL(chdir, path),
    CALL(getcwd, memory, length),
    CALL(setxattr, own_path, name, memory, length, few),
    CALL(getxattr, own_path, name, memory, length),
    CALL(listxattr, path, memory, length),
    CALL(removexattr, own_path, name),
    CALL(fsetxattr, file, name, memory, length, few),
    CALL(fgetxattr, file, name, memory, length),
    CALL(inotify_add_watch, file, path, watch_mask),
    CALL(inotify_rm_watch, file, few),
    CALL(chroot, own_path),
    CALL(name_to_handle_at, directory, path, structure, memory, at_flags),
    // Open files.
    CALL(read, file, memory, length),
    CALL(read, file, memory, length),
    CALL(write, file, memory, length),
    CALL(write, file, memory, length),
    CALL(readv, file, vector, few),
    CALL(writev, file, vector, few),
    CALL(pread64, file, memory, length, offset),
    CALL(pwrite64, file, memory, length, offset),
    CALL(preadv2, file, vector, few, offset, zero, rw_flags),
    CALL(pwritev2, file, vector, few, offset, zero, rw_flags),
    CALL(lseek, file, offset, whence),
    CALL(ftruncate, file, offset),
    CALL(fallocate, file, fallocate_mode, offset, offset),
    CALL(fstat, file, memory),
    CALL(fsync, file),
    CALL(fdatasync, file),
    CALL(sync_file_range, file, offset, offset, few),
    CALL(fadvise64, file, offset, offset, few),
    CALL(readahead, file, offset, length),
    CALL(getdents64, file, memory, length),
    CALL(getdents, file, memory, length),
    CALL(fchdir, file),
    CALL(fchmod, file, mode),
    CALL(fchown, file, user, user),
    CALL(flock, file, file_lock),
    CALL(fcntl, file, fcntl_command, fcntl_argument),
    CALL(fcntl, file, fcntl_command, fcntl_argument),
    CALL(ioctl, file, ioctl_request, ioctl_argument),
    CALL(ioctl, file, ioctl_request, ioctl_argument),
    CALL(dup, file),
    CALL(dup3, file, file, flags),
    CALL(read, file, pages, length),
    CALL(write, file, pages, length),
    CALL(sendfile, file, file, offset_pointer, length),
    CALL(splice, file, offset_pointer, file, offset_pointer, length, splice_flags),
    CALL(tee, file, file, length, splice_flags),
    CALL(vmsplice, file, vector, few, splice_flags),
    CALL(copy_file_range, file, offset_pointer, file, offset_pointer, length, zero),
    CALL(pipe2, memory, open_flags),
    CALL(eventfd2, odd, flags),
    CALL(memfd_create, name, memfd_flags),
    CALL(inotify_init1, zero),
    CALL(signalfd4, file, signal_set, signal_set_length, flags),
    CALL(close_range, odd, odd, few),
    // Waiting for files.
    CALL(epoll_create1, zero),
    CALL(epoll_ctl, file, epoll_operation, file, epoll_event),
    CALL(epoll_ctl, file, epoll_operation, file, epoll_event),
    CALL(epoll_wait, file, memory, few, milliseconds),
    CALL(epoll_pwait2, file, memory, few, duration, signal_set, signal_set_length),
    CALL(poll, polled, few, milliseconds),
    CALL(ppoll, polled, few, duration, signal_set, signal_set_length),
    CALL(select, few, structure, structure, structure, duration),
    CALL(pselect6, few, structure, structure, structure, duration, zero),
    // Sockets.
    CALL(socket, family, socket_type, protocol),
    CALL(socketpair, family, socket_type, protocol, memory),
    CALL(bind, a_socket, address, address_length),
    CALL(connect, a_socket, address, address_length),
    CALL(connect, a_socket, address, address_length),
    CALL(listen, a_socket, few),
    CALL(accept4, a_socket, null_or_memory, length_pointer, accept_flags),
    CALL(getsockname, a_socket, memory, length_pointer),
    CALL(getpeername, a_socket, memory, length_pointer),
    CALL(sendto, a_socket, memory, length, send_flags, null_or_address, address_length),
    CALL(sendto, a_socket, memory, length, send_flags, null_or_address, address_length),
    CALL(recvfrom, a_socket, memory, length, receive_flags, null_or_memory, length_pointer),
    CALL(sendto, a_socket, request, request_length, send_flags, zero, zero),
    CALL(sendmsg, a_socket, message, send_flags),
    CALL(sendmsg, a_socket, message, send_flags),
    CALL(recvmsg, a_socket, message, receive_flags),
    CALL(recvmsg, a_socket, message, receive_flags),
    CALL(sendmmsg, a_socket, messages, few, send_flags),
    CALL(recvmmsg, a_socket, messages, few, receive_flags, duration),
    CALL(setsockopt, a_socket, level, option, option_value, option_length),
    CALL(setsockopt, a_socket, level, option, option_value, option_length),
    CALL(getsockopt, a_socket, level, option, memory, length_pointer),
    CALL(shutdown, a_socket, shutdown_how),
    // Memory.
    CALL(mmap, pages, pages_length, protection, map_flags, file, map_offset),
    CALL(mmap, pages, pages_length, protection, map_flags, file, map_offset),
    CALL(munmap, pages, pages_length),
    CALL(mremap, pages, pages_length, pages_length, remap_flags, pages),
    CALL(mprotect, pages, pages_length, protection),
    CALL(madvise, pages, pages_length, advice),
    CALL(mlock2, pages, pages_length, few),
    CALL(munlock, pages, pages_length),
    CALL(msync, pages, pages_length, sync_flags),
    CALL(mincore, pages, pages_length, memory),
    CALL(process_madvise, file, vector, few, advice, zero),
    CALL(remap_file_pages, pages, pages_length, zero, few, flags),
    CALL(mbind, pages, pages_length, few, structure, few, few),
    CALL(pkey_mprotect, pages, pages_length, protection, few),
    CALL(shmget, key, length, ipc_flags),
    CALL(shmat, ipc_id, pages, attach_flags),
    CALL(shmdt, pages),
    CALL(shmctl, ipc_id, ipc_command, structure),
    CALL(mlockall, few),
    CALL(munlockall),
    // Queues and semaphores.
    CALL(semget, key, few, ipc_flags),
    CALL(semop, ipc_id, semaphore_operations, few),
    CALL(semtimedop, ipc_id, semaphore_operations, few, duration),
    CALL(semctl, ipc_id, few, ipc_command, ipc_argument),
    CALL(msgget, key, ipc_flags),
    CALL(msgsnd, ipc_id, typed_message, below_slot, receive_message_flags),
    CALL(msgrcv, ipc_id, memory, length, message_type, receive_message_flags),
    CALL(msgctl, ipc_id, ipc_command, structure),
    CALL(mq_open, name, queue_flags, mode, queue_shape),
    CALL(mq_unlink, name),
    CALL(mq_timedsend, file, memory, length, odd, duration),
    CALL(mq_timedreceive, file, memory, length, null_or_memory, duration),
    CALL(mq_notify, file, signal_event),
    CALL(mq_getsetattr, file, queue_shape, null_or_memory),
    // Time.
    CALL(futex, word, futex_operation, few, duration, word, few),
    CALL(futex, word, futex_operation, few, duration, word, few),
    CALL(futex_waitv, structure, few, zero, duration, clock_id),
    CALL(timer_create, clock_id, signal_event, memory),
    CALL(timer_settime, timer_id, few, timer, null_or_memory),
    CALL(timer_gettime, timer_id, memory),
    CALL(timer_delete, timer_id),
    CALL(timerfd_create, clock_id, flags),
    CALL(timerfd_settime, file, few, timer, null_or_memory),
    CALL(timerfd_gettime, file, memory),
    CALL(nanosleep, duration, null_or_memory),
    CALL(clock_nanosleep, clock_id, zero, duration, null_or_memory),
    CALL(clock_gettime, clock_id, memory),
    CALL(getitimer, few, memory),
    CALL(setitimer, virtual_timer, structure, null_or_memory),
    CALL(adjtimex, structure),
    // Asynchronous I/O.
    CALL(io_setup, few, context_pointer),
    CALL(io_submit, context, few_blocks, control_blocks),
    CALL(io_submit, context, few_blocks, control_blocks),
    CALL(io_getevents, context, zero, few, memory, duration),
    CALL(io_cancel, context, structure, memory),
    CALL(io_destroy, context),
    // Processes, users and signals.
    CALL(prctl, prctl_option, ipc_argument, odd, odd, odd),
    CALL(sigaltstack, structure, null_or_memory),
    CALL(rt_sigtimedwait, signal_set, null_or_memory, duration, signal_set_length),
    CALL(rt_sigpending, memory, signal_set_length),
    CALL(capget, structure, structure),
    CALL(capset, structure, structure),
    CALL(getgroups, few, memory),
    CALL(setfsuid, user),
    CALL(setfsgid, user),
    CALL(getpriority, few, process),
    CALL(setpriority, few, process, few),
    CALL(getrusage, few, memory),
    CALL(times, memory),
    CALL(sysinfo, memory),
    CALL(sched_setaffinity, process, length, structure),
    CALL(sched_getaffinity, process, length, memory),
    CALL(sched_getattr, process, memory, length, zero),
    CALL(sched_yield),
    CALL(sched_rr_get_interval, process, memory),
    CALL(getcpu, memory, memory),
    CALL(pidfd_open, process, flags),
    CALL(pidfd_getfd, file, few, zero),
    CALL(waitid, few, process, null_or_memory, wait_flags, null_or_memory),
    CALL(get_robust_list, process, memory, memory),
    CALL(set_tid_address, memory),
    CALL(rseq, structure, length, few, odd),
    CALL(membarrier, flags, zero, few),
    CALL(unshare, namespaces),
    CALL(setns, file, namespaces),
    CALL(uname, memory),
    CALL(sethostname, name, few),
    CALL(getrandom, memory, length, few),
    CALL(ioprio_set, few, process, odd),
    CALL(kcmp, process, process, few, few, few),
    CALL(personality, odd),
    CALL(getresuid, memory, memory, memory),
    CALL(setpgid, process, process),
    CALL(getsid, process),
    CALL(rt_sigqueueinfo, zero, signal_number, structure),
    CALL(prlimit64, zero, few, limits, null_or_memory),
    CALL(process_vm_readv, process, vector, few, vector, few, zero),
};
