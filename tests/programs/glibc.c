// SPDX-License-Identifier: Apache-2.0 OR MIT
// What glibc does by its own system calls, by thread-local storage and by functions that the processor chooses: what it prints
// does not depend on time or on the machine.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <iconv.h>
#include <locale.h>
#include <math.h>
#include <netdb.h>
#include <pthread.h>
#include <pwd.h>
#include <regex.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

static __thread int own = 7;
static __thread char block[100] __attribute__((aligned(64)));
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t together;
static long total;
static int arrived;

static void *add(void *argument)
{
    long n = (long)argument;
    own += n;
    if ((unsigned long)block % 64 != 0 || block[0] != 0)
        abort();
    block[0] = 1;
    for (int i = 0; i < 1000; i++) {
        pthread_mutex_lock(&lock);
        total += n;
        pthread_mutex_unlock(&lock);
    }
    pthread_barrier_wait(&together);
    pthread_mutex_lock(&lock);
    arrived++;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
    return (void *)(long)own;
}

static void threads(void)
{
    pthread_t all[8];
    pthread_barrier_init(&together, NULL, 8);
    for (long n = 0; n < 8; n++)
        if (pthread_create(&all[n], NULL, add, (void *)n) != 0)
            abort();
    pthread_mutex_lock(&lock);
    while (arrived < 8)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    long sum = 0;
    for (int n = 0; n < 8; n++) {
        void *result;
        pthread_join(all[n], &result);
        sum += (long)result;
    }
    printf("threads: %ld %ld, own %d\n", total, sum, own);
}

static void cleaned(void *what)
{
    printf("cleaned: %s\n", (char *)what);
}

static int pipes[2];

static void *waits(void *unused)
{
    (void)unused;
    char byte;
    pthread_cleanup_push(cleaned, "outer");
    pthread_cleanup_push(cleaned, "inner");
    if (read(pipes[0], &byte, 1) == 1)
        puts("read something");
    pthread_cleanup_pop(0);
    pthread_cleanup_pop(0);
    return NULL;
}

static void cancels(void)
{
    pthread_t one;
    void *result;
    if (pipe(pipes) != 0 || pthread_create(&one, NULL, waits, NULL) != 0)
        abort();
    usleep(20000);
    // All threads change their user, by a signal that each gets: the one that waits goes on to wait.
    printf("users: %d %d", setresuid(-1, -1, -1), setresgid(-1, getegid(), -1));
    printf(" %d\n", setresuid(-1, -1, -1) == 0 && getuid() == geteuid());
    pthread_cancel(one);
    pthread_join(one, &result);
    printf("cancelled: %d\n", result == PTHREAD_CANCELED);
    close(pipes[0]);
    close(pipes[1]);
}

static volatile sig_atomic_t signals;
static sigjmp_buf back;

static void count(int number)
{
    signals += number == SIGUSR1;
}

static void leave(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    siglongjmp(back, info->si_addr == (void *)16 ? 2 : 1);
}

static void handlers(void)
{
    // A handler's call returns to registers that a call keeps, also those of vectors.
    struct sigaction action = { .sa_handler = count };
    sigaction(SIGUSR1, &action, NULL);
    double x = 1;
    for (int i = 0; i < 100; i++) {
        raise(SIGUSR1);
        x = x * 1.01 + signals;
    }
    printf("signals: %d %.6f\n", (int)signals, x);
    struct sigaction fault = { .sa_sigaction = leave, .sa_flags = SA_SIGINFO };
    sigaction(SIGSEGV, &fault, NULL);
    volatile int *volatile nowhere = (volatile int *)16;
    int from = sigsetjmp(back, 1);
    if (from == 0)
        *nowhere = 1;
    printf("fault: %d\n", from);
}

// All vector registers live over a call that is made inline: none may change.
__attribute__((noinline)) static int keeps_vectors(void)
{
    unsigned char before[16][16], after[16][16];
    for (int i = 0; i < 256; i++)
        before[i / 16][i % 16] = (unsigned char)(i * 7 + 1);
    long number = SYS_sched_yield;
    __asm__ volatile(
        "movups (%1), %%xmm0\n movups 80(%1), %%xmm5\n movups 96(%1), %%xmm6\n movups 240(%1), %%xmm15\n"
        "mov $24, %%eax\n syscall\n"
        "movups %%xmm0, (%2)\n movups %%xmm5, 80(%2)\n movups %%xmm6, 96(%2)\n movups %%xmm15, 240(%2)\n"
        : "+a"(number)
        : "r"(before), "r"(after)
        : "rcx", "r11", "memory", "xmm0", "xmm5", "xmm6", "xmm15");
    return number == 0 && memcmp(before[0], after[0], 16) == 0 && memcmp(before[5], after[5], 16) == 0 &&
           memcmp(before[6], after[6], 16) == 0 && memcmp(before[15], after[15], 16) == 0;
}

