// SPDX-License-Identifier: Apache-2.0 OR MIT
// What a program that was taken over would try against the library OS it shares an address space with, and against the host
// once it took that over too. The words on the command line say what. Whatever is contained prints "contained"; what ends the program is the test's to judge.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// Where the kernel of a process machine is (micro/plat/process).
#define KERNEL ((char *)0x700000200000)

static int contained(int good) {
  puts(good ? "contained" : "NOT contained");
  return !good;
}

// Code that was made at run time, which nothing could patch.
static long (*made(const unsigned char *code, size_t length))(long, long, long, long) {
  unsigned char *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) exit(3);
  memcpy(page, code, length);
  if (mprotect(page, 4096, PROT_READ | PROT_EXEC)) exit(3);
  return (long (*)(long, long, long, long))page;
}

// number, three arguments: mov %rdi,%rax; mov %rsi,%rdi; mov %rdx,%rsi; mov %rcx,%rdx; syscall; ret
static const unsigned char raw_call[] = {0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6,
                                         0x48, 0x89, 0xca, 0x0f, 0x05, 0xc3};
// mov $20,%eax (getpid of i386); int $0x80; ret
static const unsigned char int80[] = {0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xc3};

// The kernel's own `syscall; ret`, which its filter alone stands behind: what a kernel that was taken over can do.
static long host_call(long number, long a, long b, long c, long d, long e, long f) {
  static const char *gadget;
  if (!gadget)
    for (gadget = KERNEL + 0x1000; memcmp(gadget, "\x0f\x05\xc3", 3); gadget++) {
    }
  register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
  long result;
  // The red zone is the compiler's.
  __asm__ volatile("sub $128, %%rsp; call *%[gadget]; add $128, %%rsp"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9), [gadget] "b"(gadget)
                   : "rcx", "r11", "memory", "cc");
  return result;
}

// The descriptors of the host that are files: one begins as an archive does, the other with the page that is nobody's.
static int host_file(int archive) {
  for (int fd = 3; fd < 64; fd++) {
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    struct timespec now = {0, 0};
    char start[6] = "......";
    if (host_call(SYS_ppoll, (long)&ready, 1, (long)&now, 0, 8, 0) == 1 && ready.revents == POLLIN &&
        host_call(SYS_read, fd, (long)start, sizeof start, 0, 0, 0) == sizeof start &&
        !memcmp(start, archive ? "070701" : "\0\0\0\0\0", sizeof start))
      return fd;
  }
  fputs("no such file\n", stderr);
  exit(3);
}

enum { SHARED = MAP_FIXED | MAP_SHARED | MAP_NORESERVE, PRIVATE = MAP_FIXED | MAP_PRIVATE | MAP_NORESERVE };

