// SPDX-License-Identifier: Apache-2.0 OR MIT
// Forks children that end and that nobody waits for, until it may have no more.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(void) {
    for (int count = 0;; count++) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        if (child < 0) {
            printf("fork: %s after %d\n", strerror(errno), count);
            fflush(stdout);
            for (;;)
                pause();
        }
    }
}
