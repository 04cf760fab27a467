// SPDX-License-Identifier: Apache-2.0 OR MIT
// What strace's own tests ask for, in which this kernel once differed from Linux.
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))

static void a_socket_says_the_name_of_its_protocol(void) {
    static const struct { int family, type, protocol; const char *name; } cases[] = {
        { AF_UNIX, SOCK_STREAM, 0, "UNIX-STREAM" }, { AF_UNIX, SOCK_DGRAM, 0, "UNIX" }, { AF_UNIX, SOCK_SEQPACKET, 0, "UNIX" },
        { AF_INET, SOCK_STREAM, 0, "TCP" }, { AF_INET, SOCK_DGRAM, 0, "UDP" }, { AF_INET, SOCK_RAW, IPPROTO_UDP, "RAW" },
        { AF_INET6, SOCK_STREAM, 0, "TCPv6" }, { AF_INET6, SOCK_DGRAM, 0, "UDPv6" }, { AF_NETLINK, SOCK_RAW, NETLINK_ROUTE, "NETLINK" },
    };
    static const char name[] = "system.sockprotoname";
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        int fd = socket(cases[i].family, cases[i].type, cases[i].protocol);
        if (fd < 0 && cases[i].family == AF_INET6)
            continue;
        char said[32], path[40];
        ssize_t length = strlen(cases[i].name) + 1;
        CHECK(fd >= 0 && fgetxattr(fd, name, said, sizeof said) == length && memcmp(said, cases[i].name, length) == 0);
        CHECK(fgetxattr(fd, name, NULL, 0) == length && FAILS(fgetxattr(fd, name, said, length - 1), ERANGE));
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        CHECK(getxattr(path, name, said, sizeof said) == length && strcmp(said, cases[i].name) == 0);
        CHECK(flistxattr(fd, said, sizeof said) == sizeof name && strcmp(said, name) == 0);
        CHECK(FAILS(fsetxattr(fd, name, "x", 1, 0), EOPNOTSUPP) && close(fd) == 0);
    }
    int fd = open("/dev/null", O_RDONLY);
    CHECK(FAILS(fgetxattr(fd, name, NULL, 0), EOPNOTSUPP) && close(fd) == 0);
}

static void who_wants_no_name_is_told_no_length_of_one(void) {
    int pair[2];
    char byte;
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0 && send(pair[0], "x", 1, 0) == 1);
    struct iovec to = { &byte, 1 };
    struct msghdr message = { .msg_namelen = 77, .msg_iov = &to, .msg_iovlen = 1 };
    CHECK(recvmsg(pair[1], &message, 0) == 1 && message.msg_namelen == 77);
    CHECK(close(pair[0]) == 0 && close(pair[1]) == 0);
}

// Words of a structure's later version that are not zero count, although what is behind them cannot be read.
static void fields_of_later_versions_are_refused_before_what_is_behind_them_is_read(void) {
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED && munmap(pages + 4096, 4096) == 0);
    char *end = pages + 4096;
    struct clone_args *clone = (void *)(end - sizeof *clone - 8);
    clone->exit_signal = SIGCHLD;
    CHECK(FAILS(syscall(SYS_clone3, clone, sizeof *clone + 16), EFAULT));
    memset(end - 8, 1, 8);
    CHECK(FAILS(syscall(SYS_clone3, clone, sizeof *clone + 16), E2BIG));
    CHECK(FAILS(syscall(SYS_clone3, clone, 4097), E2BIG) && FAILS(syscall(SYS_clone3, clone, 56), EINVAL));
    memset(pages, 0, 4096);
    struct open_how *how = (void *)(end - sizeof *how - 8);
    CHECK(FAILS(syscall(SYS_openat2, AT_FDCWD, "/", how, sizeof *how + 16), EFAULT));
    // Its first byte lies in no word of its own.
    end[-8] = 1;
    CHECK(FAILS(syscall(SYS_openat2, AT_FDCWD, "/", how, sizeof *how + 16), E2BIG));
    CHECK(FAILS(syscall(SYS_openat2, AT_FDCWD, "/", how, sizeof *how + 1), E2BIG));
    int fd = syscall(SYS_openat2, AT_FDCWD, "/", how, sizeof *how);
    CHECK(fd >= 0 && close(fd) == 0 && munmap(pages, 4096) == 0);
}

