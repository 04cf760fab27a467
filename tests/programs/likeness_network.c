// SPDX-License-Identifier: Apache-2.0 OR MIT
// What tests of Linux ask of the loopback interface's MTU, of the keys of TCP Fast Open, and of ramfs. As root, in namespaces of its own.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define FAIL(...) (printf("line %d: ", __LINE__), printf(__VA_ARGS__), printf(" (%s)\n", strerror(errno)), exit(1))
#define CHECK(what) ((what) ? 0 : FAIL("%s", #what))
#define REFUSED(what, error) ((what) == -1 && errno == (error) ? 0 : FAIL("%s is not refused with %s", #what, #error))
#ifndef TCP_FASTOPEN_KEY
#define TCP_FASTOPEN_KEY 33
#endif

static void alone(void (*act)(void)) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        act();
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static int made(int family, int type) {
    int fd = socket(family, type, 0);
    CHECK(fd >= 0);
    return fd;
}

static int request_of(unsigned long number, int value) {
    struct ifreq request = {.ifr_name = "lo"};
    request.ifr_mtu = value;
    int fd = made(AF_INET, SOCK_DGRAM), result = ioctl(fd, number, &request), error = errno;
    close(fd);
    errno = error;
    return result < 0 ? -1 : request.ifr_mtu;
}

static int set_mtu(int mtu) { return request_of(SIOCSIFMTU, mtu) < 0 ? -1 : 0; }
static int mtu(void) { return request_of(SIOCGIFMTU, 0); }

static socklen_t any_port(int family, struct sockaddr_storage *address) {
    memset(address, 0, sizeof *address);
    address->ss_family = (sa_family_t)family;
    if (family == AF_INET) {
        ((struct sockaddr_in *)address)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        return sizeof(struct sockaddr_in);
    }
    ((struct sockaddr_in6 *)address)->sin6_addr = in6addr_loopback;
    return sizeof(struct sockaddr_in6);
}

static int option(int fd, int level, int name) {
    int value;
    socklen_t length = sizeof value;
    CHECK(getsockopt(fd, level, name, &value, &length) == 0);
    return value;
}

/// A count of IPv4's in /proc/net/snmp, whose first line has the names and whose second one has the numbers.
static long counted(const char *name) {
    char names[1024], numbers[1024], *at_names, *at_numbers;
    FILE *file = fopen("/proc/net/snmp", "r");
    CHECK(file && fgets(names, sizeof names, file) && fgets(numbers, sizeof numbers, file) && fclose(file) == 0);
    char *word = strtok_r(names, " \n", &at_names), *number = strtok_r(numbers, " \n", &at_numbers);
    for (; word && number; word = strtok_r(0, " \n", &at_names), number = strtok_r(0, " \n", &at_numbers)) {
        if (strcmp(word, name) == 0) return atol(number);
    }
    FAIL("nothing counts %s", name);
}

static void datagrams_arrive_whole(int family) {
    static char sent[4000], received[5000];
    struct sockaddr_storage address;
    socklen_t length = any_port(family, &address);
    int to = made(family, SOCK_DGRAM), from = made(family, SOCK_DGRAM);
    CHECK(bind(to, (struct sockaddr *)&address, length) == 0);
    CHECK(getsockname(to, (struct sockaddr *)&address, &length) == 0);
    CHECK(connect(from, (struct sockaddr *)&address, length) == 0);
    for (size_t i = 0; i < sizeof sent; i++) sent[i] = (char)(i * 7);
    CHECK(send(from, sent, sizeof sent, 0) == sizeof sent);
    CHECK(recv(to, received, sizeof received, 0) == sizeof sent && memcmp(sent, received, sizeof sent) == 0);
    CHECK(option(from, family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6, family == AF_INET ? IP_MTU : 24) == mtu());
    CHECK(close(to) == 0 && close(from) == 0);
}

