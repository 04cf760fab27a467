// SPDX-License-Identifier: Apache-2.0 OR MIT
// Drives the program into whose process it is loaded (LD_PRELOAD), in a rhythm that is the same each time: one request over
// the loopback device is answered before the next is sent, one row is inserted after the other. Nothing comes from outside
// of the machine, so on a clock that counts instructions each run takes the same time.
//
// DRIVE names the program. A line on standard input, and it does its round; it answers `took` and the nanoseconds that
// passed, without the client's own.

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define REQUESTS 5000
#define PAGES 2500
#define ROWS 5000

static void fail(const char *what) {
    printf("drive: %s\n", what);
    fflush(stdout);
    _exit(1);
}

static long now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

static int stream = -1;

// Connects as soon as the program listens.
static void reach(int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < 1000; i++) {
        stream = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(stream, (struct sockaddr *)&to, sizeof to) == 0) {
            int yes = 1;
            setsockopt(stream, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
            return;
        }
        close(stream);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    fail("the program does not listen");
}

// Asks, and reads an answer that has this many bytes, or, with none given, whatever the first answer has.
static size_t ask(const char *question, size_t size) {
    char answer[4096];
    size_t got = 0;
    if (write(stream, question, strlen(question)) != (ssize_t)strlen(question)) fail("a request is not taken");
    do {
        ssize_t n = read(stream, answer + got, sizeof answer - got);
        if (n <= 0) fail("no answer comes");
        got += n;
        if (size == 0) {
            // The whole of the first one: nothing more comes for a while.
            nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
            n = recv(stream, answer + got, sizeof answer - got, MSG_DONTWAIT);
            return got + (n > 0 ? n : 0);
        }
    } while (got < size);
    if (got != size) fail("an answer has another length");
    return got;
}

#define SET "*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nvalue\r\n"
#define PAGE "GET / HTTP/1.1\r\nHost: machine\r\n\r\n"

// Asks so many times over a connection of its own: who waits for the next round may wait for longer than the program keeps one.
static long talk(int port, const char *question, int times) {
    static size_t size;
    reach(port);
    if (!size) size = ask(question, 0);
    long begin = now(CLOCK_MONOTONIC), own = now(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < times; i++) ask(question, size);
    begin = now(CLOCK_MONOTONIC) - begin - (now(CLOCK_THREAD_CPUTIME_ID) - own);
    close(stream);
    return begin;
}

static long requests(void) { return talk(6379, SET, REQUESTS); }

static long pages(void) { return talk(80, PAGE, PAGES); }

static long insert(void) {
    typedef int (*opened)(const char *, void **);
    typedef int (*executed)(void *, const char *, void *, void *, void *);
    static executed exec;
    static void *database;
    if (!database) {
        opened open = (opened)dlsym(RTLD_DEFAULT, "sqlite3_open");
        exec = (executed)dlsym(RTLD_DEFAULT, "sqlite3_exec");
        if (!open || !exec) fail("no SQLite here");
        if (open(":memory:", &database)) fail("no database");
    }
    // A table of its own, so that each round does the same.
    if (exec(database, "drop table if exists t; create table t(id integer primary key, text text); begin", 0, 0, 0))
        fail("no table");
    long begin = now(CLOCK_MONOTONIC);
    for (int n = 0; n < ROWS; n++) {
        char statement[80];
        snprintf(statement, sizeof statement, "insert into t(text) values('row %d')", n);
        if (exec(database, statement, 0, 0, 0)) fail("a row is not taken");
    }
    begin = now(CLOCK_MONOTONIC) - begin;
    if (exec(database, "commit", 0, 0, 0)) fail("no commit");
    return begin;
}

static void *drive(void *argument) {
    long (*round)(void) = (long (*)(void))argument;
    char line[80];
    // What is only done once.
    round();
    puts("ready");
    fflush(stdout);
    // Byte by byte: standard input is the program's, too.
    for (size_t n = 0; read(0, line + n, 1) == 1;) {
        if (line[n] != '\n') continue;
        printf("took %ld\n", round());
        fflush(stdout);
    }
    _exit(0);
}

__attribute__((constructor)) static void begin(void) {
    const char *what = getenv("DRIVE");
    pthread_t thread;
    void *round;
    if (!what) return;
    // SQLite is a library: its shell does not get to run.
    if (!strcmp(what, "sqlite")) drive((void *)insert);
    round = strcmp(what, "redis") ? (void *)pages : (void *)requests;
    if (pthread_create(&thread, NULL, drive, round)) fail("no thread");
}
