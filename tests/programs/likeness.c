// SPDX-License-Identifier: Apache-2.0 OR MIT
// Who a thread is, what sockets of all kinds tell, and how files, pipes and watches end: cases in which this kernel once differed from Linux.
#define _GNU_SOURCE
#include "check.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <asm/termbits.h>
#include <dirent.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))

static struct sockaddr_in at(const char *address, int port) {
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
    CHECK(inet_pton(AF_INET, address, &to.sin_addr) == 1);
    return to;
}

static struct sockaddr_in name_of(int fd) {
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    CHECK(getsockname(fd, (void *)&name, &length) == 0);
    return name;
}

static void *becomes_another(void *unused) {
    CHECK(syscall(SYS_setresgid, 1001, 1001, 1001) == 0 && syscall(SYS_setresuid, 1000, 1000, 1000) == 0);
    CHECK(getuid() == 1000 && getgid() == 1001 && FAILS(syscall(SYS_setuid, 0), EPERM));
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct sets[2];
    CHECK(syscall(SYS_capget, &header, sets) == 0 && sets[0].effective == 0 && sets[0].permitted == 0);
    // A process that it makes is what the thread is.
    pid_t child = fork();
    if (child == 0)
        _exit(getuid() == 1000 && geteuid() == 1000 ? 0 : 1);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return unused;
}

static void threads_are_who_they_are(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, becomes_another, NULL) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(getuid() == 0 && getgid() == 0);
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct sets[2];
    CHECK(syscall(SYS_capget, &header, sets) == 0 && sets[0].effective != 0);
}

// capabilities(7): what a program that is run gets.
static void ambient_capabilities_are_kept(const char *self) {
    pid_t child = fork();
    if (child == 0) {
        struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
        struct __user_cap_data_struct sets[2];
        CHECK(prctl(PR_SET_KEEPCAPS, 1) == 0 && syscall(SYS_capget, &header, sets) == 0);
        sets[0].inheritable |= 1 << CAP_NET_BIND_SERVICE;
        CHECK(syscall(SYS_capset, &header, sets) == 0 && syscall(SYS_setuid, 65534) == 0);
        CHECK(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_NET_BIND_SERVICE, 0, 0) == 0);
        execl(self, self, "ambient", (char *)NULL);
        _exit(2);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static int has_ambient(void) {
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct sets[2];
    CHECK(syscall(SYS_capget, &header, sets) == 0);
    unsigned only = 1 << CAP_NET_BIND_SERVICE;
    CHECK(sets[0].effective == only && sets[0].permitted == only && sets[1].effective == 0);
    return prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_NET_BIND_SERVICE, 0, 0) == 1 ? 0 : 1;
}

static int claim(int fd, struct ucred who) {
    char control[CMSG_SPACE(sizeof who)] = { 0 }, byte = 'x';
    struct iovec part = { &byte, 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_CREDENTIALS, header->cmsg_len = CMSG_LEN(sizeof who);
    memcpy(CMSG_DATA(header), &who, sizeof who);
    return sendmsg(fd, &message, 0);
}

static void *claims_without_capabilities(void *pair) {
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct none[2] = { 0 };
    CHECK(syscall(SYS_capset, &header, none) == 0);
    int fd = *(int *)pair;
    CHECK(claim(fd, (struct ucred){ getpid(), 0, 0 }) == 1);
    CHECK(FAILS(claim(fd, (struct ucred){ getppid(), 0, 0 }), EPERM));
    CHECK(FAILS(claim(fd, (struct ucred){ getpid(), 7, 0 }), EPERM) && FAILS(claim(fd, (struct ucred){ getpid(), 0, 7 }), EPERM));
    return NULL;
}

static void unix_credentials(void) {
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(claim(pair[0], (struct ucred){ getpid(), 7, 8 }) == 1 && FAILS(claim(pair[0], (struct ucred){ -1, 0, 0 }), ESRCH));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, claims_without_capabilities, &pair[0]) == 0 && pthread_join(thread, NULL) == 0);
    close(pair[0]), close(pair[1]);
    // A listener's peer is itself.
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un name = { AF_UNIX, "\0likeness" };
    struct ucred peer;
    socklen_t length = sizeof peer;
    CHECK(getsockopt(listener, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.pid == 0 && peer.uid == (uid_t)-1);
    CHECK(bind(listener, (void *)&name, sizeof(sa_family_t) + 9) == 0 && listen(listener, 1) == 0);
    CHECK(getsockopt(listener, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.pid == getpid() && peer.uid == 0);
    close(listener);
}

// A read of nothing waits for a message and takes the descriptors that came with it.
static void descriptors_come_with_nothing(void) {
    int pair[2], sent = 0, got;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && FAILS(recv(pair[1], &got, 0, MSG_DONTWAIT), EAGAIN));
    char control[CMSG_SPACE(sizeof sent)] = { 0 }, byte = 'x';
    struct iovec part = { &byte, 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof sent);
    memcpy(CMSG_DATA(header), &sent, sizeof sent);
    CHECK(sendmsg(pair[0], &message, 0) == 1);
    memset(control, 0, sizeof control);
    struct msghdr empty = { .msg_control = control, .msg_controllen = sizeof control };
    CHECK(recvmsg(pair[1], &empty, 0) == 0 && (header = CMSG_FIRSTHDR(&empty)) && header->cmsg_type == SCM_RIGHTS);
    memcpy(&got, CMSG_DATA(header), sizeof got);
    CHECK(close(got) == 0 && read(pair[1], &byte, 1) == 1 && byte == 'x');
    close(pair[0]), close(pair[1]);
}

