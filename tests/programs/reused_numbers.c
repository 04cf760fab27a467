// SPDX-License-Identifier: Apache-2.0 OR MIT
// A process that ends leaves its number to another one. What was opened or named while it was there is about the process and not about
// the number: directories of /proc and owners of files. Passes on Linux as root in a PID namespace of its own.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAILS(call, error) (errno = 0, (call) == -1 && errno == (error))

static int told(int fd, int signal) {
    return syscall(SYS_pidfd_send_signal, fd, signal, NULL, 0);
}

static pid_t start(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        pause();
        _exit(0);
    }
    return child;
}

static void end(pid_t child) {
    int status;
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child && WTERMSIG(status) == SIGKILL);
}

// Another process with that number. Somebody else may start one in between.
static void start_as(pid_t number) {
    char text[16];
    int length = sprintf(text, "%d", number - 1);
    for (int i = 0; i < 100; i++) {
        int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY);
        CHECK(fd >= 0 && write(fd, text, length) == length && close(fd) == 0);
        pid_t child = start();
        if (child == number)
            return;
        end(child);
    }
    CHECK(!"a number can be given out again");
}

static int directory_of(const char *proc, pid_t process, const char *below) {
    char path[100];
    sprintf(path, "%s/%d%s", proc, process, below);
    int fd = open(path, O_RDONLY | O_DIRECTORY);
    CHECK(fd >= 0);
    return fd;
}

static ino_t inode_of(int fd) {
    struct stat stat;
    CHECK(fstat(fd, &stat) == 0);
    return stat.st_ino;
}

static void directories_stand_for_the_process_they_were_opened_for(void) {
    pid_t child = start();
    int directory = directory_of("/proc", child, ""), descriptors = directory_of("/proc", child, "/fd");
    int stat = openat(directory, "stat", O_RDONLY);
    ino_t inode = inode_of(directory);
    char byte;
    CHECK(stat >= 0 && pread(stat, &byte, 1, 0) == 1);
    CHECK(told(directory, 0) == 0);
    int again = directory_of("/proc", child, "");
    CHECK(inode_of(again) == inode && close(again) == 0);
    end(child);
    CHECK(FAILS(told(directory, 0), ESRCH) && FAILS(openat(directory, "stat", O_RDONLY), ESRCH));
    CHECK(FAILS(pread(stat, &byte, 1, 0), ESRCH));

    start_as(child);
    CHECK(FAILS(told(directory, SIGKILL), ESRCH) && FAILS(openat(directory, "stat", O_RDONLY), ESRCH));
    CHECK(FAILS(pread(stat, &byte, 1, 0), ESRCH) && FAILS(openat(descriptors, "0", O_RDONLY), ENOENT));
    again = directory_of("/proc", child, "");
    CHECK(inode_of(again) != inode && told(again, 0) == 0);
    CHECK(close(again) == 0 && close(directory) == 0 && close(descriptors) == 0 && close(stat) == 0);
    end(child);
}

static void a_directory_is_known_by_what_it_is_and_not_by_its_path(void) {
    pid_t child = start();
    // Below a process: its threads, and what it shows.
    static const char *const others[] = {"/task", "/ns", "/fd"};
    for (int i = 0; i < 3; i++) {
        int fd = directory_of("/proc", child, others[i]);
        CHECK(FAILS(told(fd, 0), EBADF) && close(fd) == 0);
    }
    char below[32], path[64];
    sprintf(below, "/task/%d", child);
    int thread = directory_of("/proc", child, below);
    CHECK(FAILS(told(thread, 0), EBADF) && close(thread) == 0);
    sprintf(path, "/proc/%d", child);
    int name = open(path, O_PATH);
    CHECK(name >= 0 && FAILS(told(name, 0), EBADF) && close(name) == 0);

    // /proc mounted elsewhere, and something else mounted there.
    char place[] = "/tmp/procXXXXXX";
    CHECK(mkdtemp(place) && mount("proc", place, "proc", 0, NULL) == 0);
    int directory = directory_of(place, child, "");
    CHECK(told(directory, 0) == 0 && close(directory) == 0);
    CHECK(mount("other", path, "tmpfs", 0, NULL) == 0);
    int covered = open(path, O_RDONLY | O_DIRECTORY);
    CHECK(covered >= 0 && FAILS(told(covered, SIGKILL), EBADF) && close(covered) == 0);
    CHECK(umount(path) == 0 && umount(place) == 0 && rmdir(place) == 0);
    end(child);
}

static void owners_of_files_are_processes(void) {
    int ends[2], status;
    pid_t child = start();
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && fcntl(ends[0], F_SETOWN, child) == 0);
    CHECK(fcntl(ends[0], F_SETFL, O_ASYNC) == 0 && fcntl(ends[0], F_GETOWN) == child);
    end(child);
    CHECK(fcntl(ends[0], F_GETOWN) == 0);
    start_as(child);
    CHECK(fcntl(ends[0], F_GETOWN) == 0 && write(ends[1], "x", 1) == 1);
    // SIGIO would have ended it.
    CHECK(kill(child, SIGTERM) == 0 && waitpid(child, &status, 0) == child && WTERMSIG(status) == SIGTERM);

    child = start();
    CHECK(fcntl(ends[0], F_SETOWN, child) == 0 && write(ends[1], "x", 1) == 1);
    CHECK(waitpid(child, &status, 0) == child && WTERMSIG(status) == SIGIO);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

int main(void) {
    directories_stand_for_the_process_they_were_opened_for();
    a_directory_is_known_by_what_it_is_and_not_by_its_path();
    owners_of_files_are_processes();
    puts("all tests of reused numbers passed");
}
