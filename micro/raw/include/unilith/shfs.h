/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * SHFS, a hash file system, for programs that are linked with the micro kernel: files of an image on a disk, opened by their names
 * without a VFS. An image is made by `unilith shfs make IMAGE DIRECTORY`, and nobody writes to it afterwards.
 *
 * Compile with `unilith cc`, run with `unilith run --static --drive IMAGE:ro`. The same file started on Linux, or without
 * --static, ends at its start with a sentence that says so: these functions are the kernel's.
 *
 * Functions answer a negative error number (of Linux) when they fail. Any thread may call them.
 */
#ifndef UNILITH_SHFS_H
#define UNILITH_SHFS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a name at most. */
#define UNILITH_SHFS_NAME 198

/*
 * A file.
 *
 * size: its bytes. number: what it is read by; there is nothing to close.
 * digest: SHA-256 of its bytes as they were when the image was made, for ETag and the like. `unilith shfs check` compares it with
 * the bytes; a machine does not.
 */
struct unilith_shfs_file {
    uint64_t size;
    uint32_t number;
    uint32_t reserved;
    uint8_t digest[32];
};

/*
 * Takes a disk of the machine, until it ends, and reads the table of the image on it: 256 bytes of memory for a file, and as many
 * for room. How many files there are, or -ENODEV: there is no such disk; -EBUSY: the program has opened it, or there is
 * an image already; -EUCLEAN: it is no image, or a damaged one (the kernel's log says which); -EIO: it cannot be read; -ENOMEM.
 * Waits for the disk.
 */
int unilith_shfs_mount(unsigned device);

/*
 * Finds the file of a name, which is that of the directory that the image was made of, with `/` between its parts and none in
 * front; length: its bytes. The disk is not asked.
 * 0, or -ENOENT: there is no such file; -ENODEV: nothing is mounted; -EFAULT: name cannot be read or file cannot be written.
 */
int unilith_shfs_open(const char *name, size_t length, struct unilith_shfs_file *file);

/*
 * Reads bytes of a file from offset on; how many, 0 at its end and behind it. Fewer than length only at the end of the file, or
 * where the rest cannot be had. Whole sectors of 512 bytes at such an offset go straight to the program's memory.
 * -EINVAL: no file has this number; -EIO: the disk fails; -EFAULT: buffer cannot be written; -ENODEV; -ENOMEM. Waits for the disk;
 * signals do not interrupt it.
 */
int unilith_shfs_read(uint32_t number, uint64_t offset, void *buffer, size_t length);

#ifdef __cplusplus
}
#endif

#endif /* UNILITH_SHFS_H */