static void connected(int family, int ends[2]) {
    struct sockaddr_storage address;
    socklen_t length = any_port(family, &address);
    int listener = made(family, SOCK_STREAM);
    CHECK(bind(listener, (struct sockaddr *)&address, length) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &length) == 0);
    ends[0] = made(family, SOCK_STREAM);
    CHECK(connect(ends[0], (struct sockaddr *)&address, length) == 0);
    ends[1] = accept(listener, 0, 0);
    CHECK(ends[1] >= 0 && close(listener) == 0);
}

static void pours(int from, int to) {
    static char bytes[30000];
    memset(bytes, 'p', sizeof bytes);
    CHECK(send(from, bytes, sizeof bytes, 0) == sizeof bytes);
    for (size_t n = 0; n < sizeof bytes;) {
        ssize_t got = recv(to, bytes, sizeof bytes, 0);
        CHECK(got > 0 && bytes[0] == 'p' && bytes[got - 1] == 'p');
        n += (size_t)got;
    }
}

/// RTM_NEWLINK of the loopback interface, with the attribute where there is a value.
static int asks_by_netlink(int is_change, int up, uint32_t value) {
    struct {
        struct nlmsghdr head;
        struct ifinfomsg link;
        struct rtattr attribute;
        uint32_t mtu;
    } ask = {.head = {sizeof ask, RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK, 1, 0}, .link = {.ifi_index = 1}, .attribute = {8, IFLA_MTU}, .mtu = value};
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
        char rest[256];
    } answer;
    if (is_change) {
        ask.link.ifi_flags = up ? IFF_UP : 0;
        ask.link.ifi_change = IFF_UP;
        ask.head.nlmsg_len -= 8;
    }
    int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    CHECK(fd >= 0 && send(fd, &ask, ask.head.nlmsg_len, 0) == (ssize_t)ask.head.nlmsg_len);
    CHECK(recv(fd, &answer, sizeof answer, 0) > 0 && answer.head.nlmsg_type == NLMSG_ERROR && close(fd) == 0);
    errno = -answer.error.error;
    return answer.error.error == 0 ? 0 : -1;
}

static int set_by_netlink(uint32_t value) { return asks_by_netlink(0, 0, value); }
static void bring(int up) { CHECK(asks_by_netlink(1, up, 0) == 0); }

static void loopback_takes_an_mtu(void) {
    CHECK(unshare(CLONE_NEWNET) == 0);
    bring(1);
    CHECK(mtu() == 65536);
    int large[2], small[2], small6[2];
    connected(AF_INET, large);
    CHECK(option(large[0], IPPROTO_TCP, TCP_MAXSEG) > 16000);
    CHECK(set_mtu(1500) == 0 && mtu() == 1500);
    long pieces = counted("FragCreates"), whole = counted("ReasmOKs");
    datagrams_arrive_whole(AF_INET);
    pieces = counted("FragCreates") - pieces, whole = counted("ReasmOKs") - whole;
    if (pieces != 3 || whole != 1) FAIL("%ld pieces, %ld whole", pieces, whole);
    datagrams_arrive_whole(AF_INET6);
    connected(AF_INET, small);
    connected(AF_INET6, small6);
    CHECK(option(small[0], IPPROTO_TCP, TCP_MAXSEG) == 1448 && option(small[1], IPPROTO_TCP, TCP_MAXSEG) == 1448);
    CHECK(option(small6[0], IPPROTO_TCP, TCP_MAXSEG) == 1428);
    pours(small[0], small[1]);
    pours(small6[1], small6[0]);
    // Connections from before go on, with what fits now.
    pours(large[0], large[1]);
    CHECK(option(large[0], IPPROTO_TCP, TCP_MAXSEG) <= 1448);

    CHECK(set_by_netlink(9000) == 0 && mtu() == 9000);
    datagrams_arrive_whole(AF_INET);
    // IPv6 wants 1,280 bytes of every link.
    CHECK(set_mtu(1279) == 0);
    struct sockaddr_storage address;
    socklen_t length = any_port(AF_INET6, &address);
    int fd = made(AF_INET6, SOCK_DGRAM);
    REFUSED(bind(fd, (struct sockaddr *)&address, length), EADDRNOTAVAIL);
    datagrams_arrive_whole(AF_INET);
    // The address comes back when the interface goes up again, if there is room for it then.
    bring(0);
    bring(1);
    REFUSED(bind(fd, (struct sockaddr *)&address, length), EADDRNOTAVAIL);
    CHECK(set_mtu(1280) == 0);
    REFUSED(bind(fd, (struct sockaddr *)&address, length), EADDRNOTAVAIL);
    bring(0);
    bring(1);
    CHECK(bind(fd, (struct sockaddr *)&address, length) == 0 && close(fd) == 0);
    datagrams_arrive_whole(AF_INET6);
    REFUSED(set_mtu(-1), EINVAL);
    CHECK(set_mtu(100000) == 0 && mtu() == 100000);
    datagrams_arrive_whole(AF_INET6);
    CHECK(set_mtu(65536) == 0);
    // Another network has its own.
    CHECK(set_mtu(1400) == 0 && unshare(CLONE_NEWNET) == 0 && mtu() == 65536);
    CHECK(setgid(1000) == 0 && setuid(1000) == 0);
    REFUSED(set_mtu(1500), EPERM);
    REFUSED(set_by_netlink(1500), EPERM);
    CHECK(mtu() == 65536);
}

