// SPDX-License-Identifier: Apache-2.0 OR MIT
// Others take all memory, again and again, and are ended for it. Meanwhile the kernel writes to fresh pages of this process, for
// a call and for a signal's frame: it waits for the page, as a touch of the program's own would. Ends in a machine of 64 MiB;
// not for the host.
#include "check.h"
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 6, FRESH = 256 << 10 };

static volatile sig_atomic_t handled;

// On pages of the alternate stack that were given back.
static void handler(int signal) {
    (void)signal;
    handled++;
}

static void eat(void) {
    for (;;) {
        char *piece = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (piece != MAP_FAILED)
            memset(piece, 1, 1 << 20);
    }
}

int main(void) {
    int zero = open("/dev/zero", O_RDONLY), ended = 0;
    char *stack = mmap(NULL, FRESH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t alternate = { .ss_sp = stack, .ss_size = FRESH };
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_ONSTACK | SA_RESTART };
    struct itimerval often = { { 0, 2000 }, { 0, 2000 } };
    CHECK(zero >= 0 && stack != MAP_FAILED && sigaltstack(&alternate, NULL) == 0);
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (int begun = 0; ended < CHILDREN;) {
        if (begun == ended) {
            int child = fork();
            if (child == 0)
                eat();
            if (child > 0)
                begun++;
        }
        char *fresh = mmap(NULL, FRESH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(fresh != MAP_FAILED);
        CHECK(read(zero, fresh, FRESH) == FRESH);
        CHECK(munmap(fresh, FRESH) == 0 && madvise(stack, FRESH, MADV_DONTNEED) == 0);
        int status, child = waitpid(-1, &status, WNOHANG);
        if (child > 0) {
            CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
            ended++;
        }
    }
    CHECK(handled > 0);
    printf("the kernel had its pages beside %d victims\n", ended);
    return 0;
}
