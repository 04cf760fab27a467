// SPDX-License-Identifier: Apache-2.0 OR MIT
// A process with more children than there is memory for ends, and its children become the first process'; then all of them become
// runnable at once and end. argv[1] says how many children there may be at most. Passes on Linux, too, in a PID namespace of its own.
#define _GNU_SOURCE
#include "check.h"
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int most = argc > 1 ? atoi(argv[1]) : 200, line[2], made = 0;
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 && pipe(line) == 0);
    pid_t parent = fork();
    CHECK(parent >= 0);
    if (parent == 0) {
        setpgid(0, 0);
        int count = 0;
        while (count < most) {
            pid_t child = fork();
            if (child < 0)
                break;
            if (child == 0)
                for (;;)
                    pause();
            count++;
        }
        CHECK(write(line[1], &count, sizeof count) == sizeof count);
        for (;;)
            pause();
    }
    // Whoever is short of memory may be ended; then nothing is told, and its children are handed on all the same.
    close(line[1]);
    if (read(line[0], &made, sizeof made) != sizeof made)
        made = -1;
    kill(parent, SIGKILL);
    int status, reaped = 0;
    CHECK(waitpid(parent, &status, 0) == parent && WIFSIGNALED(status));
    // They wait, and are this process' now.
    CHECK(kill(-parent, SIGCONT) == 0 || made <= 0);
    kill(-parent, SIGKILL);
    while (waitpid(-1, &status, 0) > 0)
        reaped++;
    CHECK(errno == ECHILD && (made < 0 || reaped == made));
    printf("handed on %s: ok\n", reaped > 100 ? "many" : "few");
    return 0;
}