// --- TCP Fast Open ---

static const char file_of_keys[] = "/proc/sys/net/ipv4/tcp_fastopen_key";

static int write_keys(const char *text) {
    int fd = open(file_of_keys, O_WRONLY);
    if (fd < 0) return -1;
    ssize_t result = write(fd, text, strlen(text));
    int error = errno;
    close(fd);
    errno = error;
    return result < 0 ? -1 : 0;
}

static int are_keys(const char *wanted) {
    char text[256];
    int fd = open(file_of_keys, O_RDONLY);
    CHECK(fd >= 0);
    ssize_t length = read(fd, text, sizeof text - 1);
    CHECK(length > 0 && close(fd) == 0);
    text[length] = 0;
    return strcmp(text, wanted) == 0;
}

static void keys_are_kept(void) {
    static const unsigned char first[16] = {1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0};
    unsigned char two[32], read_[40];
    socklen_t length;
    CHECK(unshare(CLONE_NEWNET) == 0);
    CHECK(are_keys("00000000-00000000-00000000-00000000\n"));
    int fd = made(AF_INET, SOCK_STREAM), other = made(AF_INET6, SOCK_STREAM);
    length = sizeof read_;
    CHECK(getsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_KEY, read_, &length) == 0 && length == 0);
    CHECK(write_keys("00000001-2-00000003-4\n") == 0 && are_keys("00000001-00000002-00000003-00000004\n"));
    // Those of the network are no socket's.
    length = sizeof read_;
    CHECK(getsockopt(other, IPPROTO_TCP, TCP_FASTOPEN_KEY, read_, &length) == 0 && length == 0);
    // What is behind the line is not looked at.
    CHECK(write_keys("a-b-c-d,1-2-3-4\n\377\1") == 0);
    CHECK(are_keys("0000000a-0000000b-0000000c-0000000d,00000001-00000002-00000003-00000004\n"));
    static const char *const bad[] = {"1-2-3", "x-2-3-4", "1-2-3-4,5", "1-2-3-4,", ""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad - 1; i++) REFUSED(write_keys(bad[i]), EINVAL);

    memset(two, 'k', sizeof two);
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_KEY, two, 32) == 0);
    length = sizeof read_;
    CHECK(getsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_KEY, read_, &length) == 0 && length == 32 && memcmp(read_, two, 32) == 0);
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_KEY, first, 16) == 0);
    length = sizeof read_;
    CHECK(getsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_KEY, read_, &length) == 0 && length == 16 && memcmp(read_, first, 16) == 0);
    length = 4;
    CHECK(getsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_KEY, read_, &length) == 0 && length == 4);
    static const socklen_t lengths[] = {0, 4, 15, 17, 31, 33};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) REFUSED(setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_KEY, read_, lengths[i]), EINVAL);
    int datagrams = made(AF_INET, SOCK_DGRAM);
    REFUSED(setsockopt(datagrams, IPPROTO_TCP, TCP_FASTOPEN_KEY, two, 32), ENOPROTOOPT);

    // Who wants to listen with it gets keys that nobody knows.
    CHECK(unshare(CLONE_NEWNET) == 0 && are_keys("00000000-00000000-00000000-00000000\n"));
    int one = 1;
    fd = made(AF_INET, SOCK_STREAM);
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN, &one, sizeof one) == 0);
    CHECK(!are_keys("00000000-00000000-00000000-00000000\n"));
    struct stat stat_;
    CHECK(stat(file_of_keys, &stat_) == 0 && (stat_.st_mode & 07777) == 0600);
    CHECK(setgid(1000) == 0 && setuid(1000) == 0);
    REFUSED(write_keys("1-2-3-4"), EACCES);
    REFUSED(open(file_of_keys, O_RDONLY), EACCES);
}

