// SPDX-License-Identifier: Apache-2.0 OR MIT
// Asks a thousand times for what this kernel refuses with a warning.
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    for (int i = 0; i < 1000; i++)
        syscall(SYS_arch_prctl, ARCH_SET_GS, 0);
    puts("asked");
}
