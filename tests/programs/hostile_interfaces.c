// SPDX-License-Identifier: Apache-2.0 OR MIT
// Interfaces without end, circles of pairs and bridges, routes to nowhere, namespaces that end under their interfaces: the machine goes on. On Linux: as
// root, with fewer interfaces (there is no bound there).
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <net/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>

#include "netlink.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static int tun(const char *name, int flags)
{
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    struct ifreq i = {.ifr_flags = flags};
    CHECK(fd >= 0);
    strcpy(i.ifr_name, name);
    CHECK(ioctl(fd, TUNSETIFF, &i) == 0);
    return fd;
}

static void too_many_interfaces(int most)
{
    char name[16];
    int made = 0, error = 0;
    for (; made < most && !error; made++) {
        sprintf(name, "v%d", made);
        char other[16];
        sprintf(other, "w%d", made);
        error = make_link("veth", name, other, ADD);
    }
    made -= error != 0;
    // With an end there is one, without one all are there.
    CHECK(error == 0 || error == ENFILE || error == ENOMEM || error == ENOBUFS);
    CHECK(made > 50);
    for (int i = 0; i < made; i++) {
        sprintf(name, "v%d", i);
        CHECK(delete_link(name) == 0);
    }
    sprintf(name, "w%d", made - 1);
    CHECK(link_index(name) == 0);
}

static void too_many_routes(int most)
{
    int fd = tun("r", IFF_TUN | IFF_NO_PI), made = 0, error = 0;
    CHECK(add_ip("r", "10.1.0.1", 24) == 0 && set_up("r", 1) == 0);
    for (; made < most && !error; made++) {
        char to[32];
        sprintf(to, "172.%d.%d.%d", 16 + made / 65536, made / 256 % 256, made % 256);
        error = route(RTM_NEWROUTE, ADD, (struct route){.to = to, .prefix = 32, .via = "10.1.0.9"});
    }
    CHECK(error == 0 || error == ENOBUFS || error == ENOMEM);
    // They go with their interface.
    close(fd);
    fd = tun("r", IFF_TUN | IFF_NO_PI);
    CHECK(add_ip("r", "10.1.0.1", 24) == 0 && set_up("r", 1) == 0);
    CHECK(route(RTM_NEWROUTE, ADD, (struct route){.to = "172.16.0.0", .prefix = 32, .via = "10.1.0.9"}) == 0);
    close(fd);
}

// Frames for all go round for ever; programs and other interfaces go on meanwhile.
static void circles(void)
{
    static const char *names[] = {"c0", "c1", "c2", "c3"};
    CHECK(make_link("bridge", "one", NULL, ADD) == 0 && make_link("bridge", "two", NULL, ADD) == 0);
    CHECK(make_link("veth", "c0", "c1", ADD) == 0 && make_link("veth", "c2", "c3", ADD) == 0);
    CHECK(set_up("one", 1) == 0 && set_up("two", 1) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(set_up(names[i], 1) == 0 && set_number(names[i], IFLA_MASTER, link_index(i & 1 ? "two" : "one")) == 0);
    CHECK(add_ip("one", "10.7.0.1", 24) == 0);
    int udp = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
    setsockopt(udp, SOL_SOCKET, SO_BROADCAST, &on, sizeof on);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = inet_addr("10.7.0.255")};
    for (int i = 0; i < 100; i++)
        sendto(udp, "round", 5, 0, (void *)&to, sizeof to);
    double end = now() + 1;
    int turns = 0;
    while (now() < end) {
        usleep(1000);
        turns++;
    }
    CHECK(turns > 10);
    CHECK(delete_link("c0") == 0 && delete_link("c2") == 0 && delete_link("one") == 0 && delete_link("two") == 0);
    close(udp);
}

