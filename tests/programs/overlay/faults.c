// SPDX-License-Identifier: Apache-2.0 OR MIT
// Does one thing wrong, which its argument names.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unilith/overlay.h>

static int depth(volatile int n) {
    volatile char frame[512];
    frame[0] = (char)n;
    return n == 0 ? 0 : depth(n - 1) + frame[0];
}

__attribute__((noinline)) static void smash(char *to, int count) {
    for (int i = 0; i < count; i++) to[i] = 1;
}

// A word of the application's that it is safe to write: the same value goes back.
static volatile long *word(void) {
    void *found = uio_symbol_find("stdout");
    return found ? found : uio_symbol_find("environ");
}

static const char constant[] = "constant";

// Where the test says that the kernel is.
static unsigned long kernel(int count, char **words) {
    return count > 2 ? strtoul(words[2], 0, 16) : 0;
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "nothing";
    volatile long *there = word();
    volatile long zero = 0;
    if (!there) uio_abort("no variable of the C library");

    if (!strcmp(what, "nothing")) {
        printf("%d\n", *there == *there);
        return 7;
    }
    if (!strcmp(what, "write")) *there = *there;
    if (!strcmp(what, "write-asked")) {
        int answer = uio_enable_write();
        if (answer) return -answer;
        *there = *there;
        uio_disable_write();
        puts("written");
        return 0;
    }
    if (!strcmp(what, "write-now")) {
        if (uio_enable_write_now()) return 1;
        *there = *there;
        uio_disable_write();
        puts("written");
        return 0;
    }
    if (!strcmp(what, "write-after")) {
        if (uio_enable_write()) return 1;
        uio_disable_write();
        *there = *there;
    }
    if (!strcmp(what, "write-wild-asked")) {
        if (uio_enable_write()) return 1;
        *(volatile long *)0x123456789000 = 1;
    }
    if (!strcmp(what, "kernel-write-asked")) {
        if (uio_enable_write()) return 1;
        *(volatile long *)kernel(count, words) = 1;
    }
    if (!strcmp(what, "kernel-write")) *(volatile long *)kernel(count, words) = 1;
    if (!strcmp(what, "kernel-call")) ((void (*)(void))kernel(count, words))();
    if (!strcmp(what, "null-write")) *(volatile long *)zero = 1;
    if (!strcmp(what, "null-call")) ((void (*)(void))zero)();
    if (!strcmp(what, "wild-read")) return (int)*(volatile long *)0x123456789000;
    if (!strcmp(what, "wild-call")) ((void (*)(void))0x123456789000)();
    if (!strcmp(what, "odd-address")) *(volatile long *)0x1234567890abcdef = 1;
    if (!strcmp(what, "data-call")) ((void (*)(void))there)();
    if (!strcmp(what, "own-data-call")) {
        unsigned char *code = malloc(16);
        code[0] = 0xc3;
        ((void (*)(void))code)();
    }
    if (!strcmp(what, "own-text-write")) *(volatile char *)main = 0;
    if (!strcmp(what, "own-constant-write")) *(volatile char *)constant = 0;
    if (!strcmp(what, "executable-memory")) {
        long answer = (long)uio_alloc_memory(4096, UIO_EXECUTABLE);
        printf("%ld\n", answer);
        return 0;
    }
    if (!strcmp(what, "overflow")) return depth(1 << 20);
    if (!strcmp(what, "smash")) {
        char small[16];
        smash(small, 64);
        printf("%d\n", small[0]);
        return 0;
    }
    if (!strcmp(what, "loop"))
        for (;;) zero++;
    if (!strcmp(what, "loop-writing")) {
        if (uio_enable_write()) return 1;
        for (;;) zero++;
    }
    if (!strcmp(what, "loop-printing"))
        for (;;) puts("again");
    if (!strcmp(what, "sleep")) uio_sleep(1000000000000);
    if (!strcmp(what, "double-free")) {
        char *block = malloc(100);
        free(block);
        free(block);
    }
    if (!strcmp(what, "wild-free")) free((void *)there);
    if (!strcmp(what, "heap-overrun")) {
        char *block = malloc(64);
        for (long i = 0;; i++) ((volatile char *)block)[i] = 1;
    }
    if (!strcmp(what, "much-memory")) {
        long blocks = 0;
        while (malloc(1 << 20)) blocks++;
        printf("%d\n", blocks > 8 && blocks < 1000);
        return 0;
    }
    if (!strcmp(what, "divide")) return (int)(1000 / zero);
    if (!strcmp(what, "invalid")) __asm__ volatile("ud2");
    if (!strcmp(what, "breakpoint")) __asm__ volatile("int3");
    if (!strcmp(what, "system-call")) {
        long number = 39;
        __asm__ volatile("syscall" : "+a"(number) : : "rcx", "r11", "memory");
    }
    if (!strcmp(what, "exit-call-asked")) {
        if (uio_enable_write()) return 1;
        long number = 231;
        __asm__ volatile("syscall" : "+a"(number) : "D"(3L) : "rcx", "r11", "memory");
    }
    if (!strcmp(what, "bad-number")) {
        long answer = 1000;
        __asm__ volatile("int $31" : "+a"(answer) : : "memory");
        printf("%ld\n", answer);
        return 0;
    }
    if (!strcmp(what, "bad-pointers")) {
        struct uio_counters *bad = (void *)there;
        printf("%ld %ld %ld %d\n", (long)uio_console_write(1, (void *)0x123456789000, 10),
               (long)uio_console_read((void *)there, 10), (long)uio_open((void *)0x1234, 0, 0), uio_counters(bad));
        return 0;
    }
    if (!strcmp(what, "abort")) abort();
    if (!strcmp(what, "files-left")) {
        // Descriptors, memory and a held thread are given back by the kernel.
        for (int i = 0; i < 100; i++) uio_open("/etc/hostname", O_RDONLY, 0);
        malloc(100000);
        uio_enable_write();
        *(volatile long *)zero = 1;
    }
    return 99;
}
