// SPDX-License-Identifier: Apache-2.0 OR MIT
// What /proc says of a process' memory, page by page and mapping by mapping, also where there are tens of thousands; and what
// one process sees of another's sockets.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { PAGE = 4096, MANY = 60000 };

static char text[65536];

// Reads a file to its end; answers how many bytes it has and, in `lines`, how many lines.
static long length_of(const char *path, long *lines)
{
    int fd = open(path, O_RDONLY);
    long total = 0, n;
    *lines = 0;
    CHECK(fd >= 0);
    while ((n = read(fd, text, sizeof text)) > 0) {
        total += n;
        for (long i = 0; i < n; i++)
            *lines += text[i] == '\n';
    }
    CHECK(n == 0 && close(fd) == 0);
    return total;
}

// A number of kB of the mapping at `address` in smaps.
static long size_of(const char *address, const char *name)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[512], begin[32];
    int here = 0;
    long found = -1;
    CHECK(file);
    snprintf(begin, sizeof begin, "%08lx-", (long)address);
    while (fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        // Mappings begin with an address, sizes with a capital letter.
        if (line[0] < 'A' || line[0] > 'Z')
            here = !strncmp(line, begin, strlen(begin));
        else if (here && colon && !strncmp(line, name, strlen(name)) && line[strlen(name)] == ':')
            CHECK(sscanf(colon + 1, "%ld", &found) == 1);
    }
    fclose(file);
    return found;
}

// A mapping of 32 terabytes of a short file: making it appear ends where the file does.
static void locking_ends_where_a_file_does(void)
{
    const size_t length = 1UL << 45;
    int fd = memfd_create("short", 0), status;
    CHECK(fd >= 0 && ftruncate(fd, 2 * PAGE) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        char *file = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
        CHECK(file != MAP_FAILED && file[PAGE] == 0);
        // Whether it is too much to be locked is another matter.
        CHECK(mlockall(MCL_CURRENT) == 0 || errno == ENOMEM || errno == EPERM);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0 && close(fd) == 0);
}

static void sizes_are_those_of_touched_pages(void)
{
    char *memory = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED && madvise(memory, 8 * PAGE, MADV_NOHUGEPAGE) == 0);
    // Apart from its neighbours: another right on either side.
    CHECK(mprotect(memory, PAGE, PROT_NONE) == 0 && mprotect(memory + 7 * PAGE, PAGE, PROT_NONE) == 0);
    char *at = memory + PAGE;
    for (int i = 0; i < 3; i++)
        at[i * PAGE] = 1;
    // A kernel may make pages before they are touched: mincore tells which are there.
    unsigned char there[8];
    int count = 0;
    CHECK(mincore(memory, 8 * PAGE, there) == 0);
    for (int i = 0; i < 8; i++)
        count += there[i] & 1;
    long all = count * 4L;
    CHECK(all >= 12 && size_of(at, "Size") == 24 && size_of(at, "KernelPageSize") == 4);
    CHECK(size_of(at, "Rss") == all && size_of(at, "Pss") == all && size_of(at, "Anonymous") == all);
    CHECK(size_of(at, "Private_Dirty") == all && size_of(at, "Shared_Dirty") == 0 && size_of(at, "Locked") == 0);
    int ready[2];
    char byte = 0;
    CHECK(pipe(ready) == 0);
    pid_t child = fork();
    if (child == 0) {
        at[0] = 2;
        long own = size_of(at, "Private_Dirty");
        CHECK(own >= 4 && own < all && size_of(at, "Shared_Dirty") == all - own && size_of(at, "Rss") == all);
        CHECK(write(ready[1], &byte, 1) == 1);
        pause();
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    long shared = size_of(at, "Shared_Dirty");
    CHECK(shared > 0 && shared < all && size_of(at, "Private_Dirty") == all - shared);
    CHECK(size_of(at, "Pss") == all - shared / 2);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    CHECK(size_of(at, "Private_Dirty") == all);
    CHECK(mlock(at, PAGE) == 0 && size_of(at, "Locked") == 4 && munlock(at, PAGE) == 0);

    int map = open("/proc/self/pagemap", O_RDONLY);
    uint64_t entries[8], odd[2];
    CHECK(map >= 0);
    CHECK(pread(map, entries, sizeof entries, (long)memory / PAGE * 8) == sizeof entries);
    for (int i = 0; i < 8; i++)
        CHECK(entries[i] >> 63 == (there[i] & 1));
    CHECK(!(entries[1] >> 62 & 1) && !(entries[1] >> 61 & 1));
    CHECK(pread(map, odd, 8, 4) == -1 && errno == EINVAL);
    CHECK(pread(map, odd, 12, 0) == -1 && errno == EINVAL);
    CHECK(pread(map, entries, 8, (1L << 47) / PAGE * 8 + 4096) <= 8);
    CHECK(close(map) == 0 && munmap(memory, 8 * PAGE) == 0);
}

