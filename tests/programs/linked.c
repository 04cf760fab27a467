// SPDX-License-Identifier: Apache-2.0 OR MIT
// What a program that is linked with its kernel can do as any other can: it prints the same wherever it runs.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static __thread int of_thread = 7;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long sum;
static volatile sig_atomic_t signals;
// To the child: write now. The handler writes to it where the call is made again.
static int tell[2];
static volatile sig_atomic_t handler_tells;
static sigjmp_buf back;

static void *add(void *each) {
    of_thread += (int)(long)each;
    for (int i = 0; i < 1000; i++) {
        pthread_mutex_lock(&mutex);
        sum += (long)each;
        pthread_mutex_unlock(&mutex);
    }
    return (void *)(long)of_thread;
}

static void on_signal(int signal) {
    signals = signal == SIGALRM;
    if (handler_tells && write(tell[1], "x", 1) != 1)
        _exit(9);
}

static void on_fault(int signal) {
    siglongjmp(back, signal);
}

static void threads(void) {
    pthread_t made[8];
    long results = 0;
    for (long i = 0; i < 8; i++)
        if (pthread_create(&made[i], NULL, add, (void *)i))
            perror("pthread_create");
    for (int i = 0; i < 8; i++) {
        void *result;
        pthread_join(made[i], &result);
        results += (long)result;
    }
    printf("threads: %ld, their own %ld, mine %d\n", sum, results, of_thread);
}

// A call that waits is made again behind a handler with SA_RESTART, and ends with EINTR behind one without. Signals come
// until one has hit the call.
static void interrupted(int flags) {
    int ends[2], status;
    char byte = 0;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    struct itimerval soon = {.it_value = {.tv_usec = 20000}, .it_interval = {.tv_usec = 20000}}, never = {0};
    signals = 0;
    handler_tells = flags == SA_RESTART;
    if (pipe(ends) || pipe(tell) || sigaction(SIGALRM, &action, NULL))
        perror("pipe");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(read(tell[0], &byte, 1) != 1 || write(ends[1], "x", 1) != 1);
    setitimer(ITIMER_REAL, &soon, NULL);
    ssize_t n = read(ends[0], &byte, 1);
    int error = n < 0 ? errno : 0;
    setitimer(ITIMER_REAL, &never, NULL);
    if (!handler_tells && write(tell[1], "x", 1) != 1)
        perror("write");
    waitpid(child, &status, 0);
    printf("read: %zd %s, signal %d, child %d\n", n, error ? strerror(error) : "no error", (int)signals,
           WEXITSTATUS(status));
    for (int i = 0; i < 2; i++) {
        close(ends[i]);
        close(tell[i]);
    }
}

static void faults(void) {
    struct sigaction action = {.sa_handler = on_fault};
    sigaction(SIGSEGV, &action, NULL);
    char *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int signal = sigsetjmp(back, 1);
    if (signal == 0)
        *(volatile char *)page = 1;
    printf("fault: %s\n", strsignal(signal));
    // A bad pointer in a call is an error of the call.
    printf("bad pointer: %s\n", write(1, page, 8) < 0 ? strerror(errno) : "none");
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
    strcpy(page, "mapped");
    printf("memory: %s\n", page);
}

static void files(void) {
    char text[64] = "";
    struct stat stat;
    FILE *file = fopen("/tmp/linked", "w+");
    if (!file)
        return perror("/tmp/linked");
    for (int i = 0; i < 1000; i++)
        fprintf(file, "%d\n", i);
    rewind(file);
    while (fgets(text, sizeof text, file))
        ;
    fstat(fileno(file), &stat);
    printf("file: %ld bytes, ends with %s", (long)stat.st_size, text);
    fclose(file);
    int gone = unlink("/tmp/linked");
    printf("unlink: %d, %s\n", gone, access("/tmp/linked", F_OK) ? strerror(errno) : "there");
}

static void process(void) {
    int variable = 1, status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        variable = 41;
        _exit(variable + (getppid() > 0));
    }
    waitpid(child, &status, 0);
    printf("child: %d, mine %d, pids differ %d\n", WEXITSTATUS(status), variable, child != getpid());
}

static void sockets(void) {
    int ends[2];
    char text[16] = "";
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        return perror("socketpair");
    struct pollfd poll_end = {.fd = ends[1], .events = POLLIN};
    if (write(ends[0], "across", 6) != 6 || poll(&poll_end, 1, 1000) != 1 || read(ends[1], text, sizeof text) != 6)
        perror("socketpair");
    printf("socket: %s\n", text);
}

extern char **environ;

static int end_of(pid_t child) {
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child ? status >> 8 : -1;
}

// The only program of its machine can start itself again: by its file, by a script that names it, and without a fork.
static void itself(void) {
    char *again[] = {"linked", "again", "by its file", NULL};
    char *script[] = {"/tmp/script", "by a script", NULL};
    pid_t child = fork();
    if (child == 0) {
        execv("/proc/self/exe", again);
        _exit(1);
    }
    printf("itself: %d\n", end_of(child));
    int fd = open(script[0], O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0755);
    if (fd < 0 || write(fd, "#!/proc/self/exe again\n", 23) != 23 || close(fd))
        perror(script[0]);
    int error = posix_spawn(&child, script[0], NULL, NULL, script, environ);
    if (error)
        printf("posix_spawn: %s\n", strerror(error));
    printf("a script: %d\n", end_of(child));
    unlink(script[0]);
    child = fork();
    if (child == 0) {
        execl("/tmp/nothing", "nothing", NULL);
        _exit(errno == ENOENT ? 8 : 1);
    }
    printf("no file: %d\n", end_of(child));
}

int main(int count, char **arguments) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count > 2 && !strcmp(arguments[1], "again")) {
        printf("again, %s, thread variable %d, HOME %s\n", arguments[count - 1], of_thread, getenv("HOME") ? "set" : "not set");
        return 7;
    }
    printf("arguments: %d %s, HOME %s\n", count, arguments[count - 1], getenv("HOME") ? "set" : "not set");
    threads();
    interrupted(SA_RESTART);
    interrupted(0);
    faults();
    files();
    process();
    itself();
    sockets();
    struct timespec spent;
    // The vDSO does not know this clock.
    printf("processor time: %d\n", clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent) || spent.tv_sec < 0);
    double root = 0;
    sscanf("2.5e1", "%lf", &root);
    printf("%.3f %s\n", root / 3, getppid() >= 0 && getuid() == geteuid() ? "ids" : "no ids");
    return count == 2 ? 5 : 0;
}
