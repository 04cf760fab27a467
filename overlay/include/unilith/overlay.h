/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What a program of the overlay can call, besides every function and variable of the application it runs next to.
 *
 * Build with `unilith overlay build program.c`, run with `unilith exec NAME run program.o ARGUMENTS`.
 *
 * A program begins at main and ends when main returns or with exit(). It is a single thread with a stack of 128 KiB, and
 * its variables are as at first each time it is run. Calls answer a negative error number (of Linux) when they fail,
 * unless something else is said.
 */
#ifndef UNILITH_OVERLAY_H
#define UNILITH_OVERLAY_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef long ssize_t;

/* ---- The application's memory --------------------------------------------------------------------------------- */

/*
 * A program reads all memory, and writes its own. What else it writes to ends it, with a report.
 *
 * uio_enable_write: from here on it may write the application's memory and call functions of the application that do.
 * Waits until a thread of the application sleeps in a system call, and holds it there: locks and heap of its C library are
 * in a consistent state then, and that thread's thread-local variables (errno, the heap's cache) serve the program.
 * 0, or -ETIMEDOUT when no thread came to rest within five seconds, or -EOPNOTSUPP when the program was compiled with
 * thread-local variables that need FS (unilith overlay build does not).
 * A program that holds the application for longer than two seconds is ended (run -w SECONDS gives more).
 *
 * uio_enable_write_now: the same without holding a thread. For writing a variable; do not call functions that use
 * thread-local variables or locks.
 *
 * Writing is enabled until uio_disable_write, which lets the thread go on.
 */
int uio_enable_write(void);
int uio_enable_write_now(void);
int uio_disable_write(void);

/* ---- Symbols -------------------------------------------------------------------------------------------------- */

/* The address of a function or variable of the application; NULL when there is none. Names that are known when the program
 * is written need no look-up: declare them extern. */
void *uio_symbol_find(const char *name);
/* The same as the kernel answers it: a negative error number when there is none. */
long uio_symbol_get(const char *name);
/* What is at an address, `name+0x12 (file)`; answers the text's length. */
long uio_symbol_name(const void *address, char *text, size_t size);

/* Copies memory from anywhere; 0, or -EFAULT when not all of it is mapped: a read that is no risk. */
int uio_peek(void *to, const void *from, size_t size);

/* Programs and what they allocate lie in the 512 GiB from here on, and nothing of the application does. */
#define UIO_REGION 0x200000000000

/* ---- Memory --------------------------------------------------------------------------------------------------- */

#define UIO_MEMORY 0
#define UIO_EXECUTABLE 1 /* refused: nothing is writable and executable */

/* Memory of the program's own, 16-byte aligned; freed at its end. An address, or a negative error number: malloc
 * answers NULL instead. A sixteenth of the machine's memory stays the application's. Freeing twice, or what is no
 * block, ends the program. */
void *uio_alloc_memory(size_t size, int attributes);
int uio_free_memory(void *address);
size_t uio_memory_size(void *address);

/* ---- Console: the session that runs the program ---------------------------------------------------------------- */

/* Stream 1 is standard output, 2 standard error. Answers the bytes written, which may be less. */
ssize_t uio_console_write(int stream, const void *bytes, size_t count);
/* Standard input; 0 at its end. */
ssize_t uio_console_read(void *bytes, size_t count);
void uio_console_puts(const char *text);
/* One line without its newline, valid until the next call; NULL at the end. At most 1,023 characters. */
char *uio_console_gets(void);

/* ---- Files: the application's file tree as root; /overlay is the host's directory (unilith overlay dir) ---------- */

#define O_RDONLY 0
#define O_WRONLY 1
#define O_RDWR 2
#define O_CREAT 0100
#define O_EXCL 0200
#define O_TRUNC 01000
#define O_APPEND 02000
#define SEEK_SET 0
#define SEEK_CUR 1
#define SEEK_END 2

struct uio_stat {
    uint64_t size;
    uint64_t mode;       /* type and permissions, as st_mode */
    uint64_t changed_ns; /* last change, since 1970 */
};