static void datagrams_disconnect(void) {
    int peer = socket(AF_INET, SOCK_DGRAM, 0), fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in any = at("0.0.0.0", 0), nobody = { .sin_family = AF_UNSPEC }, there = at("127.0.0.1", 0);
    socklen_t length = sizeof there;
    CHECK(bind(peer, (void *)&there, sizeof there) == 0);
    there = name_of(peer);
    // Bound by connect: all of it goes.
    CHECK(connect(fd, (void *)&there, sizeof there) == 0 && name_of(fd).sin_port != 0);
    CHECK(name_of(fd).sin_addr.s_addr == htonl(INADDR_LOOPBACK) && connect(fd, (void *)&nobody, sizeof nobody) == 0);
    CHECK(name_of(fd).sin_port == 0 && name_of(fd).sin_addr.s_addr == 0 && FAILS(getpeername(fd, (void *)&nobody, &length), ENOTCONN));
    CHECK(FAILS(send(fd, "x", 1, 0), EDESTADDRREQ) && sendto(fd, "x", 1, 0, (void *)&there, sizeof there) == 1);
    close(fd);
    // Bound by bind(2) to any address and a port: the port stays.
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    int taken = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(bind(taken, (void *)&any, sizeof any) == 0);
    int port = ntohs(name_of(taken).sin_port);
    close(taken);
    any = at("0.0.0.0", port);
    nobody.sin_family = AF_UNSPEC;
    CHECK(bind(fd, (void *)&any, sizeof any) == 0 && connect(fd, (void *)&there, sizeof there) == 0);
    CHECK(name_of(fd).sin_addr.s_addr == htonl(INADDR_LOOPBACK) && connect(fd, (void *)&nobody, sizeof nobody) == 0);
    CHECK(name_of(fd).sin_addr.s_addr == 0 && ntohs(name_of(fd).sin_port) == port);
    // A peer without a port is none.
    struct sockaddr_in portless = at("127.0.0.1", 0);
    CHECK(connect(fd, (void *)&portless, sizeof portless) == 0 && FAILS(getpeername(fd, (void *)&nobody, &length), ENOTCONN));
    // The end of input is told to whoever would wait, not to others.
    char byte;
    CHECK(recv(peer, &byte, 1, 0) == 1 && connect(peer, (void *)&any, sizeof any) == 0 && shutdown(peer, SHUT_RD) == 0);
    CHECK(FAILS(recv(peer, &byte, 1, MSG_DONTWAIT), EAGAIN) && recv(peer, &byte, 1, 0) == 0);
    int most = -1, value;
    length = sizeof value;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &most, sizeof most) == 0 && getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &value, &length) == 0);
    CHECK(value >= 2 * 212992);
    close(peer), close(fd);
}

static void datagrams_are_stamped(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), one = 1;
    struct sockaddr_in self = at("127.0.0.1", 0);
    CHECK(bind(fd, (void *)&self, sizeof self) == 0);
    self = name_of(fd);
    struct timeval first, second, now;
    char byte;
    CHECK(FAILS(ioctl(fd, SIOCGSTAMP_OLD, &first), ENOENT));
    CHECK(sendto(fd, "x", 1, 0, (void *)&self, sizeof self) == 1 && recv(fd, &byte, 1, 0) == 1);
    CHECK(ioctl(fd, SIOCGSTAMP_OLD, &first) == 0 && ioctl(fd, SIOCGSTAMP_OLD, &second) == 0);
    CHECK(first.tv_sec == second.tv_sec && first.tv_usec == second.tv_usec && first.tv_usec < 1000000);
    CHECK(gettimeofday(&now, NULL) == 0 && !timercmp(&first, &now, >));
    struct timespec fine;
    CHECK(ioctl(fd, SIOCGSTAMPNS_OLD, &fine) == 0 && fine.tv_sec == first.tv_sec);
    close(fd);
    // Who has stamps as messages has none by ioctl.
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    self = at("127.0.0.1", 0);
    CHECK(bind(fd, (void *)&self, sizeof self) == 0 && setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP, &one, sizeof one) == 0);
    self = name_of(fd);
    CHECK(sendto(fd, "x", 1, 0, (void *)&self, sizeof self) == 1 && recv(fd, &byte, 1, 0) == 1);
    CHECK(FAILS(ioctl(fd, SIOCGSTAMP_OLD, &first), ENOENT));
    close(fd);
}

static int receiver(const char *address, int port) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), one = 1;
    struct sockaddr_in name = at(address, port);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 && bind(fd, (void *)&name, sizeof name) == 0);
    return fd;
}

