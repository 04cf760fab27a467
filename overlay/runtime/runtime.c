// SPDX-License-Identifier: Apache-2.0 OR MIT
// What C programs expect of a library, over the calls of the kernel. Compiled with each program; what it does not use is
// left out. It is for the program's own memory and files: the application has a C library of its own.
#include <unilith/overlay.h>

// ---- Memory

void *malloc(size_t size) {
    void *address = uio_alloc_memory(size, UIO_MEMORY);
    return (long)address < 0 ? NULL : address;
}

void free(void *address) { uio_free_memory(address); }

void *calloc(size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) return NULL;
    void *address = malloc(bytes);
    return address ? memset(address, 0, bytes) : NULL;
}

void *realloc(void *old, size_t size) {
    if (!old) return malloc(size);
    size_t before = uio_memory_size(old);
    if (before >= size && size) return old;
    void *address = malloc(size);
    if (address) {
        memcpy(address, old, before < size ? before : size);
        free(old);
    }
    return address;
}

void *memcpy(void *restrict to, const void *restrict from, size_t count) {
    void *answer = to;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
    return answer;
}

void *memmove(void *to, const void *from, size_t count) {
    char *t = to;
    const char *f = from;
    if (t <= f || t >= f + count) return memcpy(to, from, count);
    while (count--) {
        t[count] = f[count];
        __asm__ volatile("" : : : "memory");
    }
    return to;
}

void *memset(void *to, int byte, size_t count) {
    void *answer = to;
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(byte) : "memory");
    return answer;
}

int memcmp(const void *a, const void *b, size_t count) {
    const unsigned char *x = a, *y = b;
    for (; count; count--, x++, y++)
        if (*x != *y) return *x - *y;
    return 0;
}

int bcmp(const void *a, const void *b, size_t count) { return memcmp(a, b, count); }

// ---- Strings

size_t strlen(const char *text) {
    size_t length = 0;
    for (; text[length]; length++) __asm__ volatile("");
    return length;
}

int strncmp(const char *a, const char *b, size_t count) {
    for (; count; count--, a++, b++)
        if (*a != *b || !*a) return (unsigned char)*a - (unsigned char)*b;
    return 0;
}

int strcmp(const char *a, const char *b) { return strncmp(a, b, SIZE_MAX); }

char *strchr(const char *text, int character) {
    for (;; text++) {
        if (*text == (char)character) return (char *)text;
        if (!*text) return NULL;
    }
}

char *strstr(const char *text, const char *part) {
    size_t length = strlen(part);
    for (; *text; text++)
        if (!strncmp(text, part, length)) return (char *)text;
    return length ? NULL : (char *)text;
}

char *strcpy(char *to, const char *from) { return memcpy(to, from, strlen(from) + 1); }

char *strdup(const char *text) {
    size_t size = strlen(text) + 1;
    char *copy = malloc(size);
    return copy ? memcpy(copy, text, size) : NULL;
}

long strtol(const char *text, char **end, int base) {
    while (*text == ' ' || (*text >= '\t' && *text <= '\r')) text++;
    int negative = *text == '-';
    if (*text == '-' || *text == '+') text++;
    if ((base == 0 || base == 16) && text[0] == '0' && (text[1] | 32) == 'x') {
        text += 2;
        base = 16;
    } else if (base == 0) {
        base = *text == '0' ? 8 : 10;
    }
    unsigned long value = 0;
    for (;; text++) {
        int lower = *text | 32;
        int digit = *text >= '0' && *text <= '9' ? *text - '0' : lower >= 'a' && lower <= 'z' ? lower - 'a' + 10 : 99;
        if (digit >= base) break;
        value = value * base + digit;
    }
    if (end) *end = (char *)text;
    return negative ? -(long)value : (long)value;
}

unsigned long strtoul(const char *text, char **end, int base) { return (unsigned long)strtol(text, end, base); }

int atoi(const char *text) { return (int)strtol(text, NULL, 10); }

// ---- The end

// What functions find overwritten when they wrote behind the end of their variables (cc -mstack-protector-guard=global). A
// zero byte stops functions that copy strings.
uintptr_t __stack_chk_guard = 0x5bd1e995a7c30d00;

