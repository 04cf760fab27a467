// SPDX-License-Identifier: Apache-2.0 OR MIT
// Memory whose neighbours lie in pages that are no neighbours: more pieces than a host allows a process mappings
// (vm.max_map_count, 65,530). One mapping on Linux.
#include "check.h"
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 75000 };

static unsigned char *memory;

static void fill(int first, int step, int salt) {
    for (int page = first; page < PAGES; page += step)
        *(int *)(memory + (size_t)page * PAGE) = page + salt;
}

// All even pages hold their number and the salt, odd ones their number.
static int is_right(int salt) {
    for (int page = 0; page < PAGES; page++)
        if (*(int *)(memory + (size_t)page * PAGE) != page + (page % 2 ? 0 : salt))
            return 0;
    return 1;
}

int main(void) {
    int go[2], status;
    memory = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED && pipe(go) == 0);
    fill(0, 1, 0);
    int child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char byte;
        close(go[1]);
        // The parent has its copies of every second page.
        CHECK(read(go[0], &byte, 1) == 0);
        CHECK(is_right(0));
        fill(0, 2, 2000000);
        _exit(is_right(2000000) ? 0 : 1);
    }
    close(go[0]);
    fill(0, 2, 1000000);
    CHECK(is_right(1000000));
    close(go[1]);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(is_right(1000000));
    // Each of the pieces can be taken and given other rights.
    for (int page = 0; page < PAGES; page += 30000)
        CHECK(munmap(memory + (size_t)(page + 1) * PAGE, PAGE) == 0);
    CHECK(mprotect(memory + 2 * PAGE, 20000 * PAGE, PROT_READ) == 0);
    CHECK(*(int *)(memory + 2 * PAGE) == 1000002 && *(int *)(memory + 60000UL * PAGE) == 1060000);
    printf("all scattered pages are right\n");
    return 0;
}