static void groups_on_loopback(void) {
    int first = receiver("0.0.0.0", 0), port = ntohs(name_of(first).sin_port), second = receiver("0.0.0.0", port);
    int elsewhere = receiver("127.0.0.1", port), sender = socket(AF_INET, SOCK_DGRAM, 0), one = 1;
    struct sockaddr_in group = at("224.0.2.1", port), local = at("127.0.0.1", 0);
    struct ip_mreq join = { group.sin_addr, local.sin_addr };
    char byte;
    // The address that is sent from, or IP_MULTICAST_IF, says that a multicast stays here.
    CHECK(bind(sender, (void *)&local, sizeof local) == 0);
    CHECK(sendto(sender, "a", 1, 0, (void *)&group, sizeof group) == 1 && FAILS(recv(first, &byte, 1, MSG_DONTWAIT), EAGAIN));
    CHECK(FAILS(setsockopt(first, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, 4), EINVAL));
    struct ip_mreqn unknown = { group.sin_addr, { 0 }, 1000 };
    CHECK(FAILS(setsockopt(first, IPPROTO_IP, IP_ADD_MEMBERSHIP, &unknown, sizeof unknown), ENODEV));
    CHECK(FAILS(setsockopt(first, IPPROTO_IP, IP_MULTICAST_IF, &unknown, sizeof unknown), EADDRNOTAVAIL));
    CHECK(setsockopt(first, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof join) == 0);
    CHECK(FAILS(setsockopt(first, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof join), EADDRINUSE));
    CHECK(sendto(sender, "b", 1, 0, (void *)&group, sizeof group) == 1);
    // Once one is a member all that are bound to any address hear it; who is bound to another address does not.
    CHECK(recv(first, &byte, 1, 0) == 1 && byte == 'b' && recv(second, &byte, 1, 0) == 1 && byte == 'b');
    CHECK(FAILS(recv(elsewhere, &byte, 1, MSG_DONTWAIT), EAGAIN));
    int unbound = socket(AF_INET, SOCK_DGRAM, 0);
    struct ip_mreqn leave_by = { .imr_address = local.sin_addr, .imr_ifindex = 1 };
    CHECK(setsockopt(unbound, IPPROTO_IP, IP_MULTICAST_IF, &leave_by, sizeof leave_by) == 0);
    CHECK(setsockopt(first, IPPROTO_IP, IP_PKTINFO, &one, sizeof one) == 0 && connect(unbound, (void *)&group, sizeof group) == 0);
    CHECK(name_of(unbound).sin_addr.s_addr == htonl(INADDR_LOOPBACK) && send(unbound, "c", 1, 0) == 1);
    char control[100];
    struct iovec part = { &byte, 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    CHECK(recvmsg(first, &message, 0) == 1 && byte == 'c');
    struct in_pktinfo info;
    memcpy(&info, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof info);
    CHECK(info.ipi_ifindex == 1 && info.ipi_spec_dst.s_addr == htonl(INADDR_LOOPBACK) && info.ipi_addr.s_addr == group.sin_addr.s_addr);
    CHECK(setsockopt(first, IPPROTO_IP, IP_DROP_MEMBERSHIP, &join, sizeof join) == 0);
    CHECK(FAILS(setsockopt(first, IPPROTO_IP, IP_DROP_MEMBERSHIP, &join, sizeof join), EADDRNOTAVAIL));
    CHECK(recv(second, &byte, 1, 0) == 1 && byte == 'c' && send(unbound, "d", 1, 0) == 1);
    CHECK(FAILS(recv(first, &byte, 1, MSG_DONTWAIT), EAGAIN) && FAILS(recv(second, &byte, 1, MSG_DONTWAIT), EAGAIN));
    // Broadcasts take the option, and stay here when they come from here.
    struct sockaddr_in all = at("255.255.255.255", port);
    CHECK(FAILS(sendto(sender, "e", 1, 0, (void *)&all, sizeof all), EACCES));
    CHECK(setsockopt(sender, SOL_SOCKET, SO_BROADCAST, &one, sizeof one) == 0 && sendto(sender, "e", 1, 0, (void *)&all, sizeof all) == 1);
    CHECK(recv(first, &byte, 1, 0) == 1 && byte == 'e' && recv(second, &byte, 1, 0) == 1 && byte == 'e');
    CHECK(FAILS(recv(elsewhere, &byte, 1, MSG_DONTWAIT), EAGAIN));
    close(first), close(second), close(elsewhere), close(sender), close(unbound);
}

static unsigned port_of_netlink(int fd) {
    struct sockaddr_nl name;
    socklen_t length = sizeof name;
    CHECK(getsockname(fd, (void *)&name, &length) == 0);
    return name.nl_pid;
}

static void netlink_ports(void) {
    for (int round = 0; round < 3; round++) {
        struct sockaddr_nl name = { .nl_family = AF_NETLINK };
        int first = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE), second = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
        CHECK(bind(first, (void *)&name, sizeof name) == 0 && bind(second, (void *)&name, sizeof name) == 0);
        CHECK(port_of_netlink(first) == (unsigned)getpid() && port_of_netlink(second) != (unsigned)getpid());
        close(first), close(second);
    }
    int events = socket(AF_NETLINK, SOCK_DGRAM, NETLINK_KOBJECT_UEVENT), value;
    socklen_t length = sizeof value;
    CHECK(getsockopt(events, SOL_SOCKET, SO_PROTOCOL, &value, &length) == 0 && value == NETLINK_KOBJECT_UEVENT);
    CHECK(FAILS(recv(events, &value, sizeof value, MSG_DONTWAIT), EAGAIN));
    close(events);
}