static unsigned inode_of(int fd) {
    struct stat s;
    CHECK(fstat(fd, &s) == 0);
    return s.st_ino;
}

static void a_netlink_socket_is_listed_when_it_has_a_number(void) {
    for (int bound = 0; bound < 2; bound++) {
        int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
        struct sockaddr_nl own = { .nl_family = AF_NETLINK };
        CHECK(fd >= 0 && (!bound || bind(fd, (void *)&own, sizeof own) == 0));
        static char table[1 << 16], line[32];
        int list = open("/proc/net/netlink", O_RDONLY), length = 0, n;
        while ((n = read(list, table + length, sizeof table - 1 - length)) > 0)
            length += n;
        table[length] = 0;
        snprintf(line, sizeof line, " %-8u\n", inode_of(fd));
        CHECK((strstr(table, line) != NULL) == bound && close(list) == 0 && close(fd) == 0);
    }
}

// The attributes that sock_diag(7) has of a socket of UNIX, as 32-bit numbers.
static int ask(unsigned inode, int attribute, unsigned *to, int most) {
    struct { struct nlmsghdr head; struct unix_diag_req ask; } request = {
        { sizeof request, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0 },
        { .sdiag_family = AF_UNIX, .udiag_states = -1, .udiag_ino = inode, .udiag_cookie = { -1, -1 },
          .udiag_show = UDIAG_SHOW_NAME | UDIAG_SHOW_VFS | UDIAG_SHOW_PEER | UDIAG_SHOW_ICONS | UDIAG_SHOW_RQLEN | UDIAG_SHOW_MEMINFO },
    };
    static char answer[4096];
    int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG);
    CHECK(fd >= 0 && send(fd, &request, sizeof request, 0) == sizeof request);
    int length = recv(fd, answer, sizeof answer, 0), at = sizeof(struct nlmsghdr) + sizeof(struct unix_diag_msg);
    CHECK(close(fd) == 0 && ((struct nlmsghdr *)answer)->nlmsg_type == SOCK_DIAG_BY_FAMILY);
    while (at + 4 <= length) {
        unsigned short size = *(unsigned short *)(answer + at), kind = *(unsigned short *)(answer + at + 2);
        if (kind == attribute) {
            int count = (size - 4) / 4;
            memcpy(to, answer + at + 4, 4 * (count < most ? count : most));
            return count;
        }
        at += (size + 3) & ~3;
    }
    return -1;
}

static void sockets_say_who_their_peers_are(void) {
    char folder[] = "/tmp/likenessXXXXXX";
    struct sockaddr_un name = { .sun_family = AF_UNIX };
    CHECK(mkdtemp(folder) != NULL);
    snprintf(name.sun_path, sizeof name.sun_path, "%s/socket", folder);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    unsigned n[9];
    CHECK(ask(inode_of(client), UNIX_DIAG_PEER, n, 9) == -1 && ask(inode_of(client), UNIX_DIAG_ICONS, n, 9) == -1);
    CHECK(bind(listener, (void *)&name, sizeof name) == 0 && listen(listener, 7) == 0);
    struct stat s;
    CHECK(stat(name.sun_path, &s) == 0 && ask(inode_of(listener), UNIX_DIAG_VFS, n, 9) == 2 && n[0] == (unsigned)s.st_ino);
    CHECK(connect(client, (void *)&name, sizeof name) == 0);
    CHECK(ask(inode_of(listener), UNIX_DIAG_ICONS, n, 9) == 1 && n[0] == inode_of(client));
    CHECK(ask(inode_of(listener), UNIX_DIAG_RQLEN, n, 9) == 2 && n[0] == 1 && n[1] == 7);
    // Whom nobody has accepted yet has no number.
    CHECK(ask(inode_of(client), UNIX_DIAG_PEER, n, 9) == 1 && n[0] == 0);
    int server = accept(listener, NULL, NULL);
    CHECK(server >= 0 && ask(inode_of(client), UNIX_DIAG_PEER, n, 9) == 1 && n[0] == inode_of(server));
    CHECK(ask(inode_of(server), UNIX_DIAG_PEER, n, 9) == 1 && n[0] == inode_of(client));
    CHECK(ask(inode_of(server), UNIX_DIAG_MEMINFO, n, 9) == 9);
    CHECK(shutdown(client, SHUT_WR) == 0 && ask(inode_of(client), UNIX_DIAG_SHUTDOWN, n, 0) == 0);
    CHECK(close(client) == 0 && close(server) == 0 && close(listener) == 0 && unlink(name.sun_path) == 0 && rmdir(folder) == 0);
}