static void (*at_exit[32])(void);
static unsigned at_exit_count;

int atexit(void (*function)(void)) {
    if (at_exit_count == sizeof at_exit / sizeof *at_exit) return -1;
    at_exit[at_exit_count++] = function;
    return 0;
}

// C++ registers the destructors of static objects here.
static struct {
    void (*function)(void *);
    void *argument;
} cxa[64];
static unsigned cxa_count;

int __cxa_atexit(void (*function)(void *), void *argument, void *handle) {
    (void)handle;
    if (cxa_count == sizeof cxa / sizeof *cxa) return -1;
    cxa[cxa_count].function = function;
    cxa[cxa_count++].argument = argument;
    return 0;
}

__attribute__((destructor)) static void run_at_exit(void) {
    while (at_exit_count) at_exit[--at_exit_count]();
    while (cxa_count) {
        cxa_count--;
        cxa[cxa_count].function(cxa[cxa_count].argument);
    }
    fflush(stdout);
}

void abort(void) { uio_abort("aborted"); }

// ---- Files

struct uio_file {
    int number;
    // Only standard output is collected, up to a line.
    unsigned used;
    char *collected;
};

#define LINE 1024
static char output[LINE];
static FILE standard[3] = {{0, 0, NULL}, {1, 0, output}, {2, 0, NULL}};
FILE *const stdin = &standard[0], *const stdout = &standard[1], *const stderr = &standard[2];

static ssize_t send(int number, const char *bytes, size_t count) {
    size_t done = 0;
    while (done < count) {
        ssize_t n = number <= 2 ? uio_console_write(number, bytes + done, count - done)
                                : uio_write(number, bytes + done, count - done);
        if (n <= 0) return done ? (ssize_t)done : n;
        done += n;
    }
    return done;
}

int fflush(FILE *file) {
    if (file && file->used) {
        unsigned used = file->used;
        file->used = 0;
        if (send(file->number, file->collected, used) < 0) return EOF;
    }
    return 0;
}

FILE *fopen(const char *path, const char *mode) {
    int plus = strchr(mode, '+') != NULL;
    int flags = *mode == 'r' ? (plus ? O_RDWR : O_RDONLY)
                             : (plus ? O_RDWR : O_WRONLY) | O_CREAT | (*mode == 'a' ? O_APPEND : O_TRUNC);
    int number = uio_open(path, flags, 0644);
    if (number < 0) return NULL;
    FILE *file = calloc(1, sizeof *file);
    if (!file) {
        uio_close(number);
        return NULL;
    }
    file->number = number;
    return file;
}

int fclose(FILE *file) {
    int result = fflush(file);
    if (file->number > 2) {
        if (uio_close(file->number) < 0) result = EOF;
        free(file);
    }
    return result;
}

size_t fread(void *bytes, size_t size, size_t count, FILE *file) {
    size_t done = 0, wanted = size * count;
    while (done < wanted) {
        char *to = (char *)bytes + done;
        ssize_t n = file->number ? uio_read(file->number, to, wanted - done) : uio_console_read(to, wanted - done);
        if (n <= 0) break;
        done += n;
    }
    return size ? done / size : 0;
}

size_t fwrite(const void *bytes, size_t size, size_t count, FILE *file) {
    const char *from = bytes;
    size_t wanted = size * count;
    if (!file->collected) {
        ssize_t done = send(file->number, from, wanted);
        return done < 0 || !size ? 0 : done / size;
    }
    for (size_t i = 0; i < wanted; i++) {
        file->collected[file->used++] = from[i];
        if ((from[i] == '\n' || file->used == LINE) && fflush(file)) return i / size;
    }
    return count;
}

int fseek(FILE *file, long offset, int whence) { return uio_lseek(file->number, offset, whence) < 0 ? -1 : 0; }
long ftell(FILE *file) { return uio_lseek(file->number, 0, SEEK_CUR); }
int fputs(const char *text, FILE *file) {
    size_t length = strlen(text);
    return fwrite(text, 1, length, file) == length ? 0 : EOF;
}
int fileno(FILE *file) { return file->number; }

