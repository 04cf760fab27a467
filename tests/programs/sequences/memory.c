// SPDX-License-Identifier: Apache-2.0 OR MIT
// Random sequences of calls (sequences.h) on a region of pages: mappings of nothing and of files, private and shared, their
// protection, advice, locks, moves, and what is read and written there. Places are shown as page numbers of the region.
#include "sequences.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

enum { PAGE = 4096, PAGES = 24, FILE_PAGES = 6 };
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

static char *const region = (char *)0x100000000000;
static int files[3], out[2];

static char *some_place(void) {
    char *place = region + below(PAGES) * PAGE;
    return one_in(24) ? place + 1 + below(PAGE - 1) : place;
}

static size_t some_length(void) {
    static const size_t odd[] = {0, 1, PAGE - 1, PAGE + 1, (size_t)-1, (size_t)-PAGE};
    return one_in(16) ? ONE_OF(odd) : (1 + below(one_in(3) ? 8 : 3)) * PAGE;
}

static void say_place(const void *place) {
    long at = (const char *)place - region;
    if (at >= 0 && at <= PAGES * PAGE)
        say(" %ld.%ld", at / PAGE, at % PAGE);
    else
        say(" elsewhere");
}

static void answered_place(const void *place) {
    if (place == MAP_FAILED) {
        answered(-1);
    } else {
        say_place(place);
        answered(0);
    }
}

static int some_protection(void) {
    static const int all[] = {PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, PROT_READ, PROT_NONE, PROT_WRITE, PROT_READ | PROT_EXEC,
                              PROT_READ | PROT_WRITE, 0x10, PROT_READ | PROT_GROWSDOWN, PROT_READ | PROT_GROWSUP};
    return ONE_OF(all);
}

static void maps(void) {
    static const int all[] = {MAP_PRIVATE, MAP_PRIVATE, MAP_SHARED, MAP_SHARED, MAP_SHARED_VALIDATE, 0, MAP_PRIVATE | MAP_SHARED};
    char *place = some_place();
    size_t length = some_length();
    int flags = ONE_OF(all) | (one_in(5) ? MAP_FIXED_NOREPLACE : MAP_FIXED), protection = some_protection();
    int is_anonymous = one_in(2), file = (int)below(COUNT(files));
    long offset = one_in(20) ? (long)below(9000) : (long)below(FILE_PAGES + 2) * PAGE;
    if (is_anonymous)
        flags |= MAP_ANONYMOUS;
    if (one_in(8))
        flags |= MAP_NORESERVE;
    if (one_in(12))
        flags |= MAP_POPULATE;
    // What is beside the region is not touched.
    if (length < (size_t)1 << 40 && place + length > region + PAGES * PAGE)
        length = (size_t)(region + PAGES * PAGE - place);
    say("mmap");
    say_place(place);
    say(" %zx protection %x flags %x file %d %lx", length, protection, flags, is_anonymous ? -1 : file, offset);
    answered_place(mmap(place, length, protection, flags, is_anonymous ? -1 : files[file], offset));
}

static void unmaps(void) {
    char *place = some_place();
    size_t length = some_length();
    if (length > PAGES * PAGE && length < (size_t)1 << 40)
        length = PAGE;
    say("munmap");
    say_place(place);
    say(" %zx", length);
    answered(munmap(place, length));
}

static void protects(void) {
    char *place = some_place();
    size_t length = some_length();
    int protection = some_protection();
    say("mprotect");
    say_place(place);
    say(" %zx %x", length, protection);
    answered(mprotect(place, length, protection));
}