// Attacks on the host. What the filter refuses ends the machine.
static int attack_host(const char *what) {
  static char buffer[1 << 16];
  const long rw = PROT_READ | PROT_WRITE, end = 0x700000000000;
  long spot = (long)mmap(0, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), got;
  if (!strcmp(what, "grow")) {
    int memory = host_file(0);
    while ((got = host_call(SYS_read, memory, (long)buffer, sizeof buffer, 0, 0, 0)) > 0) {
    }
    return contained(got == 0 && host_call(SYS_write, memory, (long)buffer, 1, 0, 0, 0) < 0);
  }
  if (!strcmp(what, "write-archive")) {
    int archive = host_file(1);
    got = host_call(SYS_mmap, spot, 4096, PROT_READ, SHARED, archive, 0);
    return contained(got == spot && host_call(SYS_mprotect, spot, 4096, rw, 0, 0, 0) < 0 &&
                     host_call(SYS_write, archive, (long)buffer, 1, 0, 0, 0) < 0);
  }
  if (!strcmp(what, "processes")) {
    // The byte that asks the template for a host process, to everything that is a socket and waits for nothing.
    for (int fd = 6; fd < 64; fd++)
      for (int i = 0; i < 40; i++) host_call(SYS_write, fd, (long)"", 1, 0, 0, 0);
    puts("asked");
    for (;;) host_call(SYS_ppoll, 0, 0, 0, 0, 8, 0);
  }
  // None of these comes back.
  if (!strcmp(what, "anonymous")) host_call(SYS_mmap, spot, 1 << 20, rw, PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (!strcmp(what, "reserve")) host_call(SYS_mmap, spot, 1 << 20, PROT_NONE, PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (!strcmp(what, "copy-archive")) host_call(SYS_mmap, spot, 4096, rw, PRIVATE, host_file(1), 0);
  if (!strcmp(what, "copy-memory")) host_call(SYS_mmap, spot, 4096, rw, PRIVATE, host_file(0), 0);
  if (!strcmp(what, "map-over")) host_call(SYS_mmap, end - 4096, 8192, rw | PROT_EXEC, SHARED, host_file(0), 0);
  if (!strcmp(what, "protect-over")) host_call(SYS_mprotect, end - 4096, 0x300000, rw | PROT_EXEC, 0, 0, 0);
  if (!strcmp(what, "unmap-over")) host_call(SYS_munmap, end - 4096, 8192, 0, 0, 0, 0);
  if (!strcmp(what, "fork")) host_call(SYS_fork, 0, 0, 0, 0, 0, 0);
  if (!strcmp(what, "clone")) host_call(SYS_clone, 17, 0, 0, 0, 0, 0);
  if (!strcmp(what, "kill")) host_call(SYS_kill, -1, 9, 0, 0, 0, 0);
  if (!strcmp(what, "ptrace")) host_call(SYS_ptrace, 16, 1, 0, 0, 0, 0);
  return contained(0);
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  setvbuf(stdout, 0, _IONBF, 0);
  if (!strcmp(what, "forked")) {
    // The attacker is a process that was forked, on a kernel that forks.
    pid_t child = fork();
    if (child > 0) {
      int status = 0;
      if (waitpid(child, &status, 0) != child) return 3;
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    if (child < 0 && errno != ENOSYS) return 3;
    argc--, argv++;
    what = argc > 1 ? argv[1] : "";
  }
  if (!strcmp(what, "host") && argc > 2) return attack_host(argv[2]);
  if (!strcmp(what, "raw")) {
    long (*call)(long, long, long, long) = made(raw_call, sizeof raw_call);
    // The library OS answers, a thousand times over: the process is not who it says it is to the host.
    for (int i = 0; i < 1000; i++)
      if (call(SYS_getpid, 0, 0, 0) != getpid()) return contained(0);
    // And there is no host file to be had.
    return contained(call(SYS_open, (long)"/proc/self/exe", O_RDONLY, 0) != -ENOSYS &&
                     call(SYS_open, (long)"/etc/machine-id", O_RDONLY, 0) == -ENOENT);
  }
  if (!strcmp(what, "int80")) {
    long (*call)(long, long, long, long) = made(int80, sizeof int80);
    long got = call(0, 0, 0, 0);
    return contained(got == -ENOSYS || got == getpid());
  }
  if (!strcmp(what, "vsyscall")) {
    // time(2) of the vsyscall page: the time, or the end of the program.
    time_t (*vtime)(time_t *) = (time_t (*)(time_t *))0xffffffffff600400;
    time_t now = time(0), got = vtime(0);
    return contained(got >= now - 5 && got <= now + 5);
  }
  if (!strcmp(what, "unmap")) {
    int refused = munmap(KERNEL, 4096) == -1 || access("/", F_OK) == 0;
    void *over = mmap(KERNEL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    refused &= over == MAP_FAILED && mprotect(KERNEL, 4096, PROT_READ | PROT_WRITE) == -1;
    return contained(refused && getpid() > 0);
  }
  if (!strcmp(what, "write-kernel")) {
    // Its code is not writable: the program ends here.
    *(volatile char *)KERNEL = 0x90;
    return contained(0);
  }
  if (!strcmp(what, "fork")) {
    pid_t child = fork();
    if (child < 0) return contained(errno == ENOSYS);
    if (child == 0) _exit(0);
    return contained(waitpid(child, 0, 0) == child);
  }
  if (!strcmp(what, "threads")) {
    // A thousand children, each refused or reaped: nothing of the host's runs out.
    for (int i = 0; i < 1000; i++) {
      pid_t child = vfork();
      if (child == 0) _exit(0);
      if (child > 0) waitpid(child, 0, 0);
    }
    return contained(1);
  }
  fprintf(stderr, "no such attack: %s\n", what);
  return 2;
}