struct route_question {
    struct nlmsghdr head;
    struct rtmsg message;
    struct rtattr to_head;
    unsigned char to[4];
    struct rtattr device_head;
    unsigned device;
};

// The attribute of an answer's route.
static void *route_attribute(void *answer, int kind) {
    struct nlmsghdr *head = answer;
    int length = RTM_PAYLOAD(head);
    for (struct rtattr *at = RTM_RTA(NLMSG_DATA(head)); RTA_OK(at, length); at = RTA_NEXT(at, length))
        if (at->rta_type == kind)
            return RTA_DATA(at);
    return NULL;
}

static int route_to(int sock, struct route_question question, char *answer, int room) {
    question.head = (struct nlmsghdr){ sizeof question, RTM_GETROUTE, NLM_F_REQUEST, 77, 0 };
    question.to_head = (struct rtattr){ 8, RTA_DST };
    question.device_head = (struct rtattr){ 8, RTA_OIF };
    CHECK(send(sock, &question, sizeof question, 0) == (ssize_t)sizeof question);
    ssize_t got = recv(sock, answer, room, 0);
    struct nlmsghdr *head = (void *)answer;
    CHECK(got == head->nlmsg_len && head->nlmsg_seq == 77);
    return head->nlmsg_type == NLMSG_ERROR ? *(int *)NLMSG_DATA(head) : 0;
}

// As `ip route get` and nmap ask.
static void route_to_an_address(void) {
    _Alignas(8) char answer[4096];
    int sock = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    struct route_question own = { .message = { .rtm_family = AF_INET, .rtm_dst_len = 32 }, .to = { 127, 1, 2, 3 } };
    // Addresses of the machine have a table of their own only where somebody made rules.
    for (int round = 0; round < 2; round++) {
        own.message.rtm_flags = round ? RTM_F_LOOKUP_TABLE : 0;
        CHECK(route_to(sock, own, answer, sizeof answer) == 0);
        struct rtmsg *route = NLMSG_DATA(answer);
        CHECK(((struct nlmsghdr *)answer)->nlmsg_type == RTM_NEWROUTE && ((struct nlmsghdr *)answer)->nlmsg_flags == 0);
        CHECK(route->rtm_family == AF_INET && route->rtm_dst_len == 32 && route->rtm_type == RTN_LOCAL);
        CHECK(route->rtm_table == RT_TABLE_MAIN && route->rtm_flags == (RTM_F_CLONED | 0x80000000));
        CHECK(*(unsigned *)route_attribute(answer, RTA_OIF) == if_nametoindex("lo"));
        CHECK(!memcmp(route_attribute(answer, RTA_DST), own.to, 4));
        CHECK(!memcmp(route_attribute(answer, RTA_PREFSRC), (char[]){ 127, 0, 0, 1 }, 4));
        CHECK(!route_attribute(answer, RTA_GATEWAY));
    }
    // And so does a socket that is connected to it.
    struct sockaddr_in there = { AF_INET, htons(9), { inet_addr("127.1.2.3") } }, here;
    socklen_t length = sizeof here;
    int user = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(connect(user, (void *)&there, sizeof there) == 0 && getsockname(user, (void *)&here, &length) == 0);
    CHECK(here.sin_addr.s_addr == inet_addr("127.0.0.1"));
    close(user);
    struct route_question wrong = own;
    wrong.device = 4711;
    CHECK(route_to(sock, wrong, answer, sizeof answer) == -ENODEV);
    wrong = own, wrong.message.rtm_family = AF_INET6;
    CHECK(route_to(sock, wrong, answer, sizeof answer) < 0);
    close(sock);
}

// What the slave writes, as the master reads it.
static void shown(int master, int slave, const char *written, const char *expected) {
    char got[100];
    CHECK(write(slave, written, strlen(written)) == (ssize_t)strlen(written));
    ssize_t length = read(master, got, sizeof got);
    CHECK(length == (ssize_t)strlen(expected) && !memcmp(got, expected, length));
}

// What the master writes, as the slave reads it: a line.
static void taken(int master, int slave, const char *written, const char *expected) {
    char got[100];
    CHECK(write(master, written, strlen(written)) == (ssize_t)strlen(written));
    ssize_t length = read(slave, got, sizeof got);
    CHECK(length == (ssize_t)strlen(expected) && !memcmp(got, expected, length));
}

static void *writes_one(void *master) {
    CHECK(write((long)master, "w", 1) == 1);
    return NULL;
}

