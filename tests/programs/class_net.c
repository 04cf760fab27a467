// SPDX-License-Identifier: Apache-2.0 OR MIT
// /sys/class/net (sysfs-class-net) says of each interface what the calls of netdevice(7) say.
#include "check.h"
#include <dirent.h>
#include <fcntl.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static int at;

// A file's text, or "errno N".
static const char *text(const char *interface, const char *file) {
    static char path[512], buffer[8][256];
    static int next;
    char *out = buffer[next++ % 8];
    snprintf(path, sizeof path, "/sys/class/net/%s/%s", interface, file);
    int fd = open(path, O_RDONLY);
    ssize_t length = fd < 0 ? -1 : read(fd, out, 255);
    if (length < 0)
        snprintf(out, 256, "errno %d", errno);
    else
        out[length] = 0;
    if (fd >= 0)
        close(fd);
    return out;
}

static int says(const char *interface, const char *file, const char *what) {
    const char *found = text(interface, file);
    if (strcmp(found, what) != 0)
        printf("%s/%s: %s, not %s\n", interface, file, found, what);
    return strcmp(found, what) == 0;
}

static struct ifreq ask(const char *interface, unsigned long request) {
    struct ifreq about = {0};
    strncpy(about.ifr_name, interface, IFNAMSIZ - 1);
    CHECK(ioctl(at, request, &about) == 0);
    return about;
}

static void check(const char *name) {
    char wanted[256], path[512], link[512];
    snprintf(wanted, sizeof wanted, "%u\n", if_nametoindex(name));
    CHECK(says(name, "ifindex", wanted));
    snprintf(wanted, sizeof wanted, "INTERFACE=%s\nIFINDEX=%u\n", name, if_nametoindex(name));
    CHECK(says(name, "uevent", wanted));
    snprintf(wanted, sizeof wanted, "%d\n", ask(name, SIOCGIFMTU).ifr_mtu);
    CHECK(says(name, "mtu", wanted));
    snprintf(wanted, sizeof wanted, "%d\n", ask(name, SIOCGIFTXQLEN).ifr_qlen);
    CHECK(says(name, "tx_queue_len", wanted));
    struct ifreq about = ask(name, SIOCGIFHWADDR);
    const unsigned char *a = (const unsigned char *)about.ifr_hwaddr.sa_data;
    snprintf(wanted, sizeof wanted, "%02x:%02x:%02x:%02x:%02x:%02x\n", a[0], a[1], a[2], a[3], a[4], a[5]);
    CHECK(says(name, "address", wanted));
    snprintf(wanted, sizeof wanted, "%d\n", about.ifr_hwaddr.sa_family);
    CHECK(says(name, "type", wanted));
    int flags = (unsigned short)ask(name, SIOCGIFFLAGS).ifr_flags;
    snprintf(wanted, sizeof wanted, "0x%x\n", flags & ~(IFF_RUNNING));
    CHECK(says(name, "flags", wanted));
    CHECK(says(name, "addr_len", "6\n"));
    const char *carrier = text(name, "carrier");
    CHECK(flags & IFF_UP ? !strcmp(carrier, flags & IFF_RUNNING ? "1\n" : "0\n") : !strcmp(carrier, "errno 22"));
    if (flags & IFF_LOOPBACK) {
        CHECK(says(name, "speed", "errno 22") && says(name, "duplex", "errno 22"));
        CHECK(says(name, "broadcast", "00:00:00:00:00:00\n"));
    }
    const char *counters[] = {"rx_bytes", "tx_bytes", "rx_packets", "tx_packets", "rx_errors", "tx_dropped", "collisions"};
    for (unsigned i = 0; i < sizeof counters / sizeof *counters; i++) {
        snprintf(path, sizeof path, "statistics/%s", counters[i]);
        const char *found = text(name, path);
        CHECK(found[0] != 'e' && strspn(found, "0123456789") == strlen(found) - 1 && strchr(found, '\n'));
    }
    // A name is a link to the directory of a device, and that leads back.
    struct stat first, second;
    snprintf(path, sizeof path, "/sys/class/net/%s", name);
    CHECK(lstat(path, &first) == 0 && S_ISLNK(first.st_mode));
    ssize_t length = readlink(path, link, sizeof link - 1);
    CHECK(length > 0);
    link[length] = 0;
    CHECK(strncmp(link, "../../devices/", 14) == 0 && strstr(link, "/net/"));
    CHECK(stat(path, &first) == 0 && S_ISDIR(first.st_mode));
    snprintf(path, sizeof path, "/sys/class/net/%s/subsystem/%s", name, name);
    CHECK(stat(path, &second) == 0 && second.st_ino == first.st_ino);
    snprintf(path, sizeof path, "/sys/class/net/%s/nothing", name);
    CHECK(stat(path, &second) == -1 && errno == ENOENT);
    snprintf(path, sizeof path, "/sys/class/net/%s/address", name);
    CHECK(open(path, O_WRONLY | O_TRUNC) == -1 || write(open(path, O_WRONLY), "x", 1) == -1);
}

// An administrator gives an interface another MTU.
static void change(const char *name) {
    char path[512], before[16];
    snprintf(path, sizeof path, "/sys/class/net/%s/mtu", name);
    snprintf(before, sizeof before, "%s", text(name, "mtu"));
    int fd = open(path, O_WRONLY);
    CHECK(fd >= 0);
    CHECK(write(fd, "1400\n", 5) == 5 && ask(name, SIOCGIFMTU).ifr_mtu == 1400);
    CHECK(write(fd, "many", 4) == -1 && errno == EINVAL);
    CHECK(write(fd, "4294967295", 10) == -1 && errno == EINVAL);
    CHECK(ask(name, SIOCGIFMTU).ifr_mtu == 1400);
    CHECK(write(fd, before, strlen(before)) == (ssize_t)strlen(before));
    close(fd);
}

int main(void) {
    at = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHECK(at >= 0);
    DIR *all = opendir("/sys/class/net");
    CHECK(all);
    unsigned count = 0, named = 0;
    for (struct dirent *one; (one = readdir(all));)
        if (one->d_name[0] != '.' && strcmp(one->d_name, "bonding_masters") != 0) {
            CHECK(one->d_type == DT_LNK || one->d_type == DT_UNKNOWN);
            check(one->d_name);
            count++;
        }
    closedir(all);
    struct if_nameindex *names = if_nameindex();
    CHECK(names);
    for (; names[named].if_index; named++)
        CHECK(text(names[named].if_name, "ifindex")[0] != 'e');
    CHECK(count == named && count > 0);
    CHECK(says("lo", "operstate", "unknown\n"));
    struct stat none;
    CHECK(stat("/sys/class/net/nothing", &none) == -1 && errno == ENOENT);
    change("lo");
    printf("interfaces in /sys: ok\n");
    return 0;
}