char *fgets(char *text, int size, FILE *file) {
    int length = 0;
    while (length < size - 1) {
        if (fread(text + length, 1, 1, file) != 1) break;
        if (text[length++] == '\n') break;
    }
    text[length] = 0;
    return length ? text : NULL;
}

int puts(const char *text) { return fputs(text, stdout) || fputs("\n", stdout) ? EOF : 0; }
int putchar(int character) {
    char byte = (char)character;
    return fwrite(&byte, 1, 1, stdout) == 1 ? character : EOF;
}

void uio_console_puts(const char *text) { fputs(text, stdout); }

char *uio_console_gets(void) {
    static char line[LINE];
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return NULL;
    size_t length = strlen(line);
    if (length && line[length - 1] == '\n') line[length - 1] = 0;
    return line;
}

long lseek(int file, long offset, int whence) { return uio_lseek(file, offset, whence); }
int fsync(int file) { return uio_fsync(file); }
int unlink(const char *path) { return uio_unlink(path); }
int rename(const char *from, const char *to) { return uio_rename(from, to); }
int mkdir(const char *path, unsigned permissions) { return uio_mkdir(path, (int)permissions); }
int rmdir(const char *path) { return uio_rmdir(path); }

struct uio_directory {
    char *path;
    uint64_t position;
    ssize_t filled, at;
    struct dirent entry;
    char names[4096];
};

DIR *opendir(const char *path) {
    struct uio_stat stat;
    if (uio_stat(path, &stat) < 0 || (stat.mode & 0170000) != 0040000) return NULL;
    DIR *directory = calloc(1, sizeof *directory);
    if (directory && !(directory->path = strdup(path))) {
        free(directory);
        return NULL;
    }
    return directory;
}

struct dirent *readdir(DIR *directory) {
    if (directory->at == directory->filled) {
        directory->filled = uio_list(directory->path, &directory->position, directory->names, sizeof directory->names);
        directory->at = 0;
        if (directory->filled <= 0) {
            directory->filled = 0;
            return NULL;
        }
    }
    strcpy(directory->entry.d_name, directory->names + directory->at);
    directory->at += strlen(directory->entry.d_name) + 1;
    return &directory->entry;
}

int closedir(DIR *directory) {
    free(directory->path);
    free(directory);
    return 0;
}

void *uio_symbol_find(const char *name) {
    long address = uio_symbol_get(name);
    return address < 0 ? NULL : (void *)address;
}

// ---- Formatted output

struct sink {
    char *to;
    size_t size, length;
};

static void put(struct sink *sink, char character) {
    if (sink->length + 1 < sink->size) sink->to[sink->length] = character;
    sink->length++;
}

static void pad(struct sink *sink, int count, char character) {
    while (count-- > 0) put(sink, character);
}

// `text` is what the conversion made; a sign stays in front of zeros.
static void field(struct sink *sink, const char *text, int length, int width, int left, int zero) {
    if (!left && zero && *text == '-' && length) {
        put(sink, *text++);
        length--;
        width--;
    }
    if (!left) pad(sink, width - length, zero ? '0' : ' ');
    for (int i = 0; i < length; i++) put(sink, text[i]);
    if (left) pad(sink, width - length, ' ');
}

static int digits(char *end, uint64_t value, unsigned base, int upper) {
    int count = 0;
    do {
        unsigned digit = value % base;
        *--end = (char)(digit < 10 ? '0' + digit : (upper ? 'A' : 'a') + digit - 10);
        value /= base;
        count++;
    } while (value);
    return count;
}

