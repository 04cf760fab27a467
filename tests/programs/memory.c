// SPDX-License-Identifier: Apache-2.0 OR MIT
// Memory as Linux gives it: mappings, rights, faults, remapping, the break, the stack, shared files. Prints one line
// for each check that fails, and `memory ok` at the end.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PAGE = 4096 };
static int failures;

#define CHECK(what)                                                                                              \
    do {                                                                                                         \
        if (!(what)) {                                                                                           \
            printf("line %d: %s (errno %d)\n", __LINE__, #what, errno);                                          \
            failures++;                                                                                          \
        }                                                                                                        \
    } while (0)
#define FAILS(call, error) CHECK((errno = 0, (intptr_t)(call) == -1) && errno == (error))

static sigjmp_buf back;
static volatile int signal_number, signal_code;
static void *volatile signal_address;

static void caught(int number, siginfo_t *info, void *context)
{
    (void)context;
    signal_number = number;
    signal_code = info->si_code;
    signal_address = info->si_addr;
    siglongjmp(back, 1);
}

// The signal an access raises, 0 for none.
static int touch(volatile char *at, int write)
{
    signal_number = 0;
    if (sigsetjmp(back, 1) == 0) {
        if (write)
            *at = 1;
        else
            (void)*at;
    }
    return signal_number;
}

static char *map(size_t length, int rights)
{
    return mmap(NULL, length, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void rights(void)
{
    char *m = map(4 * PAGE, PROT_READ | PROT_WRITE);
    CHECK(m != MAP_FAILED && m[0] == 0);
    m[PAGE] = 7;
    CHECK(mprotect(m + PAGE, PAGE, PROT_READ) == 0);
    CHECK(touch(m + PAGE, 1) == SIGSEGV && signal_code == SEGV_ACCERR && signal_address == m + PAGE);
    CHECK(mprotect(m + PAGE, PAGE, PROT_NONE) == 0);
    CHECK(touch(m + PAGE, 0) == SIGSEGV && signal_code == SEGV_ACCERR);
    CHECK(mprotect(m, 4 * PAGE, PROT_READ | PROT_WRITE) == 0 && m[PAGE] == 7);
    CHECK(munmap(m + 2 * PAGE, PAGE) == 0);
    CHECK(touch(m + 2 * PAGE, 0) == SIGSEGV && signal_code == SEGV_MAPERR);
    FAILS(mprotect(m, 4 * PAGE, PROT_READ), ENOMEM);
    FAILS(mprotect(m + 1, PAGE, PROT_READ), EINVAL);
    FAILS(munmap(m + 1, PAGE), EINVAL);
    FAILS(munmap(m, 0), EINVAL);
    CHECK(munmap(m, 4 * PAGE) == 0 && munmap(m, 4 * PAGE) == 0);
    FAILS(write(1, m, 1), EFAULT);
    FAILS(write(1, (void *)0xffffffff80200000, 1), EFAULT);
    FAILS(write(1, (void *)0xffff800000100000, 1), EFAULT);
    // Code is written, then executed, and cannot be executed before.
    unsigned char code[] = { 0xb8, 42, 0, 0, 0, 0xc3 };
    m = map(PAGE, PROT_READ | PROT_WRITE);
    memcpy(m, code, sizeof code);
    signal_number = 0;
    if (sigsetjmp(back, 1) == 0)
        ((int (*)(void))m)();
    CHECK(signal_number == SIGSEGV);
    CHECK(mprotect(m, PAGE, PROT_READ | PROT_EXEC) == 0 && ((int (*)(void))m)() == 42);
    CHECK(mprotect(m, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
    m[1] = 43;
    CHECK(((int (*)(void))m)() == 43);
    munmap(m, PAGE);
}

static void places(void)
{
    char *m = map(2 * PAGE, PROT_READ);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    FAILS(mmap(m, PAGE, PROT_READ, flags | MAP_FIXED_NOREPLACE, -1, 0), EEXIST);
    FAILS(mmap(m + 1, PAGE, PROT_READ, flags | MAP_FIXED, -1, 0), EINVAL);
    FAILS(mmap((void *)0x800000000000, PAGE, PROT_READ, flags | MAP_FIXED, -1, 0), ENOMEM);
    FAILS(mmap(NULL, 0, PROT_READ, flags, -1, 0), EINVAL);
    FAILS(mmap(NULL, PAGE, PROT_READ, MAP_ANONYMOUS, -1, 0), EINVAL);
    FAILS(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, -1, 0), EBADF);
    FAILS(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, 1, 1), EINVAL);
    FAILS(mmap(NULL, SIZE_MAX, PROT_READ, flags, -1, 0), ENOMEM);
    // Where what is obviously too much is refused (overcommit.c has more of that).
    FILE *overcommit = fopen("/proc/sys/vm/overcommit_memory", "r");
    CHECK(overcommit);
    int promises_all = getc(overcommit) == '1';
    CHECK(fclose(overcommit) == 0);
    char *much = map((size_t)1 << 40, PROT_READ | PROT_WRITE);
    CHECK(promises_all ? much != MAP_FAILED && munmap(much, (size_t)1 << 40) == 0 : much == MAP_FAILED && errno == ENOMEM);
    char *low = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, flags | MAP_32BIT, -1, 0);
    CHECK((uintptr_t)low < 0x80000000u && touch(low, 1) == 0);
    // What Go and Java do at start.
    char *huge = mmap(NULL, (size_t)1 << 38, PROT_NONE, flags | MAP_NORESERVE, -1, 0);
    CHECK(huge != MAP_FAILED);
    CHECK(mprotect(huge + (1 << 30), 1 << 20, PROT_READ | PROT_WRITE) == 0 && touch(huge + (1 << 30), 1) == 0);
    CHECK(munmap(huge, (size_t)1 << 38) == 0);
    CHECK(madvise(m, 2 * PAGE, MADV_DONTNEED) == 0);
    FAILS(madvise(m, 2 * PAGE, 9999), EINVAL);
    unsigned char seen[2];
    CHECK(mincore(m, 2 * PAGE, seen) == 0);
    munmap(m, 2 * PAGE);
    FAILS(mincore(m, 2 * PAGE, seen), ENOMEM);
}

static void moves(void)
{
    char *m = map(3 * PAGE, PROT_READ | PROT_WRITE);
    strcpy(m + 2 * PAGE, "moved");
    char *other = map(PAGE, PROT_NONE);
    char *n = mremap(m, 3 * PAGE, 1000 * PAGE, MREMAP_MAYMOVE);
    CHECK(n != MAP_FAILED && strcmp(n + 2 * PAGE, "moved") == 0 && touch(n + 999 * PAGE, 1) == 0);
    char *to = map(4 * PAGE, PROT_READ);
    CHECK(mremap(n, 3 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
    CHECK(strcmp(to + 2 * PAGE, "moved") == 0 && touch(n, 0) == SIGSEGV);
    FAILS(mremap(to, PAGE, 0, MREMAP_MAYMOVE), EINVAL);
    FAILS(mremap(n, PAGE, PAGE, 0), EFAULT);
    munmap(to, 4 * PAGE);
    munmap(n + 3 * PAGE, 997 * PAGE);
    munmap(other, PAGE);

    char *start = sbrk(0);
    CHECK(brk(start + 100 * PAGE) == 0 && sbrk(0) == start + 100 * PAGE);
    CHECK(touch(start + 99 * PAGE, 1) == 0);
    CHECK(brk(start) == 0 && touch(start + 99 * PAGE, 0) == SIGSEGV);
}

static void files(void)
{
    int fd = open("/tmp/memory", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && ftruncate(fd, 3 * PAGE - 100) == 0);
    char *shared = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *private = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    CHECK(shared != MAP_FAILED && private != MAP_FAILED);
    shared[5] = 'x';
    char c = 0;
    CHECK(pread(fd, &c, 1, 5) == 1 && c == 'x' && private[5] == 'x');
    private[5] = 'y';
    CHECK(shared[5] == 'x' && pwrite(fd, "z", 1, 6) == 1 && shared[6] == 'z' && private[6] == 0);
    CHECK(touch(shared + 3 * PAGE, 0) == SIGBUS && signal_code == BUS_ADRERR);
    CHECK(shared[3 * PAGE - 50] == 0);
    CHECK(msync(shared, 3 * PAGE, MS_SYNC) == 0);
    FAILS(msync(shared + 1, PAGE, MS_SYNC), EINVAL);
    munmap(shared, 4 * PAGE);
    munmap(private, 3 * PAGE);
    int reading = open("/tmp/memory", O_RDONLY);
    FAILS(mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, reading, 0), EACCES);
    char *read_only = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, reading, 0);
    FAILS(mprotect(read_only, PAGE, PROT_READ | PROT_WRITE), EACCES);
    munmap(read_only, PAGE);
    close(reading);
    close(fd);
    unlink("/tmp/memory");

    // A read into memory that is not there yet, and one that ends in memory that cannot be there.
    fd = open("/proc/self/exe", O_RDONLY);
    char *m = map(2 * PAGE, PROT_READ | PROT_WRITE);
    CHECK(read(fd, m + 100, PAGE) == PAGE && memcmp(m + 100, "\177ELF", 4) == 0);
    munmap(m + PAGE, PAGE);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    ssize_t got = read(fd, m + PAGE - 10, 100);
    CHECK(got == 10 || (got == -1 && errno == EFAULT));
    close(fd);

    int *counter = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(counter != MAP_FAILED && ++*counter == 1);
    munmap(counter, PAGE);
}

static int deep(int n)
{
    volatile char block[8192];
    memset((char *)block, n, sizeof block);
    return n == 0 ? 0 : deep(n - 1) + (block[17] != (char)n);
}

static void stack(void)
{
    CHECK(deep(700) == 0);
    // Behind the limit: a signal on the alternate stack, not the end.
    stack_t alternate = { .ss_sp = map(16 * PAGE, PROT_READ | PROT_WRITE), .ss_size = 16 * PAGE };
    CHECK(sigaltstack(&alternate, NULL) == 0);
    signal_number = 0;
    if (sigsetjmp(back, 1) == 0)
        deep(1 << 20);
    CHECK(signal_number == SIGSEGV);
}

static void listing(void)
{
    char line[512];
    int stack = 0, heap = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    uintptr_t last = 0;
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        char rights[5];
        CHECK(sscanf(line, "%lx-%lx %4s", &start, &end, rights) == 3 && start >= last && end > start);
        last = end;
        stack |= strstr(line, "[stack]") != NULL;
        heap |= strstr(line, "[heap]") != NULL;
        CHECK(strchr(rights, 'w') == NULL || strchr(rights, 'x') == NULL);
    }
    CHECK(stack && heap);
    if (maps)
        fclose(maps);
}

static void shorter_files(void)
{
    int fd = open("/tmp/memory-short", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && ftruncate(fd, 3 * PAGE) == 0);
    char *shared = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *private = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    memset(shared, 'x', 3 * PAGE);
    memset(private, 'y', 3 * PAGE);
    CHECK(ftruncate(fd, PAGE + 100) == 0);
    CHECK(touch(shared + PAGE, 0) == 0 && touch(shared + 2 * PAGE, 0) == SIGBUS);
    CHECK(touch(private + PAGE, 0) == 0 && touch(private + 2 * PAGE, 1) == SIGBUS);
    CHECK(shared[PAGE + 99] == 'x' && shared[PAGE + 100] == 0);
    CHECK(ftruncate(fd, 3 * PAGE) == 0);
    CHECK(shared[2 * PAGE] == 0 && private[2 * PAGE] == 0 && private[0] == 'y');
    shared[2 * PAGE] = 'z';
    CHECK(fallocate(fd, 3, 0, 3 * PAGE) == 0);
    CHECK(shared[0] == 0 && shared[2 * PAGE] == 0 && private[0] == 'y' && private[2 * PAGE] == 0);
    close(open("/tmp/memory-short", O_WRONLY | O_TRUNC));
    CHECK(touch(shared, 0) == SIGBUS && touch(private, 0) == SIGBUS);
    munmap(shared, 3 * PAGE);
    munmap(private, 3 * PAGE);
    close(fd);
    unlink("/tmp/memory-short");
}

int main(void)
{
    struct sigaction action = { .sa_sigaction = caught, .sa_flags = SA_SIGINFO | SA_ONSTACK };
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    free(malloc(100));
    rights();
    places();
    moves();
    files();
    shorter_files();
    stack();
    listing();
    for (int i = 0; i < 300; i++) {
        char *m = map(64 * PAGE, PROT_READ | PROT_WRITE);
        CHECK(m != MAP_FAILED);
        if (m == MAP_FAILED)
            break;
        memset(m, i, 64 * PAGE);
        munmap(m, 64 * PAGE);
    }
    if (failures == 0)
        puts("memory ok");
    return failures != 0;
}