// Packets that are sent on to where they came from.
static void to_itself(void)
{
    int fd = tun("s", IFF_TUN | IFF_NO_PI), forward = open("/proc/sys/net/ipv4/ip_forward", O_WRONLY);
    CHECK(write(forward, "1", 1) == 1 && add_ip("s", "10.8.0.1", 24) == 0 && set_up("s", 1) == 0);
    CHECK(route(RTM_NEWROUTE, ADD, (struct route){.name = "s"}) == 0);
    uint8_t packet[40] = {0x45, 0, 0, 40, 0, 1, 0, 0, 200, 17, 0, 0, 10, 8, 0, 2, 9, 9, 9, 9};
    int hops = 0;
    for (int n = 40; n > 0;) {
        uint32_t sum = 0;
        packet[10] = packet[11] = 0;
        for (int i = 0; i < 20; i += 2)
            sum += packet[i] << 8 | packet[i + 1];
        sum = (sum & 0xffff) + (sum >> 16);
        packet[10] = ~sum >> 8, packet[11] = ~sum;
        CHECK(write(fd, packet, 40) == 40);
        uint8_t b[2048];
        int found = 0;
        for (int i = 0; i < 8 && !found; i++) {
            struct pollfd p = {fd, POLLIN, 0};
            if (poll(&p, 1, 200) == 0)
                break;
            n = read(fd, b, sizeof b);
            found = n == 40 && b[0] == 0x45 && b[9] == 17;
        }
        if (!found)
            break;
        memcpy(packet, b, 40);
        hops++;
    }
    CHECK(hops == 199);
    close(fd);
    close(forward);
}

// A queue that nobody reads has a bound, and so has one that ends meanwhile.
static void unread(void)
{
    int fd = tun("q", IFF_TUN | IFF_NO_PI);
    CHECK(add_ip("q", "10.9.0.1", 24) == 0 && set_up("q", 1) == 0);
    int udp = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = inet_addr("10.9.0.2")};
    static char b[1400];
    for (int i = 0; i < 20000; i++)
        sendto(udp, b, sizeof b, MSG_DONTWAIT, (void *)&to, sizeof to);
    int waiting = 0;
    while (read(fd, b, sizeof b) > 0)
        waiting++;
    CHECK(waiting > 10 && waiting <= 2000);
    for (int i = 0; i < 100; i++)
        sendto(udp, b, sizeof b, MSG_DONTWAIT, (void *)&to, sizeof to);
    close(fd);
    close(udp);
}

// Interfaces are moved, and namespaces end, while packets are under way.
static void moving(void)
{
    for (int i = 0; i < 30; i++) {
        int ends[2];
        char c;
        CHECK(make_link("veth", "m", "n", ADD) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
        pid_t child = fork();
        if (child == 0) {
            CHECK(unshare(CLONE_NEWNET) == 0 && write(ends[1], "u", 1) == 1 && read(ends[1], &c, 1) == 1);
            CHECK(set_up("n", 1) == 0 && add_ip("n", "10.3.0.2", 24) == 0);
            CHECK(write(ends[1], "r", 1) == 1);
            usleep(i * 200);
            _exit(0);
        }
        CHECK(read(ends[0], &c, 1) == 1 && add_ip("m", "10.3.0.1", 24) == 0 && set_up("m", 1) == 0 && set_up("n", 1) == 0);
        int udp = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
        setsockopt(udp, SOL_SOCKET, SO_BROADCAST, &on, sizeof on);
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = inet_addr("10.3.0.255")};
        for (int k = 0; k < 50; k++)
            sendto(udp, "x", 1, MSG_DONTWAIT, (void *)&to, sizeof to);
        CHECK(set_number("n", IFLA_NET_NS_PID, child) == 0 && write(ends[0], "m", 1) == 1 && read(ends[0], &c, 1) == 1);
        for (int k = 0; k < 50; k++)
            sendto(udp, "x", 1, MSG_DONTWAIT, (void *)&to, sizeof to);
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        for (int k = 0; link_index("m"); k++) {
            CHECK(k < 5000);
            usleep(1000);
        }
        close(udp);
        close(ends[0]);
        close(ends[1]);
    }
}

int main(void)
{
    struct utsname name;
    setvbuf(stdout, NULL, _IONBF, 0);
    uname(&name);
    int is_here = strstr(name.release, "unilith") != NULL;
    CHECK(unshare(CLONE_NEWNET) == 0 && set_up("lo", 1) == 0);
    too_many_interfaces(is_here ? 10000 : 60);
    too_many_routes(is_here ? 20000 : 1000);
    circles();
    to_itself();
    unread();
    moving();
    puts("hostile interfaces: ok");
    return 0;
}