static void terminals(void) {
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY);
    CHECK(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0 && fcntl(master, F_GETFL) == (O_RDWR | 0x8000));
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    struct termios settings;
    struct termios2 both;
    CHECK(ioctl(slave, TCGETS, &settings) == 0 && ioctl(slave, TCGETS2, &both) == 0);
    CHECK(settings.c_cflag == (B38400 | CS8 | CREAD) && both.c_cflag == settings.c_cflag && both.c_ospeed == 38400);
    CHECK(settings.c_lflag == (ISIG | ICANON | ECHO | ECHOE | ECHOK | ECHOCTL | ECHOKE | IEXTEN) && settings.c_iflag == (ICRNL | IXON));
    CHECK(both.c_lflag == settings.c_lflag && !memcmp(both.c_cc, settings.c_cc, sizeof settings.c_cc));
    shown(master, slave, "a\nb\rc", "a\r\nb\rc");
    both.c_lflag &= ~ECHO, both.c_oflag = OPOST | OCRNL, both.c_cc[VEOL] = '=';
    CHECK(ioctl(slave, TCSETS2, &both) == 0);
    shown(master, slave, "a\nb\rc", "a\nb\nc");
    taken(master, slave, "key=", "key=");
    taken(master, slave, "one two\027three\n", "one three\n");
    taken(master, slave, "\303\274\177x\n", "\303x\n");
    both.c_iflag |= IUTF8, both.c_oflag = OPOST | ONOCR;
    CHECK(ioctl(slave, TCSETS2, &both) == 0);
    taken(master, slave, "\303\274\177x\n", "x\n");
    shown(master, slave, "a\r", "a\r");
    shown(master, slave, "\r\rb\r\r", "b\r");
    // Too long a line keeps its beginning and its end; flushing makes room for who waits, and is told in packet mode.
    static char line[5000];
    memset(line, 'M', sizeof line);
    CHECK(fcntl(master, F_SETFL, O_RDWR | O_NONBLOCK) == 0 && write(master, line, 4200) == 4200 && write(master, "\n", 1) == 1);
    CHECK(read(slave, line, sizeof line) == 4096 && line[4094] == 'M' && line[4095] == '\n');
    both.c_lflag &= ~(ECHO | ICANON);
    CHECK(ioctl(slave, TCSETS2, &both) == 0);
    while (write(master, line, sizeof line) > 0)
        ;
    CHECK(errno == EAGAIN && fcntl(master, F_SETFL, O_RDWR) == 0);
    pthread_t writer;
    CHECK(pthread_create(&writer, NULL, writes_one, (void *)(long)master) == 0);
    CHECK(ioctl(slave, TCFLSH, TCIFLUSH) == 0 && pthread_join(writer, NULL) == 0);
    char status;
    struct pollfd watched = { master, POLLIN | POLLPRI, 0 };
    CHECK(ioctl(master, TIOCPKT, &(int){ 1 }) == 0 && ioctl(slave, TCFLSH, TCIFLUSH) == 0);
    CHECK(poll(&watched, 1, 60000) == 1 && watched.revents == (POLLIN | POLLPRI) && read(master, &status, 1) == 1 && status == TIOCPKT_FLUSHREAD);
    CHECK(ioctl(slave, TCFLSH, TCIOFLUSH) == 0 && read(master, &status, 1) == 1 && status == (TIOCPKT_FLUSHREAD | TIOCPKT_FLUSHWRITE));
    CHECK(poll(&watched, 1, 0) == 0);
    close(slave), close(master);
}

// ioctl_tty(2): settings that the superuser locks, a terminal that nobody else opens, and keys that a master presses by number.
static void terminals_that_are_kept(void) {
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY), on;
    CHECK(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    struct termios locked, before, after;
    CHECK(ioctl(slave, TIOCGLCKTRMIOS, &locked) == 0 && locked.c_lflag == 0 && locked.c_iflag == 0 && locked.c_cc[VINTR] == 0);
    locked.c_lflag = ECHO, locked.c_cc[VINTR] = 1;
    CHECK(ioctl(slave, TIOCSLCKTRMIOS, &locked) == 0 && ioctl(slave, TCGETS, &before) == 0);
    after = before;
    after.c_lflag &= ~(ECHO | ICANON), after.c_cc[VINTR] = 9, after.c_cc[VQUIT] = 9;
    CHECK(ioctl(slave, TCSETS, &after) == 0 && ioctl(master, TCGETS, &after) == 0);
    CHECK(after.c_lflag == (before.c_lflag & ~ICANON) && after.c_cc[VINTR] == before.c_cc[VINTR] && after.c_cc[VQUIT] == 9);
    CHECK(ioctl(slave, TIOCSSOFTCAR, &(int){ 1 }) == 0 && ioctl(slave, TIOCGSOFTCAR, &on) == 0 && on == 1);
    CHECK(ioctl(slave, TCGETS, &after) == 0 && (after.c_cflag & CLOCAL));
    CHECK(ioctl(master, TIOCEXCL) == 0 && ioctl(slave, TIOCGEXCL, &on) == 0 && on == 0);
    CHECK(ioctl(slave, TIOCEXCL) == 0 && ioctl(slave, TIOCGEXCL, &on) == 0 && on == 1);
    int another = open(ptsname(master), O_RDWR | O_NOCTTY);
    CHECK(another >= 0);
    close(another);
    CHECK(chmod(ptsname(master), 0666) == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(setresuid(1000, 1000, 1000) == 0);
        CHECK(FAILS(open(ptsname(master), O_RDWR | O_NOCTTY), EBUSY) && FAILS(ioctl(slave, TIOCSLCKTRMIOS, &locked), EPERM));
        CHECK(ioctl(slave, TIOCNXCL) == 0 && open(ptsname(master), O_RDWR | O_NOCTTY) >= 0);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(FAILS(ioctl(master, TIOCSIG, SIGTERM), EINVAL) && ioctl(master, TIOCSIG, SIGINT) == 0);
    child = fork();
    if (child == 0) {
        sigset_t interrupt;
        int number;
        sigemptyset(&interrupt), sigaddset(&interrupt, SIGINT), sigprocmask(SIG_BLOCK, &interrupt, NULL);
        CHECK(setsid() == getpid() && ioctl(slave, TIOCSCTTY, 0) == 0);
        CHECK(ioctl(master, TIOCSIG, SIGINT) == 0 && sigwait(&interrupt, &number) == 0 && number == SIGINT);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    close(slave), close(master);
}

static short wait_for(int fd, short events) {
    struct pollfd one = { fd, events, 0 };
    CHECK(poll(&one, 1, 60000) == 1);
    return one.revents;
}

static int error_of(int fd) {
    int error = -1;
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){ sizeof error }) == 0);
    return error;
}

