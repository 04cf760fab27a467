// SPDX-License-Identifier: Apache-2.0 OR MIT
// Asynchronous I/O by system calls (io_setup and its kin). Passes on Linux.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static aio_context_t context;

static int submit(struct iocb *one)
{
    return syscall(SYS_io_submit, context, 1L, &one);
}

static int events(long least, long most, struct io_event *to, struct timespec *timeout)
{
    return syscall(SYS_io_getevents, context, least, most, to, timeout);
}

static void *submits(void *control)
{
    usleep(50 * 1000);
    CHECK(submit(control) == 1);
    return control;
}

int main(void)
{
    char text[16] = "";
    struct io_event got[4];
    struct timespec soon = {0, 20 * 1000 * 1000};
    int fd = open("/tmp/aio", O_RDWR | O_CREAT | O_TRUNC, 0600), count = eventfd(0, EFD_NONBLOCK);
    CHECK(fd >= 0 && count >= 0);
    CHECK(syscall(SYS_io_setup, 0, &context) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_io_setup, 4, NULL) == -1 && errno == EFAULT);
    CHECK(syscall(SYS_io_setup, 4, &context) == 0 && context != 0);
    aio_context_t used = context;
    CHECK(syscall(SYS_io_setup, 4, &used) == -1 && errno == EINVAL);

    struct iocb write = {.aio_data = 7, .aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = fd};
    write.aio_buf = (unsigned long)"0123456789";
    write.aio_nbytes = 10;
    write.aio_offset = 100;
    write.aio_flags = IOCB_FLAG_RESFD;
    write.aio_resfd = count;
    CHECK(submit(&write) == 1);
    CHECK(events(1, 4, got, NULL) == 1);
    CHECK(got[0].data == 7 && got[0].obj == (unsigned long)&write && got[0].res == 10 && got[0].res2 == 0);
    eventfd_t value;
    CHECK(eventfd_read(count, &value) == 0 && value == 1);

    struct iocb read = {.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = fd, .aio_offset = 103, .aio_nbytes = 4};
    read.aio_buf = (unsigned long)text;
    CHECK(submit(&read) == 1 && events(1, 1, got, NULL) == 1 && got[0].res == 4 && !strcmp(text, "3456"));
    // One that nobody can do, behind one that can be done.
    struct iocb bad = {.aio_lio_opcode = 99, .aio_fildes = fd};
    struct iocb *both[2] = {&read, &bad};
    CHECK(syscall(SYS_io_submit, context, 2L, both) == 1 && submit(&bad) == -1 && errno == EINVAL);
    bad.aio_lio_opcode = IOCB_CMD_PREAD;
    bad.aio_fildes = 99;
    CHECK(submit(&bad) == -1 && errno == EBADF);
    CHECK(syscall(SYS_io_submit, context, -1L, both) == -1 && errno == EINVAL);
    CHECK(events(1, 4, got, NULL) == 1);

    CHECK(events(2, 1, got, NULL) == -1 && errno == EINVAL);
    CHECK(events(1, 1, got, &soon) == 0 && events(0, 1, got, NULL) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, submits, &read) == 0);
    CHECK(events(1, 1, got, NULL) == 1 && pthread_join(thread, NULL) == 0);
    CHECK(syscall(SYS_io_cancel, context, &read, got) == -1 && errno == EINVAL);

    CHECK(syscall(SYS_io_destroy, context) == 0 && syscall(SYS_io_destroy, context) == -1 && errno == EINVAL);
    CHECK(submit(&read) == -1 && errno == EINVAL);
    unlink("/tmp/aio");
    puts("all AIO tests passed");
    return 0;
}
