// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the tests of systemd and ostree ask for, in which this kernel once differed from Linux.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <errno.h>
#include <linux/fs.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static int is_mount_root(int fd, const char *path) {
    struct statx s;
    CHECK(statx(fd, path, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, STATX_TYPE, &s) == 0);
    CHECK(s.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT);
    return (s.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

static void mount_points_are_known_by_their_descriptors(void) {
    static const struct { const char *path; int is_root; } cases[] = { { "/", 1 }, { "/proc", 1 }, { "/dev", 1 }, { "/proc/self", 0 } };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        int fd = open(cases[i].path, O_RDONLY | O_DIRECTORY);
        CHECK(fd >= 0 && is_mount_root(fd, "") == cases[i].is_root && is_mount_root(fd, ".") == cases[i].is_root);
        CHECK(fchdir(fd) == 0 && is_mount_root(AT_FDCWD, "") == cases[i].is_root && close(fd) == 0);
    }
    int pipes[2];
    CHECK(pipe(pipes) == 0 && !is_mount_root(pipes[0], "") && close(pipes[0]) == 0 && close(pipes[1]) == 0);
}

static long file_system(int fd) {
    struct statfs s;
    CHECK(fd >= 0 && fstatfs(fd, &s) == 0 && s.f_bsize == 4096);
    close(fd);
    return s.f_type;
}

static void files_without_a_place_have_a_file_system(void) {
    CHECK(file_system(open("/proc/self/ns/net", O_RDONLY)) == 0x6e736673);
    CHECK(file_system(open("/proc/self/ns/mnt", O_RDONLY)) == 0x6e736673);
    CHECK(file_system(socket(AF_UNIX, SOCK_STREAM, 0)) == 0x534f434b);
    CHECK(file_system(eventfd(0, 0)) == 0x09041934);
    int queue = mq_open("/likeness", O_CREAT | O_RDWR, 0600, NULL);
    CHECK(file_system(queue) == 0x19800202 && mq_unlink("/likeness") == 0);
}

// A server that is bound to one interface answers those that have no address yet.
static void broadcasts_leave_by_the_interface_that_is_asked_for(void) {
    struct sockaddr_in all = { .sin_family = AF_INET, .sin_addr.s_addr = INADDR_BROADCAST }, own = { .sin_family = AF_INET };
    socklen_t length = sizeof own;
    int receiver = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
    CHECK(bind(receiver, (void *)&own, sizeof own) == 0 && getsockname(receiver, (void *)&own, &length) == 0);
    all.sin_port = own.sin_port;
    for (int by_message = 0; by_message < 2; by_message++) {
        int s = socket(AF_INET, SOCK_DGRAM, 0);
        CHECK(setsockopt(s, SOL_SOCKET, SO_BROADCAST, &on, sizeof on) == 0);
        char control[CMSG_SPACE(sizeof(struct in_pktinfo))] = { 0 }, got[8];
        struct iovec text = { "hello", 5 };
        struct msghdr message = { .msg_name = &all, .msg_namelen = sizeof all, .msg_iov = &text, .msg_iovlen = 1 };
        if (by_message) {
            message.msg_control = control, message.msg_controllen = sizeof control;
            struct cmsghdr *header = CMSG_FIRSTHDR(&message);
            header->cmsg_level = IPPROTO_IP, header->cmsg_type = IP_PKTINFO, header->cmsg_len = CMSG_LEN(sizeof(struct in_pktinfo));
            ((struct in_pktinfo *)CMSG_DATA(header))->ipi_ifindex = 1;
        } else {
            CHECK(setsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3) == 0);
        }
        CHECK(sendmsg(s, &message, 0) == 5);
        CHECK(recv(receiver, got, sizeof got, 0) == 5 && memcmp(got, "hello", 5) == 0 && close(s) == 0);
    }
    CHECK(close(receiver) == 0);
}

struct request {
    struct nlmsghdr header;
    struct genlmsghdr generic;
    char attributes[64];
};

// The length and the answer's first message; the errno of an error.
static int ask(int s, unsigned short family, int flags, int command, const void *attributes, int size, char *answer, int most) {
    static unsigned number;
    struct request request = { .header = { NLMSG_HDRLEN + GENL_HDRLEN + size, family, NLM_F_REQUEST | flags, ++number, 0 }, .generic = { command, 1, 0 } };
    memcpy(request.attributes, attributes, size);
    CHECK(send(s, &request, request.header.nlmsg_len, 0) == request.header.nlmsg_len);
    int length = recv(s, answer, most, 0);
    struct nlmsghdr *header = (void *)answer;
    CHECK(length >= (int)sizeof *header && header->nlmsg_seq == number);
    return header->nlmsg_type == NLMSG_ERROR ? ((struct nlmsgerr *)NLMSG_DATA(header))->error : length;
}