// tcp(7) and connect(2): what a socket answers before, during and after an attempt that fails.
static void connections_that_fail(void) {
    char byte;
    struct sockaddr_in nowhere = at("127.0.0.1", 0);
    int silent = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(bind(silent, (void *)&nowhere, sizeof nowhere) == 0);
    nowhere = name_of(silent);
    CHECK(FAILS(recv(fd, &byte, 0, 0), ENOTCONN) && FAILS(recv(fd, &byte, 1, 0), ENOTCONN));
    CHECK(FAILS(connect(fd, (void *)&nowhere, sizeof nowhere), EINPROGRESS) && wait_for(fd, POLLOUT) & POLLHUP);
    CHECK(error_of(fd) == ECONNREFUSED && read(fd, &byte, 1) == 0);
    CHECK(FAILS(connect(fd, (void *)&nowhere, sizeof nowhere), ECONNABORTED) && FAILS(read(fd, &byte, 1), ENOTCONN));
    CHECK(FAILS(connect(fd, (void *)&nowhere, sizeof nowhere), EINPROGRESS) && wait_for(fd, POLLOUT) & POLLERR);
    CHECK(FAILS(recv(fd, &byte, 1, MSG_PEEK), ECONNREFUSED) && recv(fd, &byte, 1, MSG_PEEK) == 0 && read(fd, &byte, 1) == 0);
    // A call that waited tells it itself, and the next is a new attempt.
    CHECK(close(fd) == 0 && (fd = socket(AF_INET, SOCK_STREAM, 0)) >= 0 && FAILS(connect(fd, (void *)&nowhere, sizeof nowhere), ECONNREFUSED));
    CHECK(error_of(fd) == 0 && FAILS(read(fd, &byte, 1), ENOTCONN) && FAILS(connect(fd, (void *)&nowhere, sizeof nowhere), ECONNREFUSED));
    // A listener whose queue is full does not answer; the attempt ends by shutdown(2).
    CHECK(listen(silent, 0) == 0);
    int first = socket(AF_INET, SOCK_STREAM, 0), second = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(connect(first, (void *)&nowhere, sizeof nowhere) == 0 && FAILS(connect(second, (void *)&nowhere, sizeof nowhere), EINPROGRESS));
    CHECK(shutdown(second, SHUT_RD) == 0 && wait_for(second, 0) == (POLLERR | POLLHUP) && error_of(second) == ECONNRESET);
    // A connection that is over stays one.
    int accepted = accept(silent, NULL, NULL);
    CHECK(accepted >= 0 && close(accepted) == 0 && read(first, &byte, 1) == 0 && shutdown(first, SHUT_WR) == 0);
    CHECK(FAILS(connect(first, (void *)&nowhere, sizeof nowhere), EISCONN));
    close(first), close(second), close(fd), close(silent);
}

// TCP_INQ tells what is left, of which the end is one byte; TCP_WINDOW_CLAMP has a least value.
static void streams_tell_what_is_left(void) {
    struct sockaddr_in here = at("127.0.0.1", 0);
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0), on = 1, clamp = 1, left;
    CHECK(bind(listener, (void *)&here, sizeof here) == 0 && listen(listener, 1) == 0);
    here = name_of(listener);
    CHECK(connect(fd, (void *)&here, sizeof here) == 0);
    int accepted = accept(listener, NULL, NULL);
    CHECK(accepted >= 0 && setsockopt(accepted, IPPROTO_TCP, TCP_INQ, &on, sizeof on) == 0);
    CHECK(write(fd, "12345678", 8) == 8 && close(fd) == 0);
    while (ioctl(accepted, FIONREAD, &left) == 0 && left < 8)
        usleep(1000);
    CHECK(wait_for(accepted, POLLRDHUP) & POLLRDHUP);
    for (int expected = 6; expected > 0; expected = expected == 6 ? 1 : 0) {
        char bytes[8], control[64];
        struct iovec part = { bytes, expected == 6 ? 3 : 5 };
        struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
        CHECK(recvmsg(accepted, &message, 0) == (ssize_t)part.iov_len);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        CHECK(header && header->cmsg_level == IPPROTO_TCP && header->cmsg_type == TCP_CM_INQ && header->cmsg_len == CMSG_LEN(sizeof left));
        memcpy(&left, CMSG_DATA(header), sizeof left);
        CHECK(left == expected);
    }
    CHECK(setsockopt(accepted, IPPROTO_TCP, TCP_WINDOW_CLAMP, &clamp, sizeof clamp) == 0);
    CHECK(getsockopt(accepted, IPPROTO_TCP, TCP_WINDOW_CLAMP, &clamp, &(socklen_t){ sizeof clamp }) == 0 && clamp == 1152);
    close(accepted), close(listener);
}