int uio_open(const char *path, int flags, int permissions);
int uio_close(int file);
ssize_t uio_read(int file, void *bytes, size_t count);
ssize_t uio_write(int file, const void *bytes, size_t count);
long uio_lseek(int file, long offset, int whence);
int uio_fsync(int file);
int uio_unlink(const char *path);
int uio_rename(const char *from, const char *to);
int uio_mkdir(const char *path, int permissions);
int uio_rmdir(const char *path);
int uio_stat(const char *path, struct uio_stat *stat);
/* Names of a directory, each with its NUL, from *position on (0 at first); the bytes, 0 at the end. */
ssize_t uio_list(const char *path, uint64_t *position, char *names, size_t size);

/* ---- Time, signals, counters ------------------------------------------------------------------------------------ */

int uio_sleep(uint64_t nanoseconds);
#define UIO_MONOTONIC 0
#define UIO_REALTIME 1
uint64_t uio_time(int clock);
/* Sends a signal to the application, as kill(2) would. */
int uio_kill(int signal);

struct uio_counters {
    uint64_t now_ns;
    uint64_t application_ns; /* processor time of all its threads */
    uint64_t program_ns;     /* of this program */
    uint64_t threads;
    uint64_t resident_bytes; /* of the application */
    uint64_t used_bytes;     /* of the machine's memory */
    uint64_t memory_bytes;
    uint64_t overlay_bytes;  /* of all programs of the overlay */
};
int uio_counters(struct uio_counters *counters);

/* ---- The end ---------------------------------------------------------------------------------------------------- */

/* exit runs destructors; uio_exit does not. uio_abort ends the program with a report that begins with these words. */
void exit(int status) __attribute__((noreturn));
void uio_exit(int status) __attribute__((noreturn));
void uio_abort(const char *why) __attribute__((noreturn));

/* ---- What every C program expects, for the program's own use. `unilith overlay build` links what is used. --------- */

void *malloc(size_t size);
void *calloc(size_t count, size_t size);
void *realloc(void *address, size_t size);
void free(void *address);
void abort(void) __attribute__((noreturn));
int atexit(void (*function)(void));

void *memcpy(void *to, const void *from, size_t count);
void *memmove(void *to, const void *from, size_t count);
void *memset(void *to, int byte, size_t count);
int memcmp(const void *a, const void *b, size_t count);
size_t strlen(const char *text);
int strcmp(const char *a, const char *b);
int strncmp(const char *a, const char *b, size_t count);
char *strchr(const char *text, int character);
char *strstr(const char *text, const char *part);
char *strcpy(char *to, const char *from);
char *strdup(const char *text);
long strtol(const char *text, char **end, int base);
unsigned long strtoul(const char *text, char **end, int base);
int atoi(const char *text);

/* %d %i %u %x %X %o %c %s %p %f %% with width, precision, - and 0, and the lengths hh h l ll z. */
int printf(const char *format, ...) __attribute__((format(printf, 1, 2)));
int snprintf(char *to, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
int vsnprintf(char *to, size_t size, const char *format, va_list arguments);
int puts(const char *text);
int putchar(int character);

typedef struct uio_file FILE;
extern FILE *const stdin, *const stdout, *const stderr;
#define EOF (-1)
FILE *fopen(const char *path, const char *mode); /* r w a, with + */
int fclose(FILE *file);
size_t fread(void *bytes, size_t size, size_t count, FILE *file);
size_t fwrite(const void *bytes, size_t size, size_t count, FILE *file);
int fseek(FILE *file, long offset, int whence);
long ftell(FILE *file);
int fflush(FILE *file);
int fputs(const char *text, FILE *file);
char *fgets(char *text, int size, FILE *file);
int fprintf(FILE *file, const char *format, ...) __attribute__((format(printf, 2, 3)));
int fileno(FILE *file);
long lseek(int file, long offset, int whence);
int fsync(int file);
int unlink(const char *path);
int rename(const char *from, const char *to);
int mkdir(const char *path, unsigned permissions);
int rmdir(const char *path);

struct dirent {
    char d_name[256];
};
typedef struct uio_directory DIR;
DIR *opendir(const char *path);
struct dirent *readdir(DIR *directory);
int closedir(DIR *directory);

#ifdef __cplusplus
}
#endif
#endif
