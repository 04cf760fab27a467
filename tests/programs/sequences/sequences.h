// SPDX-License-Identifier: Apache-2.0 OR MIT
// Random sequences of calls, by seed: a line for each call with its arguments and what it answered. Run natively and in a
// machine the lines are to be the same, so nothing is printed that two computers have no reason to agree on (times, numbers
// of inodes, ports that were chosen). A step says what it did with say() and ends with answered().
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static uint64_t state;

// A number below n (Knuth's linear congruential generator).
static uint32_t below(uint32_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}

static int one_in(uint32_t n) {
    return below(n) == 0;
}

// One of a table's entries.
#define ONE_OF(table) ((table)[below(COUNT(table))])

static void say(const char *format, ...) {
    va_list list;
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
}

// What a call answered: a number, or the name of its error.
__attribute__((unused)) static void answered(long result) {
    if (result < 0)
        printf(" = %s\n", strerrorname_np(errno));
    else
        printf(" = %ld\n", result);
}

// Bytes as text, what is not printed in hexadecimal.
__attribute__((unused)) static void say_bytes(const char *bytes, long length) {
    printf(" '");
    for (long i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        if (byte >= 32 && byte < 127 && byte != '\\')
            putchar(byte);
        else
            printf("\\%02x", byte);
    }
    printf("'");
}

// The letter of what a process or thread does, of its file `stat`; '-' where there is none.
__attribute__((unused)) static char state_in(const char *path) {
    char text[512] = "";
    int file = open(path, O_RDONLY);
    long length = file < 0 ? -1 : read(file, text, sizeof text - 1);
    close(file);
    char *behind = length > 0 ? strrchr(text, ')') : 0;
    return behind ? behind[2] : '-';
}

// Runs `count` steps of the table, in a directory of its own; steps that come more than once are likelier.
__attribute__((unused)) static void run_steps(void (*const steps[])(void), uint32_t kinds, long count, unsigned pause_us) {
    for (long i = 0; i < count; i++) {
        printf("%ld ", i);
        steps[below(kinds)]();
        if (pause_us)
            usleep(pause_us);
    }
    fflush(stdout);
}

// usage: PROGRAM SEED COUNT [KIND]
static long begin(int count, char **arguments, int *kind) {
    static char room[1 << 16];
    if (count < 3) {
        fprintf(stderr, "usage: %s SEED COUNT [KIND]\n", arguments[0]);
        exit(2);
    }
    state = strtoull(arguments[1], 0, 0);
    *kind = count > 3 ? atoi(arguments[3]) : 0;
    setvbuf(stdout, room, _IOFBF, sizeof room);
    return atol(arguments[2]);
}