static void moves(void) {
    static const int all[] = {0, 0, MREMAP_MAYMOVE | MREMAP_FIXED, MREMAP_MAYMOVE | MREMAP_FIXED, MREMAP_MAYMOVE | MREMAP_FIXED | 4,
                              MREMAP_FIXED, 8};
    char *from = some_place(), *to = some_place();
    size_t length = one_in(10) ? 0 : some_length(), size = some_length();
    int flags = ONE_OF(all);
    if (size < (size_t)1 << 40 && to + size > region + PAGES * PAGE)
        size = (size_t)(region + PAGES * PAGE - to);
    if (!(flags & MREMAP_FIXED) && size < (size_t)1 << 40 && from + size > region + PAGES * PAGE)
        size = (size_t)(region + PAGES * PAGE - from);
    // Whether neighbours that are alike are one mapping or two is Linux' business, and that it moves several at once where
    // nothing grows or shrinks came with 6.17: most are asked for a page.
    if (length != (size_t)-1 && !one_in(12))
        length = length < PAGE ? length : PAGE;
    else if (size == length)
        size = PAGE;
    say("mremap");
    say_place(from);
    say(" %zx to %zx flags %x", length, size, flags);
    say_place(to);
    answered_place((void *)syscall(SYS_mremap, from, length, size, flags, to));
}

static void advises(void) {
    static const int all[] = {MADV_DONTNEED, MADV_DONTNEED, MADV_FREE, MADV_NORMAL, MADV_WILLNEED, MADV_SEQUENTIAL, MADV_REMOVE, MADV_DONTFORK,
                              MADV_DOFORK, MADV_WIPEONFORK, MADV_KEEPONFORK, MADV_DONTDUMP, MADV_DODUMP, MADV_POPULATE_READ,
                              MADV_POPULATE_WRITE, MADV_COLD, MADV_PAGEOUT, 999};
    char *place = some_place();
    size_t length = some_length();
    int advice = ONE_OF(all);
    // Freed pages may keep what was in them for a while.
    if (advice == MADV_FREE)
        length = 0;
    say("madvise");
    say_place(place);
    say(" %zx %d", length, advice);
    answered(madvise(place, length, advice));
}

static void syncs(void) {
    static const int all[] = {MS_ASYNC, MS_SYNC, MS_SYNC | MS_INVALIDATE, MS_ASYNC | MS_SYNC, 0, 8};
    char *place = some_place();
    size_t length = some_length();
    int flags = ONE_OF(all);
    say("msync");
    say_place(place);
    say(" %zx %x", length, flags);
    answered(msync(place, length, flags));
}

static void locks(void) {
    char *place = some_place();
    size_t length = some_length();
    int kind = (int)below(5);
    say("%s", kind == 0 ? "mlock" : kind == 1 ? "munlock" : kind == 2 ? "mlock2" : "mincore");
    say_place(place);
    say(" %zx", length);
    if (kind < 2)
        answered((kind ? munlock : mlock)(place, length));
    else if (kind == 2)
        answered(syscall(SYS_mlock2, place, length, one_in(4) ? 2 : below(2)));
    else {
        unsigned char resident[PAGES + 8];
        // Which pages of files are there is the host's business.
        answered(length > PAGES * PAGE && length < (size_t)1 << 40 ? 0 : mincore(place, length, resident));
    }
}

// Reads and writes by the kernel, which say EFAULT where the program would get a signal.
static void reads(void) {
    char *place = region + below(PAGES * PAGE), bytes[3 * PAGE];
    long length = one_in(2) ? 1 + (long)below(16) : 1 + (long)below(2 * PAGE);
    if (place + length > region + PAGES * PAGE)
        length = region + PAGES * PAGE - place;
    long put = write(out[1], place, (size_t)length);
    say("read of");
    say_place(place);
    say(" %ld", length);
    long got = 0;
    for (long more; got < put && (more = read(out[0], bytes + got, (size_t)(put - got))) > 0;)
        got += more;
    say_bytes(bytes, got < 16 ? got : 16);
    unsigned sum = 0;
    for (long i = 0; i < got; i++)
        sum = sum * 31 + (unsigned char)bytes[i];
    say(" %08x", sum);
    answered(put);
}

