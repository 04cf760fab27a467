// SPDX-License-Identifier: Apache-2.0 OR MIT
// Cases that are chosen by name, and what they leave of the machine's memory.
#include "check.h"
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

// Whether the case is among the program's arguments; without any all of them are.
static int is_named(const char *name, int count, char **arguments) {
    for (int i = 1; i < count; i++)
        if (strcmp(name, arguments[i]) == 0)
            return 1;
    return count == 1;
}

// Free memory in KiB. Opened without the C library's buffers: little may be left.
static long free_kib(void) {
    char text[4096], *line;
    int fd = open("/proc/meminfo", O_RDONLY), length = (int)read(fd, text, sizeof text - 1);
    close(fd);
    text[length > 0 ? length : 0] = 0;
    CHECK((line = strstr(text, "MemFree:")));
    return atol(line + 8);
}