// syscall(2), which has a function of its own for each number that is known.
static void by_function(void)
{
    long failed = syscall(SYS_close, -1);
    int error = errno;
    char *page = (char *)syscall(SYS_mmap, NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page[0] = 9;
    int kept = page[0];
    long unmapped = syscall(SYS_munmap, page, 4096);
    printf("by function: %d, %ld %d, %d %ld\n", syscall(SYS_gettid) == getpid(), failed, error == EBADF, kept, unmapped);
}

// A leaf keeps what it has below the stack pointer.
__attribute__((noinline)) static long keeps_red_zone(void)
{
    long result;
    __asm__ volatile(
        "movq $123456, -8(%%rsp)\n movq $654321, -128(%%rsp)\n mov $39, %%eax\n syscall\n"
        "mov -8(%%rsp), %%rax\n add -128(%%rsp), %%rax\n"
        : "=a"(result)
        :
        : "rcx", "r11", "memory", "cc");
    return result;
}

static void names(void)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_family = AF_INET }, *found;
    int error = getaddrinfo("localhost", "80", &hints, &found);
    char text[64] = "";
    if (error == 0) {
        getnameinfo(found->ai_addr, found->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST);
        freeaddrinfo(found);
    }
    printf("names: %s %s", error ? gai_strerror(error) : "found", text);
    error = getaddrinfo("10.1.2.3", "443", &hints, &found);
    if (error == 0) {
        printf(" %s %d\n", inet_ntoa(((struct sockaddr_in *)found->ai_addr)->sin_addr),
               ntohs(((struct sockaddr_in *)found->ai_addr)->sin_port));
        freeaddrinfo(found);
    }
    struct passwd *root = getpwuid(0);
    printf("user: %s\n", root ? root->pw_name : "none");
}

static void texts(void)
{
    // A locale is files, which the image has if its user gives them.
    const char *locale = setlocale(LC_ALL, "C.UTF-8");
    wchar_t wide[8];
    printf("locale: %s, %d bytes of a character, %d characters\n", locale ? locale : "none", (int)MB_CUR_MAX,
           (int)mbstowcs(wide, "gr\303\274n", 8));
    char in[] = "gr\303\274\303\237e", out[64] = "", *from = in, *to = out;
    size_t left = strlen(in), room = sizeof out;
    iconv_t turn = iconv_open("UCS-2LE", "UTF-8");
    if (turn != (iconv_t)-1 && iconv(turn, &from, &left, &to, &room) == 0)
        printf("iconv: %d bytes, %02x\n", (int)(sizeof out - room), (unsigned char)out[4]);
    regex_t pattern;
    regmatch_t match[2];
    regcomp(&pattern, "([0-9]+)-x", REG_EXTENDED);
    printf("regex: %d", regexec(&pattern, "ab 123-x", 2, match, 0));
    printf(" %d-%d\n", (int)match[1].rm_so, (int)match[1].rm_eo);
    regfree(&pattern);
    char padded[300];
    memset(padded, 'a', 299);
    padded[299] = 0;
    // Functions that the processor chooses.
    printf("chosen: %d %d %.10f %.3Lf\n", (int)strlen(padded), strchr(padded, 'b') == NULL, sin(1.0) + pow(2, 0.5), 1.5L);
    qsort(padded, 10, 1, (int (*)(const void *, const void *))strcmp);
    struct tm parts = { .tm_year = 126, .tm_mon = 10, .tm_mday = 27 };
    strftime(padded, sizeof padded, "%A %d %B %Y", &parts);
    printf("time: %s %.2f\n", padded, strtod("1e2", NULL));
}

static void files(void)
{
    char path[] = "/tmp/glibc-XXXXXX";
    int fd = mkstemp(path);
    FILE *stream = fdopen(fd, "w+");
    for (int i = 0; i < 2000; i++)
        fprintf(stream, "line %d\n", i);
    rewind(stream);
    char *line = NULL;
    size_t size = 0;
    long lines = 0;
    while (getline(&line, &size, stream) > 0)
        lines++;
    struct stat about;
    fstat(fd, &about);
    printf("file: %ld lines, %ld bytes\n", lines, (long)about.st_size);
    free(line);
    fclose(stream);
    unlink(path);
    if (open("/nothing/there", O_RDONLY) < 0)
        printf("errno: %m\n");
}

static void processes(void)
{
    int ends[2], status;
    char text[32] = "";
    fflush(stdout);
    if (pipe(ends) != 0)
        abort();
    pid_t child = fork();
    if (child == 0) {
        own = 99;
        if (write(ends[1], "from a child", 12) != 12)
            _exit(1);
        _exit(3);
    }
    waitpid(child, &status, 0);
    printf("fork: %d %d %s, own %d\n", WEXITSTATUS(status), (int)read(ends[0], text, sizeof text), text, own);
}

static void clocks(void)
{
    struct timespec real, processor, thread, resolution;
    int all = clock_gettime(CLOCK_REALTIME, &real) | clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &processor) |
          clock_gettime(CLOCK_THREAD_CPUTIME_ID, &thread) | clock_getres(CLOCK_MONOTONIC, &resolution);
    printf("clocks: %d %d\n", all, real.tv_sec > 1700000000);
}

int main(int count, char **words)
{
    unsigned char some[16];
    printf("started: %d %s %s, auxiliary %d\n", count, words[count - 1], getenv("HOME") ? "HOME" : "none",
           getauxval(AT_PAGESZ) == 4096 && getauxval(AT_PHDR) != 0);
    printf("random: %d\n", (int)getrandom(some, sizeof some, 0));
    threads();
    cancels();
    handlers();
    printf("vectors: %d, red zone: %ld\n", keeps_vectors(), keeps_red_zone());
    by_function();
    names();
    texts();
    files();
    processes();
    clocks();
    void *much = malloc(10 << 20);
    memset(much, 1, 10 << 20);
    much = realloc(much, 40 << 20);
    printf("malloc: %d\n", ((char *)much)[(10 << 20) - 1]);
    free(much);
    return 5;
}