// Where a file system gives a number again, a name that is made anew is nobody's.
static void a_name_can_be_given_again_while_its_first_socket_is_open(const char *folder) {
    struct sockaddr_un name = { .sun_family = AF_UNIX };
    snprintf(name.sun_path, sizeof name.sun_path, "%s/again", folder);
    int first = socket(AF_UNIX, SOCK_DGRAM, 0), second = socket(AF_UNIX, SOCK_DGRAM, 0), sender = socket(AF_UNIX, SOCK_DGRAM, 0);
    char byte = 0;
    for (int n = 0; n < 2; n++) {
        CHECK(bind(n == 0 ? first : second, (void *)&name, sizeof name) == 0 && (n == 1 || unlink(name.sun_path) == 0));
    }
    CHECK(close(first) == 0 && sendto(sender, "x", 1, 0, (void *)&name, sizeof name) == 1);
    CHECK(recv(second, &byte, 1, MSG_DONTWAIT) == 1 && byte == 'x');
    CHECK(close(second) == 0 && close(sender) == 0 && unlink(name.sun_path) == 0);
}

static void a_tracer_is_told_which_call_a_filter_left_to_it(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct sock_filter code[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_chdir, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE | 0x1234),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = { 4, code };
        CHECK(ptrace(PTRACE_TRACEME, 0, 0, 0) == 0 && raise(SIGSTOP) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
        _exit(syscall(SYS_chdir, "/", 2, 3, 4, 5, 6) == 0 ? 9 : 1);
    }
    struct __ptrace_syscall_info info;
    int status;
    const size_t length = offsetof(struct __ptrace_syscall_info, seccomp.ret_data) + 4;
    CHECK(waitpid(child, &status, 0) == child && WIFSTOPPED(status));
    CHECK(ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESECCOMP | PTRACE_O_TRACESYSGOOD) == 0);
    CHECK(ptrace(PTRACE_CONT, child, 0, 0) == 0 && waitpid(child, &status, 0) == child);
    CHECK(status >> 8 == (SIGTRAP | PTRACE_EVENT_SECCOMP << 8));
    CHECK(ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof info, &info) == (long)length && info.op == PTRACE_SYSCALL_INFO_SECCOMP);
    CHECK(info.seccomp.nr == SYS_chdir && info.seccomp.args[1] == 2 && info.seccomp.args[5] == 6 && info.seccomp.ret_data == 0x1234);
    CHECK(ptrace(PTRACE_SYSCALL, child, 0, 0) == 0 && waitpid(child, &status, 0) == child && status >> 8 == (SIGTRAP | 0x80));
    CHECK(ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof info, &info) > 0 && info.op == PTRACE_SYSCALL_INFO_EXIT && info.exit.rval == 0);
    CHECK(ptrace(PTRACE_CONT, child, 0, 0) == 0 && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 9);
}

static void *another_program(void *own) {
    usleep(20000);
    execl(own, own, "other", NULL);
    _exit(3);
}

// Who sleeps in its first thread while another one runs another program is seen to end.
static void a_thread_that_another_program_ends_tells_its_tracer(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        pthread_t thread;
        CHECK(ptrace(PTRACE_TRACEME, 0, 0, 0) == 0 && raise(SIGSTOP) == 0);
        CHECK(pthread_create(&thread, NULL, another_program, "/proc/self/exe") == 0);
        sleep(100);
        _exit(4);
    }
    int status, exits = 0, executes = 0;
    pid_t at = waitpid(child, &status, 0);
    CHECK(at == child && WIFSTOPPED(status));
    CHECK(ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACEEXIT | PTRACE_O_TRACEEXEC | PTRACE_O_TRACECLONE) == 0);
    for (;;) {
        CHECK(ptrace(PTRACE_CONT, at, 0, 0) == 0 && (at = waitpid(-1, &status, __WALL)) > 0);
        if (at == child && WIFEXITED(status))
            break;
        CHECK(WIFSTOPPED(status));
        exits += at == child && status >> 16 == PTRACE_EVENT_EXIT;
        if (status >> 16 == PTRACE_EVENT_EXEC)
            CHECK(at == child && exits == 1 && ++executes == 1);
    }
    CHECK(WEXITSTATUS(status) == 7 && executes == 1 && exits == 2);
}