// Ends of files: those that lseek(2) does not know, and the last position that there is.
static void ends_of_files(void) {
    char byte;
    int cpus = open("/proc/cpuinfo", O_RDONLY), dir = open("/tmp", O_RDONLY | O_DIRECTORY), fd = open("/tmp/end", O_CREAT | O_RDWR, 0600);
    int pipes[2];
    CHECK(lseek(cpus, 0, SEEK_CUR) == 0 && FAILS(lseek(cpus, 0, SEEK_END), EINVAL) && lseek(cpus, 7, SEEK_SET) == 7);
    CHECK(lseek(dir, 0, SEEK_CUR) == 0 && (FAILS(lseek(dir, 0, SEEK_END), EINVAL) || lseek(dir, 0, SEEK_END) == 0x7fffffffffffffff));
    loff_t last = 0x7ffffffffffffffe;
    CHECK(FAILS(pread(fd, (char[8]){ 0 }, 8, last), EINVAL) && FAILS(pwrite(fd, "12345678", 8, last), EINVAL) && pread(fd, &byte, 1, last) == 0);
    CHECK(pipe(pipes) == 0 && write(pipes[1], "12345678", 8) == 8);
    CHECK(FAILS(splice(pipes[0], NULL, fd, &last, 3, 0), EINVAL) && FAILS(sendfile(pipes[1], fd, &last, 3), EINVAL) && FAILS(sendfile(pipes[1], fd, NULL, -1), EINVAL));
    CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0x7ffffffffffff000) == MAP_FAILED && errno == EOVERFLOW);
    void *last_page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0x7fffffffffffe000);
    CHECK(last_page != MAP_FAILED && munmap(last_page, 4096) == 0);
    close(cpus), close(dir), close(fd), close(pipes[0]), close(pipes[1]), unlink("/tmp/end");
}

// splice(2) into a pipe that is partly full ends where that is full, and does not begin before a page of it is free.
static void pipes_that_fill(void) {
    static char page[8192];
    int from[2], to[2];
    CHECK(pipe(from) == 0 && pipe(to) == 0 && fcntl(to[1], F_SETPIPE_SZ, 8192) == 8192);
    CHECK(write(from[1], page, 8192) == 8192 && write(to[1], page, 4096) == 4096);
    CHECK(splice(from[0], NULL, to[1], NULL, 8192, 0) == 4096);
    CHECK(FAILS(splice(from[0], NULL, to[1], NULL, 4096, SPLICE_F_NONBLOCK), EAGAIN) && read(to[0], page, 4000) == 4000);
    CHECK(FAILS(splice(from[0], NULL, to[1], NULL, 4096, SPLICE_F_NONBLOCK), EAGAIN) && read(to[0], page, 96) == 96);
    CHECK(splice(from[0], NULL, to[1], NULL, 4096, 0) == 4096 && close(to[0]) == 0);
    CHECK(write(from[1], "x", 1) == 1 && signal(SIGPIPE, SIG_IGN) != SIG_ERR && FAILS(splice(from[0], NULL, to[1], NULL, 1, 0), EPIPE));
    signal(SIGPIPE, SIG_DFL), close(to[1]), close(from[0]), close(from[1]);
}

static void heard(int instance, int watch, uint32_t mask) {
    struct inotify_event event;
    CHECK(read(instance, &event, sizeof event) == sizeof event);
    if (event.wd != watch || event.mask != mask)
        printf("watch %d mask %x, expected %d %x\n", event.wd, event.mask, watch, mask);
    CHECK(event.wd == watch && event.mask == mask);
}

// inotify(7): who lists a directory has read it; a removed file is gone when nobody has it open.
static void watches_hear_the_end(void) {
    char byte;
    CHECK(mkdir("/tmp/watched", 0700) == 0);
    int instance = inotify_init1(IN_NONBLOCK), fd = open("/tmp/watched/file", O_CREAT | O_RDWR, 0600);
    int dir = inotify_add_watch(instance, "/tmp/watched", IN_ACCESS | IN_DELETE_SELF), file = inotify_add_watch(instance, "/tmp/watched/file", IN_ATTRIB | IN_DELETE_SELF);
    DIR *listing = opendir("/tmp/watched");
    CHECK(readdir(listing) != NULL);
    heard(instance, dir, IN_ACCESS | IN_ISDIR);
    CHECK(unlink("/tmp/watched/file") == 0);
    heard(instance, file, IN_ATTRIB);
    CHECK(FAILS(read(instance, &byte, 1), EAGAIN) && close(fd) == 0);
    heard(instance, file, IN_DELETE_SELF), heard(instance, file, IN_IGNORED);
    CHECK(rmdir("/tmp/watched") == 0 && FAILS(read(instance, &byte, 1), EAGAIN) && closedir(listing) == 0);
    heard(instance, dir, IN_DELETE_SELF), heard(instance, dir, IN_IGNORED);
    CHECK(FAILS(read(instance, &byte, 1), EAGAIN) && close(instance) == 0);
}

