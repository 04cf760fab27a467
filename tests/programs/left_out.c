// SPDX-License-Identifier: Apache-2.0 OR MIT
// For a kernel without these families: their calls answer ENOSYS, and packet sockets are of no known family.
#define _GNU_SOURCE
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

int main(void)
{
    static const long calls[] = {SYS_shmget,         SYS_semget,  SYS_msgget,       SYS_io_setup,
                                 SYS_io_uring_setup, SYS_add_key,  SYS_keyctl,       SYS_landlock_create_ruleset,
                                 SYS_mq_open, SYS_inotify_init1};
    for (unsigned i = 0; i < sizeof calls / sizeof calls[0]; i++)
        CHECK(syscall(calls[i], 0, 0, 0, 0) == -1 && errno == ENOSYS);
    CHECK(socket(AF_PACKET, SOCK_RAW, 0) == -1 && errno == EAFNOSUPPORT);
    printf("all of them are left out\n");
    return 0;
}