// SO_TIMESTAMP and its like have a second name each, and so have the messages.
static void time_stamps_are_called_as_they_were_asked_for(void) {
    static const int old[] = { 29, 35 }, new[] = { 63, 64 };
    for (int n = 0; n < 2; n++) {
        int fd = socket(AF_INET, SOCK_DGRAM, 0), on = 1, said = -1;
        struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t length = sizeof own, size = sizeof said;
        CHECK(fd >= 0 && setsockopt(fd, SOL_SOCKET, new[n], &on, sizeof on) == 0);
        CHECK(getsockopt(fd, SOL_SOCKET, new[n], &said, &size) == 0 && said == 1);
        CHECK(getsockopt(fd, SOL_SOCKET, old[n], &said, &size) == 0 && said == 0);
        CHECK(bind(fd, (void *)&own, length) == 0 && getsockname(fd, (void *)&own, &length) == 0);
        CHECK(sendto(fd, "x", 1, 0, (void *)&own, length) == 1);
        char byte, control[256];
        struct iovec to = { &byte, 1 };
        struct msghdr message = { .msg_iov = &to, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
        CHECK(recvmsg(fd, &message, 0) == 1);
        struct cmsghdr *first = CMSG_FIRSTHDR(&message);
        CHECK(first && first->cmsg_level == SOL_SOCKET && first->cmsg_type == new[n] && first->cmsg_len == CMSG_LEN(16));
        // Of AF_UNIX as well, as loggers want it.
        int pair[2];
        CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0 && send(pair[0], "x", 1, 0) == 1);
        CHECK(setsockopt(pair[1], SOL_SOCKET, old[n], &on, sizeof on) == 0 && send(pair[0], "y", 1, 0) == 1);
        for (int packet = 0; packet < 2; packet++) {
            message.msg_controllen = sizeof control;
            CHECK(recvmsg(pair[1], &message, 0) == 1);
            first = CMSG_FIRSTHDR(&message);
            CHECK(first && first->cmsg_level == SOL_SOCKET && first->cmsg_type == old[n] && first->cmsg_len == CMSG_LEN(16));
            CHECK(*(long *)CMSG_DATA(first) > 1700000000);
        }
        CHECK(close(pair[0]) == 0 && close(pair[1]) == 0);
        on = 0;
        CHECK(setsockopt(fd, SOL_SOCKET, old[1 - n], &on, sizeof on) == 0);
        CHECK(getsockopt(fd, SOL_SOCKET, new[n], &said, &size) == 0 && said == 0 && close(fd) == 0);
    }
}

// And util-linux' tests of setarch(8).
static void a_personality_has_another_name_for_the_kernel(void) {
    struct utsname usual, other;
    CHECK(uname(&usual) == 0 && strcmp(usual.machine, "x86_64") == 0);
    CHECK(personality(PER_LINUX32 | UNAME26) == 0 && uname(&other) == 0 && strcmp(other.machine, "i686") == 0);
    CHECK(strncmp(other.release, "2.6.", 4) == 0 && strncmp(usual.release, "2.6.", 4) != 0);
    CHECK(personality(0) == (PER_LINUX32 | UNAME26) && uname(&other) == 0 && memcmp(&usual, &other, sizeof usual) == 0);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "other") == 0)
        return 7;
    a_socket_says_the_name_of_its_protocol();
    who_wants_no_name_is_told_no_length_of_one();
    fields_of_later_versions_are_refused_before_what_is_behind_them_is_read();
    a_netlink_socket_is_listed_when_it_has_a_number();
    sockets_say_who_their_peers_are();
    a_name_can_be_given_again_while_its_first_socket_is_open(argc > 1 ? argv[1] : "/tmp");
    a_tracer_is_told_which_call_a_filter_left_to_it();
    a_thread_that_another_program_ends_tells_its_tracer();
    a_personality_has_another_name_for_the_kernel();
    time_stamps_are_called_as_they_were_asked_for();
    puts("all likeness tests of strace passed");
    return 0;
}