static void the_sum_of_all_mappings_is_told(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    long rss = 0, dirty = 0;
    CHECK(file && fgets(line, sizeof line, file) && strstr(line, "[rollup]"));
    while (fgets(line, sizeof line, file)) {
        sscanf(line, "Rss: %ld", &rss);
        sscanf(line, "Private_Dirty: %ld", &dirty);
    }
    fclose(file);
    CHECK(rss > 16 && dirty > 4 && dirty <= rss);
}

// A text of several megabytes, a piece of which is read at a time; and a crash among as many mappings.
static void tens_of_thousands_of_mappings_are_told(void)
{
    long before, lines, tall, bytes;
    length_of("/proc/self/maps", &before);
    char *base = (char *)0x100000000;
    for (long i = 0; i < MANY; i++)
        CHECK(mmap(base + i * 2 * PAGE, PAGE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != MAP_FAILED);
    base[0] = 1;
    bytes = length_of("/proc/self/maps", &lines);
    CHECK(bytes > 2000000 && lines >= before + MANY - 2 && lines <= before + MANY + 2);
    bytes = length_of("/proc/self/smaps", &tall);
    CHECK(bytes > 20000000 && tall >= 20 * (long)MANY);
    pid_t child = fork();
    if (child == 0)
        *(volatile char *)8 = 1;
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    CHECK(munmap(base, MANY * 2L * PAGE) == 0);
}

static int is_listed(const char *path, unsigned port)
{
    FILE *file = fopen(path, "r");
    char line[512], wanted[16];
    int found = 0;
    CHECK(file);
    snprintf(wanted, sizeof wanted, ":%04X ", port);
    while (fgets(line, sizeof line, file)) {
        char *at = strstr(line, wanted);
        found += at && at < line + 24;
    }
    fclose(file);
    return found;
}

static void sockets_of_others_are_told(void)
{
    int started[2];
    uint16_t ports[2];
    CHECK(pipe(started) == 0);
    pid_t child = fork();
    if (child == 0) {
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t size = sizeof address;
        int tcp = socket(AF_INET, SOCK_STREAM, 0), udp = socket(AF_INET, SOCK_DGRAM, 0);
        CHECK(bind(tcp, (void *)&address, size) == 0 && listen(tcp, 1) == 0 && dup(tcp) > 0);
        CHECK(getsockname(tcp, (void *)&address, &size) == 0);
        ports[0] = ntohs(address.sin_port);
        address.sin_port = 0;
        CHECK(bind(udp, (void *)&address, size) == 0 && getsockname(udp, (void *)&address, &size) == 0);
        ports[1] = ntohs(address.sin_port);
        // Its sockets are this process' too, and are listed once.
        if (fork() == 0)
            pause();
        CHECK(write(started[1], ports, sizeof ports) == sizeof ports);
        pause();
    }
    CHECK(read(started[0], ports, sizeof ports) == sizeof ports);
    CHECK(is_listed("/proc/net/tcp", ports[0]) == 1 && is_listed("/proc/net/udp", ports[1]) == 1);
    CHECK(signal(SIGTERM, SIG_IGN) != SIG_ERR && kill(0, SIGTERM) == 0);
    CHECK(waitpid(child, NULL, 0) == child);
}

static void processors_are_told(void)
{
    cpu_set_t all, one;
    char line[256], first[64] = "", now[64] = "";
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &all))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file);
    while (fgets(line, sizeof line, file))
        sscanf(line, "Cpus_allowed_list: %63s", now);
    fclose(file);
    snprintf(first, sizeof first, "%d", cpu);
    CHECK(!strcmp(first, now));
    CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
}

int main(void)
{
    CHECK(setpgid(0, 0) == 0 || getpid() == getpgrp());
    locking_ends_where_a_file_does();
    sizes_are_those_of_touched_pages();
    the_sum_of_all_mappings_is_told();
    tens_of_thousands_of_mappings_are_told();
    sockets_of_others_are_told();
    processors_are_told();
    puts("all tests of maps passed");
    return 0;
}