/* A column of /proc/net/snmp and its like; -1 if there is none of this name. */
static long counted(const char *table, const char *protocol, const char *column) {
    char path[64], titles[8192], values[8192];
    snprintf(path, sizeof path, "/proc/net/%s", table);
    FILE *file = fopen(path, "r");
    CHECK(file);
    long found = -1;
    size_t length = strlen(protocol);
    while (found < 0 && fgets(titles, sizeof titles, file) && fgets(values, sizeof values, file)) {
        if (strncmp(titles, protocol, length) || titles[length] != ':')
            continue;
        CHECK(!strncmp(values, protocol, length) && values[length] == ':');
        char *of_title, *of_value;
        char *title = strtok_r(titles, " \n", &of_title), *value = strtok_r(values, " \n", &of_value);
        while (title && value && strcmp(title, column)) {
            title = strtok_r(NULL, " \n", &of_title);
            value = strtok_r(NULL, " \n", &of_value);
        }
        CHECK(!title == !value);
        found = title ? atol(value) : -1;
    }
    fclose(file);
    return found;
}

/* Others may use the network of a computer at the same time, so that counters are compared from below. */
static void counters_count(void) {
    static const struct { const char *protocol, *column; int least; } all[] = {
        { "Ip", "InReceives", 5 }, { "Ip", "InDelivers", 5 }, { "Ip", "OutRequests", 5 },
        { "Tcp", "ActiveOpens", 2 }, { "Tcp", "PassiveOpens", 1 }, { "Tcp", "AttemptFails", 1 },
        { "Tcp", "EstabResets", 1 }, { "Tcp", "InSegs", 5 }, { "Tcp", "OutSegs", 5 }, { "Tcp", "OutRsts", 2 },
        { "Udp", "InDatagrams", 2 }, { "Udp", "OutDatagrams", 3 }, { "Udp", "NoPorts", 1 },
        { "Icmp", "OutMsgs", 1 }, { "Icmp", "OutDestUnreachs", 1 }, { "Icmp", "InMsgs", 1 }, { "Icmp", "InDestUnreachs", 1 },
    };
    enum { COUNT = sizeof all / sizeof *all };
    long before[COUNT];
    for (int i = 0; i < COUNT; i++)
        before[i] = counted("snmp", all[i].protocol, all[i].column);
    long octets = counted("netstat", "IpExt", "OutOctets");
    CHECK(octets >= 0 && counted("snmp", "Tcp", "MaxConn") == -1);

    struct sockaddr_in to = at("127.0.0.1", 0);
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(listener, (void *)&to, sizeof to) == 0 && listen(listener, 1) == 0);
    to = name_of(listener);
    long established = counted("snmp", "Tcp", "CurrEstab");
    CHECK(connect(client, (void *)&to, sizeof to) == 0);
    int server = accept(listener, NULL, NULL);
    CHECK(server >= 0 && write(client, "unread", 6) == 6 && counted("snmp", "Tcp", "CurrEstab") >= established + 2);
    // What nobody has read is lost with the socket: the peer is told so.
    struct pollfd there = { server, POLLIN, 0 };
    CHECK(poll(&there, 1, -1) == 1 && close(server) == 0 && close(listener) == 0);
    there = (struct pollfd){ client, POLLIN, 0 };
    CHECK(poll(&there, 1, -1) == 1 && close(client) == 0);
    client = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(FAILS(connect(client, (void *)&to, sizeof to), ECONNREFUSED) && close(client) == 0);

    int one = socket(AF_INET, SOCK_DGRAM, 0), other = socket(AF_INET, SOCK_DGRAM, 0);
    to = at("127.0.0.1", 0);
    CHECK(bind(other, (void *)&to, sizeof to) == 0);
    to = name_of(other);
    CHECK(sendto(one, "a", 1, 0, (void *)&to, sizeof to) == 1 && recv(other, &(char){ 0 }, 1, 0) == 1);
    static char large[65507];
    CHECK(sendto(one, large, sizeof large, 0, (void *)&to, sizeof to) == sizeof large);
    CHECK(recv(other, large, sizeof large, 0) == sizeof large && close(other) == 0);
    CHECK(connect(one, (void *)&to, sizeof to) == 0 && write(one, "b", 1) == 1);
    CHECK(FAILS(recv(one, large, 1, 0), ECONNREFUSED) && close(one) == 0);

    for (int i = 0; i < COUNT; i++) {
        long now = counted("snmp", all[i].protocol, all[i].column);
        if (before[i] < 0 || now < before[i] + all[i].least)
            printf("%s %s: %ld, then %ld\n", all[i].protocol, all[i].column, before[i], now);
        CHECK(before[i] >= 0 && now >= before[i] + all[i].least);
    }
    CHECK(counted("netstat", "IpExt", "OutOctets") >= octets + (long)sizeof large);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "ambient"))
        return has_ambient();
    threads_are_who_they_are();
    ambient_capabilities_are_kept("/proc/self/exe");
    unix_credentials();
    descriptors_come_with_nothing();
    datagrams_disconnect();
    datagrams_are_stamped();
    groups_on_loopback();
    netlink_ports();
    route_to_an_address();
    terminals();
    terminals_that_are_kept();
    mkdir("/tmp", 0777);
    connections_that_fail();
    streams_tell_what_is_left();
    counters_count();
    ends_of_files();
    pipes_that_fill();
    watches_hear_the_end();
    puts("all likeness tests passed");
}