static void writes(void) {
    static char bytes[3 * PAGE];
    char *place = region + below(PAGES * PAGE);
    long length = one_in(2) ? 1 + (long)below(16) : 1 + (long)below(2 * PAGE);
    if (place + length > region + PAGES * PAGE)
        length = region + PAGES * PAGE - place;
    memset(bytes, 'a' + (int)below(26), (size_t)length);
    struct iovec from = {bytes, (size_t)length}, to = {place, (size_t)length};
    say("write to");
    say_place(place);
    say(" %ld %c", length, bytes[0]);
    // A pipe gives what is there in pieces; this gives as much as there is memory for.
    if (one_in(3))
        answered(syscall(SYS_process_vm_readv, getpid(), &to, 1, &from, 1, 0));
    else
        answered(syscall(SYS_process_vm_writev, getpid(), &from, 1, &to, 1, 0));
}

static void changes_files(void) {
    int file = (int)below(COUNT(files));
    char byte = 'A' + (char)below(26);
    long offset = below(FILE_PAGES * PAGE);
    switch (below(4)) {
    case 0: say("ftruncate %d %ld", file, offset); answered(ftruncate(files[file], offset)); return;
    case 1: say("ftruncate %d whole", file); answered(ftruncate(files[file], FILE_PAGES * PAGE)); return;
    case 2: say("pwrite %d %ld %c", file, offset, byte); answered(pwrite(files[file], &byte, 1, offset)); return;
    default: {
        char bytes[8] = "";
        long got = pread(files[file], bytes, sizeof bytes, offset);
        say("pread %d %ld", file, offset);
        say_bytes(bytes, got > 0 ? got : 0);
        answered(got);
    }
    }
}

// The lines of /proc/self/maps that are in the region.
static void shows(void) {
    char line[512], before[8] = "";
    unsigned long end = 0, last = 0, number;
    FILE *stream = fopen("/proc/self/maps", "r");
    say("maps");
    while (stream && fgets(line, sizeof line, stream)) {
        unsigned long from, to, offset;
        char rights[8];
        sscanf(line, "%lx-%lx %7s %lx %*s %lu", &from, &to, rights, &offset, &number);
        if (from < (unsigned long)region || to > (unsigned long)region + PAGES * PAGE)
            continue;
        // Those of no file that are neighbours and alike are shown as one.
        if (from != end || number != 0 || strcmp(rights, before) != 0)
            say("-%ld %ld %s %lx", last, (from - (unsigned long)region) / PAGE, rights, offset);
        last = (to - (unsigned long)region) / PAGE;
        end = number == 0 ? to : 0;
        strcpy(before, rights);
    }
    if (stream)
        fclose(stream);
    say("-%ld", last);
    answered(0);
}

static void (*const steps[])(void) = {
    maps, maps, maps, maps, unmaps, protects, protects, moves, moves, advises, advises, syncs, locks, reads, reads, reads, writes, writes, writes,
    changes_files, shows,
};

int main(int count, char **arguments) {
    char directory[] = "/tmp/sequence-XXXXXX";
    int kind;
    long total = begin(count, arguments, &kind);
    struct rlimit none = {1 << 20, 1 << 20};
    if (!mkdtemp(directory) || chdir(directory) || pipe(out) || fcntl(out[1], F_SETPIPE_SZ, 65536) < 0 || setrlimit(RLIMIT_MEMLOCK, &none)) {
        perror(directory);
        return 1;
    }
    files[0] = open("both", O_CREAT | O_RDWR, 0600);
    files[1] = open("both", O_RDONLY);
    files[2] = memfd_create("memory", 0);
    for (int file = 0; file < 3; file += 2) {
        char page[PAGE];
        for (int i = 0; i < FILE_PAGES; i++) {
            memset(page, '0' + i + 3 * file, sizeof page);
            if (pwrite(files[file], page, sizeof page, i * PAGE) != PAGE)
                return 1;
        }
    }
    // One difference does not change all that comes later.
    for (long done = 0; done < total; done += 50) {
        if (mmap(region, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != region)
            return 1;
        run_steps(steps, COUNT(steps), 50, 0);
    }
    return 0;
}