static void families_of_generic_netlink_are_asked_for_by_name(void) {
    _Alignas(4) char answer[32768];
    int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC);
    CHECK(s >= 0);
    static const struct { struct nlattr header; char name[8]; } known = { { 11, CTRL_ATTR_FAMILY_NAME }, "nlctrl" }, unknown = { { 11, CTRL_ATTR_FAMILY_NAME }, "nosuch" };
    static const struct { struct nlattr header; unsigned short id[2]; } controller = { { 6, CTRL_ATTR_FAMILY_ID }, { GENL_ID_CTRL } };
    const void *asked[] = { &known, &controller };
    int sizes[] = { sizeof known, sizeof controller };
    for (int i = 0; i < 2; i++) {
        int length = ask(s, GENL_ID_CTRL, 0, CTRL_CMD_GETFAMILY, asked[i], sizes[i], answer, sizeof answer);
        struct nlmsghdr *header = (void *)answer;
        struct genlmsghdr *generic = NLMSG_DATA(header);
        CHECK(length > 0 && header->nlmsg_type == GENL_ID_CTRL && generic->cmd == CTRL_CMD_NEWFAMILY && generic->version == 2);
        char *attribute = (char *)generic + GENL_HDRLEN, *end = answer + header->nlmsg_len;
        int seen = 0;
        while (attribute < end) {
            struct nlattr *one = (void *)attribute;
            seen |= one->nla_type == CTRL_ATTR_FAMILY_NAME && strcmp(attribute + NLA_HDRLEN, "nlctrl") == 0;
            seen |= (one->nla_type == CTRL_ATTR_FAMILY_ID && *(unsigned short *)(attribute + NLA_HDRLEN) == GENL_ID_CTRL) << 1;
            attribute += NLA_ALIGN(one->nla_len);
        }
        CHECK(seen == 3);
    }
    CHECK(ask(s, GENL_ID_CTRL, 0, CTRL_CMD_GETFAMILY, &unknown, sizeof unknown, answer, sizeof answer) == -ENOENT);
    CHECK(ask(s, GENL_ID_CTRL, 0, CTRL_CMD_GETFAMILY, "", 0, answer, sizeof answer) == -EINVAL);
    CHECK(ask(s, GENL_ID_CTRL, 0, 99, "", 0, answer, sizeof answer) == -EOPNOTSUPP);
    CHECK(ask(s, 999, 0, CTRL_CMD_GETFAMILY, "", 0, answer, sizeof answer) == -ENOENT);
    // All families, and the end.
    int length = ask(s, GENL_ID_CTRL, NLM_F_DUMP, CTRL_CMD_GETFAMILY, "", 0, answer, sizeof answer), is_done = 0;
    for (;;) {
        CHECK(length > 0);
        for (struct nlmsghdr *header = (void *)answer; NLMSG_OK(header, length); header = NLMSG_NEXT(header, length))
            is_done |= header->nlmsg_type == NLMSG_DONE;
        if (is_done)
            break;
        length = recv(s, answer, sizeof answer, 0);
    }
    CHECK(close(s) == 0);
}

static void settings_of_interfaces_and_namespaces_are_there(void) {
    static const char *const paths[] = {
        "net/ipv4/conf/lo/forwarding", "net/ipv4/conf/all/forwarding", "net/ipv4/conf/all/rp_filter", "net/ipv4/ip_default_ttl",
        "user/max_user_namespaces",
    };
    CHECK(chdir("/proc/sys") == 0);
    for (unsigned i = 0; i < sizeof paths / sizeof *paths; i++) {
        char text[32] = "";
        int fd = open(paths[i], O_RDONLY);
        CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0 && text[0] >= '0' && text[0] <= '9' && close(fd) == 0);
    }
}

// ostree goes on where it may not freeze a file system, or that cannot be frozen.
static void file_systems_that_are_not_frozen_say_so(void) {
    int fd = open("/tmp", O_RDONLY | O_DIRECTORY);
    CHECK(fd >= 0);
    errno = 0;
    CHECK(ioctl(fd, FITHAW, 0) == -1 && (errno == EINVAL || errno == EPERM) && close(fd) == 0);
}

int main(void) {
    mount_points_are_known_by_their_descriptors();
    files_without_a_place_have_a_file_system();
    broadcasts_leave_by_the_interface_that_is_asked_for();
    families_of_generic_netlink_are_asked_for_by_name();
    settings_of_interfaces_and_namespaces_are_there();
    file_systems_that_are_not_frozen_say_so();
    puts("all likeness tests of systemd passed");
}
