// SPDX-License-Identifier: Apache-2.0 OR MIT
// Saves a SQLite database that a running program has in memory to a file: save-database FILE
//
// The program need not know of it. The connection is found in its memory: `struct sqlite3`
// begins with the default VFS, and its fifth word points to the list of attached databases, of which the first is "main".
// Then SQLite's own backup interface (sqlite.org/backup.html), which is in the program, copies the database.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unilith/overlay.h>

typedef struct sqlite3 sqlite3;
typedef struct sqlite3_backup sqlite3_backup;
extern void *sqlite3_vfs_find(const char *name);
extern int sqlite3_open(const char *path, sqlite3 **database);
extern int sqlite3_close(sqlite3 *database);
extern const char *sqlite3_errmsg(sqlite3 *database);
extern sqlite3_backup *sqlite3_backup_init(sqlite3 *to, const char *name, sqlite3 *from, const char *of);
extern int sqlite3_backup_step(sqlite3_backup *backup, int pages);
extern int sqlite3_backup_pagecount(sqlite3_backup *backup);
extern int sqlite3_backup_finish(sqlite3_backup *backup);

#define SQLITE_DONE 101

struct range {
    uintptr_t start, end;
};
static struct range ranges[512];
static int range_count;

// The memory the program can write, from /proc/self/maps: its variables, its heap, its stacks.
static void read_ranges(void) {
    static char text[64 << 10];
    FILE *maps = fopen("/proc/self/maps", "r");
    size_t length = maps ? fread(text, 1, sizeof text - 1, maps) : 0;
    text[length] = 0;
    for (char *line = text; *line && range_count < 512;) {
        char *end;
        uintptr_t start = strtoul(line, &end, 16), stop = strtoul(end + 1, &end, 16);
        if (end[1] == 'r' && end[2] == 'w' && start >> 39 != UIO_REGION >> 39) ranges[range_count++] = (struct range){start, stop};
        char *next = strchr(line, '\n');
        if (!next) break;
        line = next + 1;
    }
}

static int is_connection(const uintptr_t *words) {
    uintptr_t first[2];
    char name[5];
    return uio_peek(first, (void *)words[4], sizeof first) == 0 && uio_peek(name, (void *)first[0], sizeof name) == 0 &&
           !memcmp(name, "main", sizeof name) && first[1];
}

static sqlite3 *find_connection(uintptr_t vfs) {
    for (int i = 0; i < range_count; i++)
        for (uintptr_t at = ranges[i].start; at + 64 <= ranges[i].end; at += 8)
            if (*(uintptr_t *)at == vfs && is_connection((uintptr_t *)at)) return (sqlite3 *)at;
    return NULL;
}

static int save(const char *path) {
    sqlite3 *from = find_connection((uintptr_t)sqlite3_vfs_find(NULL)), *to = NULL;
    if (!from) {
        fprintf(stderr, "no database is open\n");
        return 1;
    }
    int failed = sqlite3_open(path, &to);
    sqlite3_backup *backup = failed ? NULL : sqlite3_backup_init(to, "main", from, "main");
    if (backup) {
        failed = sqlite3_backup_step(backup, -1) != SQLITE_DONE;
        printf("%d pages saved to %s\n", sqlite3_backup_pagecount(backup), path);
        if (sqlite3_backup_finish(backup)) failed = 1;
    }
    if (!backup || failed) {
        fprintf(stderr, "%s: %s\n", path, sqlite3_errmsg(to));
        failed = 1;
    }
    sqlite3_close(to);
    return failed;
}

int main(int count, char **words) {
    if (count != 2) {
        fprintf(stderr, "usage: save-database FILE\n");
        return 2;
    }
    read_ranges();
    // SQLite changes its memory: the program is held where it waits for input, until this is done.
    int refused = uio_enable_write();
    if (refused) {
        fprintf(stderr, "the program does not come to rest: error %d\n", -refused);
        return 1;
    }
    int failed = save(words[1]);
    uio_disable_write();
    return failed;
}