static int fixed(char *text, double value, int precision) {
    char number[64];
    int length = 0;
    if (value != value) return memcpy(text, "nan", 3), 3;
    if (value < 0) text[length++] = '-', value = -value;
    if (value > 1e18) return memcpy(text + length, "inf", 3), length + 3;
    if (precision > 15) precision = 15;
    double scale = 1;
    for (int i = 0; i < precision; i++) scale *= 10;
    uint64_t whole = (uint64_t)value;
    uint64_t part = (uint64_t)((value - (double)whole) * scale + 0.5);
    if (part >= (uint64_t)scale) whole++, part = 0;
    int count = digits(number + sizeof number, whole, 10, 0);
    memcpy(text + length, number + sizeof number - count, count);
    length += count;
    if (precision) {
        text[length++] = '.';
        count = digits(number + sizeof number, part, 10, 0);
        for (int i = count; i < precision; i++) text[length++] = '0';
        memcpy(text + length, number + sizeof number - count, count);
        length += count;
    }
    return length;
}

int vsnprintf(char *to, size_t size, const char *format, va_list list) {
    struct sink sink = {to, size, 0};
    for (; *format; format++) {
        if (*format != '%') {
            put(&sink, *format);
            continue;
        }
        int left = 0, zero = 0, width = 0, precision = -1, length = 0;
        for (format++; *format == '-' || *format == '0'; format++) *format == '-' ? (left = 1) : (zero = 1);
        if (*format == '*') width = va_arg(list, int), format++;
        for (; *format >= '0' && *format <= '9'; format++) width = width * 10 + *format - '0';
        if (*format == '.') {
            precision = 0;
            if (*++format == '*') precision = va_arg(list, int), format++;
            for (; *format >= '0' && *format <= '9'; format++) precision = precision * 10 + *format - '0';
        }
        for (; *format == 'h' || *format == 'l' || *format == 'z'; format++) length += *format == 'h' ? -1 : 1;
        char text[96];
        char *end = text + sizeof text;
        int count = 0, upper = 0;
        unsigned base = 10;
        switch (*format) {
        case 'd':
        case 'i': {
            int64_t value = length > 0 ? va_arg(list, long) : va_arg(list, int);
            count = digits(end, value < 0 ? -(uint64_t)value : (uint64_t)value, 10, 0);
            if (value < 0) end[-++count] = '-';
            field(&sink, end - count, count, width, left, zero);
            break;
        }
        case 'X':
            upper = 1;
            base = 16;
            goto number;
        case 'x':
            base = 16;
            goto number;
        case 'o':
            base = 8;
            goto number;
        case 'u':
        number: {
            uint64_t value = length > 0 ? va_arg(list, unsigned long) : va_arg(list, unsigned);
            count = digits(end, value, base, upper);
            field(&sink, end - count, count, width, left, zero);
            break;
        }
        case 'p':
            count = digits(end, (uint64_t)va_arg(list, void *), 16, 0);
            end[-++count] = 'x';
            end[-++count] = '0';
            field(&sink, end - count, count, width, left, 0);
            break;
        case 'f':
            count = fixed(text, va_arg(list, double), precision < 0 ? 6 : precision);
            field(&sink, text, count, width, left, zero);
            break;
        case 'c':
            text[0] = (char)va_arg(list, int);
            field(&sink, text, 1, width, left, 0);
            break;
        case 's': {
            const char *string = va_arg(list, const char *);
            if (!string) string = "(null)";
            for (; string[count] && count != precision; count++) __asm__ volatile("");
            field(&sink, string, count, width, left, 0);
            break;
        }
        case 0:
            format--;
            break;
        default:
            put(&sink, *format);
        }
    }
    if (size) to[sink.length < size ? sink.length : size - 1] = 0;
    return (int)sink.length;
}

int snprintf(char *to, size_t size, const char *format, ...) {
    va_list list;
    va_start(list, format);
    int length = vsnprintf(to, size, format, list);
    va_end(list);
    return length;
}

static int print(FILE *file, const char *format, va_list list) {
    char text[LINE];
    int length = vsnprintf(text, sizeof text, format, list);
    int shown = length < LINE ? length : LINE - 1;
    return fwrite(text, 1, shown, file) == (size_t)shown ? length : -1;
}

int fprintf(FILE *file, const char *format, ...) {
    va_list list;
    va_start(list, format);
    int length = print(file, format, list);
    va_end(list);
    return length;
}

int printf(const char *format, ...) {
    va_list list;
    va_start(list, format);
    int length = print(stdout, format, list);
    va_end(list);
    return length;
}