// --- ramfs ---

static void memory_without_a_limit_is_mounted(void) {
    char folder[] = "/tmp/likeness.XXXXXX", path[64], text[4096] = "";
    struct statfs room;
    struct stat stat_;
    CHECK(mkdtemp(folder) && unshare(CLONE_NEWNS) == 0 && mount(0, "/", 0, MS_REC | MS_PRIVATE, 0) == 0);
    int fd = open("/proc/filesystems", O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0 && close(fd) == 0 && strstr(text, "nodev\tramfs\n"));
    CHECK(mount("anything", folder, "ramfs", MS_NOSUID, "size=4k,unknown") == 0);
    CHECK(statfs(folder, &room) == 0 && (unsigned long)room.f_type == 0x858458f6ul && room.f_blocks == 0 && room.f_files == 0);
    CHECK(stat(folder, &stat_) == 0 && (stat_.st_mode & 07777) == 0755);
    snprintf(path, sizeof path, "%s/file", folder);
    fd = open(path, O_RDWR | O_CREAT, 0644);
    CHECK(fd >= 0 && ftruncate(fd, 1 << 20) == 0);
    char *at = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED);
    memset(at, 'r', 1 << 20);
    CHECK(pread(fd, text, 4, (1 << 20) - 4) == 4 && memcmp(text, "rrrr", 4) == 0);
    REFUSED(fallocate(fd, 0, 0, 1 << 20), EOPNOTSUPP);
    REFUSED(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), EOPNOTSUPP);
    REFUSED(fsetxattr(fd, "trusted.a", "b", 1, 0), EOPNOTSUPP);
    REFUSED((int)fgetxattr(fd, "trusted.a", text, 1), EOPNOTSUPP);
    CHECK(flistxattr(fd, text, sizeof text) == 0);
    CHECK(munmap(at, 1 << 20) == 0);
    snprintf(text, sizeof text, "%s/other", folder);
    CHECK(link(path, text) == 0 && fstat(fd, &stat_) == 0 && stat_.st_nlink == 2 && unlink(text) == 0 && rename(path, text) == 0);
    REFUSED(umount(folder), EBUSY);
    CHECK(close(fd) == 0 && umount(folder) == 0);
    CHECK(mount(0, folder, "ramfs", 0, "mode=1700") == 0 && stat(folder, &stat_) == 0 && (stat_.st_mode & 07777) == 01700);
    CHECK(umount(folder) == 0);
    REFUSED(mount(0, folder, "ramfs", 0, "mode=99"), EINVAL);
    CHECK(rmdir(folder) == 0);
}

int main(void) {
    alone(loopback_takes_an_mtu);
    alone(keys_are_kept);
    alone(memory_without_a_limit_is_mounted);
    puts("all likeness tests of the network passed");
    return 0;
}
