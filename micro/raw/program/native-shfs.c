// SPDX-License-Identifier: Apache-2.0 OR MIT
// The functions of unilith/shfs.h in a program that was not linked with the kernel: it ends before main, for there is no disk
// that it could have.
#include <unilith/shfs.h>
#include <errno.h>
#include <unistd.h>

#define EX_CONFIG 78

__attribute__((constructor)) static void refuse(void) {
    static const char text[] = "this program reads an SHFS image itself (unilith/shfs.h), so its kernel must be linked to it: "
                               "unilith run --static --drive IMAGE:ro PROGRAM\n";
    ssize_t written = write(2, text, sizeof text - 1);
    (void)written;
    _exit(EX_CONFIG);
}

int unilith_shfs_mount(unsigned device) {
    (void)device;
    return -ENODEV;
}

int unilith_shfs_open(const char *name, size_t length, struct unilith_shfs_file *file) {
    (void)name, (void)length, (void)file;
    return -ENODEV;
}

int unilith_shfs_read(uint32_t number, uint64_t offset, void *buffer, size_t length) {
    (void)number, (void)offset, (void)buffer, (void)length;
    return -ENODEV;
}
