// SPDX-License-Identifier: Apache-2.0 OR MIT
// The functions of unilith/blockdev.h in a program that was not linked with the kernel: it ends before main, for there is no
// device that it could have.
#include <unilith/blockdev.h>
#include <errno.h>
#include <unistd.h>

#define EX_CONFIG 78

__attribute__((constructor)) static void refuse(void) {
    static const char text[] = "this program drives a disk itself (unilith/blockdev.h), so its kernel must be linked to it: "
                               "unilith run --static --drive FILE PROGRAM\n";
    ssize_t written = write(2, text, sizeof text - 1);
    (void)written;
    _exit(EX_CONFIG);
}

int unilith_blockdev_count(void) { return 0; }

int unilith_blockdev_open(unsigned device, struct unilith_blockdev_info *info) {
    (void)device, (void)info;
    return -ENODEV;
}

int unilith_blockdev_submit(unsigned device, const struct unilith_block_request *requests, unsigned count) {
    (void)device, (void)requests, (void)count;
    return -EBADF;
}

int unilith_blockdev_poll(unsigned device, struct unilith_block_completion *completions, unsigned count) {
    (void)device, (void)completions, (void)count;
    return -EBADF;
}

int unilith_blockdev_wait(unsigned device, int64_t timeout_ns) {
    (void)device, (void)timeout_ns;
    return -EBADF;
}
