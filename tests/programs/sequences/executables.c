// SPDX-License-Identifier: Apache-2.0 OR MIT
// Random sequences of calls (sequences.h) on what execve(2) is given. Kind 0: ELF files of up to four segments, some of whose fields are
// wrong, whose code reads, writes or runs a byte somewhere and ends with what it found. Kind 1: scripts, their first lines, modes,
// interpreters of interpreters, arguments. Each call is made by a child; what is told is its error, or how the program ended.
#include "sequences.h"
#include <elf.h>
#include <linux/fs.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { PAGE = 4096, FILE_SIZE = 6 * PAGE, SEGMENTS = 4, CODE = 0x200 };

extern char **environ;
static unsigned char image[FILE_SIZE];

// A number as it is, or one that is nearly or not at all so.
static uint64_t perhaps_wrong(uint64_t right) {
    static const uint64_t all[] = {0, 1, 7, 4095, 4096, 4097, 1ull << 46, 0x7fffffffe000, 0x7ffffffff000, 1ull << 47, 1ull << 63, ~0ull, ~0ull - 4095};
    switch (below(4)) {
    case 0: return right + 1;
    case 1: return right ^ (1ull << below(48));
    case 2: return right - PAGE * below(3);
    default: return ONE_OF(all);
    }
}

static void put_file(const char *path, const void *bytes, size_t length, mode_t mode) {
    unlink(path);
    int file = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    if (write(file, bytes, length) != (ssize_t)length)
        abort();
    fchmod(file, mode);
    close(file);
}

// Has a child call execve(2), or execveat(2) of a descriptor, and says how that ended.
static void run(const char *path, char *const *arguments, char *const *environment, int how) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        abort();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        if (how == 1) {
            int file = open(path, O_PATH | O_CLOEXEC);
            syscall(SYS_execveat, file, "", arguments, environment, AT_EMPTY_PATH);
        } else if (how == 2) {
            syscall(SYS_execveat, AT_FDCWD, path, arguments, environment, AT_SYMLINK_NOFOLLOW);
        } else {
            syscall(SYS_execve, path, arguments, environment);
        }
        int error = errno;
        if (write(ends[1], &error, sizeof error) != sizeof error)
            abort();
        _exit(0);
    }
    close(ends[1]);
    int error = 0, status = 0;
    long got = read(ends[0], &error, sizeof error);
    close(ends[0]);
    waitpid(child, &status, 0);
    if (got == sizeof error)
        say(" = %s\n", strerrorname_np(error));
    else if (WIFSIGNALED(status))
        say(" = killed by %d\n", WTERMSIG(status));
    else
        say(" = ended with %d\n", WEXITSTATUS(status));
}

// Code that touches what is `distance` bytes behind it, and ends.
static void put_code(unsigned char *at, int32_t distance, int what) {
    // lea rax, [rip + distance]
    static const unsigned char address[] = {0x48, 0x8d, 0x05}, ends[] = {0xb8, 231, 0, 0, 0, 0x0f, 0x05};
    // movzx edi, byte [rax]; mov byte [rax], 1 and xor edi, edi; call rax; mov edi, [rsp]
    static const unsigned char touches[4][8] = {{0x0f, 0xb6, 0x38}, {0xc6, 0x00, 0x01, 0x31, 0xff}, {0xff, 0xd0}, {0x8b, 0x3c, 0x24}};
    static const int lengths[] = {3, 5, 2, 3};
    memcpy(at, address, 3);
    memcpy(at + 3, &distance, 4);
    memcpy(at + 7, touches[what], 8);
    memcpy(at + 7 + lengths[what], ends, sizeof ends);
}

static void elf(void) {
    static const char *const interpreters[] = {"/tmp/loader", "/tmp/loader", "/tmp", "/tmp/none", "/tmp/text", "/tmp/short", "/tmp/closed", "", "relative"};
    static const uint32_t kinds[] = {PT_LOAD, PT_LOAD, PT_LOAD, PT_LOAD, PT_NOTE, PT_GNU_STACK, PT_NULL, PT_TLS, PT_PHDR, PT_GNU_PROPERTY};
    Elf64_Ehdr *header = (Elf64_Ehdr *)image;
    Elf64_Phdr *segments = (Elf64_Phdr *)(image + sizeof *header);
    int is_dynamic = one_in(3), count = 1 + (int)below(SEGMENTS), what = (int)below(4), wrong = (int)below(3);
    uint64_t base = is_dynamic ? 0 : 0x400000;
    for (int i = 0; i < FILE_SIZE; i++)
        image[i] = (unsigned char)(i / 512 + 1);
    memset(image, 0, CODE);
    *header = (Elf64_Ehdr){
        .e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT}, .e_type = is_dynamic ? ET_DYN : ET_EXEC, .e_machine = EM_X86_64,
        .e_version = EV_CURRENT, .e_entry = base + CODE, .e_phoff = sizeof *header, .e_ehsize = sizeof *header,
        .e_phentsize = sizeof *segments, .e_phnum = (Elf64_Half)count};
    say("elf %s", is_dynamic ? "dynamic" : "fixed");
    segments[0] = (Elf64_Phdr){.p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_vaddr = base, .p_filesz = PAGE, .p_memsz = PAGE, .p_align = PAGE};
    for (int i = 1; i < count; i++) {
        // Most of them lie one behind the other, at any bytes of their pages; some do not.
        uint64_t offset = below(4) * PAGE + (one_in(2) ? 0 : below(PAGE)), size = below(3 * PAGE), more = one_in(2) ? 0 : below(5 * PAGE);
        uint64_t place = (uint64_t)(i * 4 + (int)below(3)) * PAGE + offset % PAGE;
        // What may only be run some processors let read.
        uint32_t flags = below(8);
        segments[i] = (Elf64_Phdr){.p_type = ONE_OF(kinds), .p_flags = flags == PF_X ? PF_X | PF_R : flags, .p_offset = offset, .p_vaddr = base + place,
            .p_filesz = size, .p_memsz = size + more, .p_align = one_in(4) ? 1ull << below(22) : PAGE};
        say(" [%x %x at %lx of %lx: %lx %lx]", segments[i].p_type, segments[i].p_flags, place, offset, size, size + more);
    }
    if (one_in(4)) {
        const char *path = ONE_OF(interpreters);
        say(" interpreter '%s'", path);
        // Where no segment's bytes are looked at.
        strcpy((char *)image + 0x180, path);
        int at = count < SEGMENTS ? count++ : count - 1;
        segments[at] = (Elf64_Phdr){.p_type = PT_INTERP, .p_offset = 0x180, .p_filesz = strlen(path) + 1, .p_memsz = strlen(path) + 1, .p_align = 1};
        header->e_phnum = (Elf64_Half)count;
    }
    // In a segment, or near its end.
    Elf64_Phdr *aim = &segments[below((uint32_t)count)];
    uint64_t end = aim->p_vaddr - base + (one_in(3) ? aim->p_memsz : one_in(2) ? aim->p_filesz : below((uint32_t)aim->p_memsz + 1));
    int32_t distance = (int32_t)(end + below(3) - 1 + (one_in(4) ? below(2 * PAGE) : 0)) - CODE - 7;
    say(" does %d at %x", what, distance + CODE + 7);
    put_code(image + CODE, distance, what);
    // Code that is called returns.
    if (what == 2)
        for (int i = PAGE; i < FILE_SIZE; i++)
            image[i] = 0xc3;
    size_t length = FILE_SIZE;
    for (int i = 0; i < wrong; i++) {
        Elf64_Phdr *segment = &segments[below((uint32_t)count)];
        int field = (int)below(20);
        uint64_t value;
        say(" field %d", field);
        switch (field) {
        case 0: header->e_ident[below(8)] ^= (unsigned char)(1 << below(8)); break;
        // Not what would lie at 0, where root's may.
        case 1: header->e_type = (Elf64_Half)(one_in(2) ? ET_REL : ET_CORE + below(3)); break;
        case 2: header->e_machine = (Elf64_Half)(EM_X86_64 - 6 + below(8)); break;
        case 3: header->e_version = below(3); break;
        case 4: header->e_entry = perhaps_wrong(header->e_entry); say(" %lx", header->e_entry); break;
        case 5: header->e_phoff = perhaps_wrong(header->e_phoff); say(" %lx", header->e_phoff); break;
        case 6: header->e_phentsize = (Elf64_Half)perhaps_wrong(header->e_phentsize); break;
        case 7: header->e_phnum = (Elf64_Half)perhaps_wrong(header->e_phnum); say(" %x", header->e_phnum); break;
        case 8: length = below(3) == 0 ? below(120) : below(FILE_SIZE); say(" %zx", length); break;
        case 9: header->e_flags = below(4); header->e_ehsize = (Elf64_Half)below(100); break;
        case 10: header->e_shoff = perhaps_wrong(0); header->e_shnum = (Elf64_Half)perhaps_wrong(0); break;
        case 11: segment->p_type = ONE_OF(kinds); say(" %x", segment->p_type); break;
        case 12: segment->p_flags = PF_R | below(16); say(" %x", segment->p_flags); break;
        case 13:
        case 14: value = segment->p_offset = perhaps_wrong(segment->p_offset); say(" offset %lx", value); break;
        case 15: value = segment->p_vaddr = perhaps_wrong(segment->p_vaddr); say(" address %lx", value); break;
        case 16: value = segment->p_filesz = perhaps_wrong(segment->p_filesz); say(" size %lx", value); break;
        case 17: value = segment->p_memsz = perhaps_wrong(segment->p_memsz); say(" in memory %lx", value); break;
        case 18: value = segment->p_align = perhaps_wrong(segment->p_align); say(" alignment %lx", value); break;
        default: value = segment->p_paddr = perhaps_wrong(0); break;
        }
    }
    put_file("/tmp/program", image, length, 0755);
    char *arguments[] = {"program", "one", "two", 0};
    run("/tmp/program", arguments, environ, one_in(8));
}

static void script(void) {
    static const char *const interpreters[] = {"/tmp/echoes", "/tmp/echoes", "/tmp/echoes", "/tmp/none", "/tmp", "/tmp/closed", "/tmp/script2", "/tmp/script", "echoes", "/tmp/text", "/proc/self/exe", "/tmp/link", "/proc/version", ""};
    static const char *const behind[] = {"", "\n", "\n", " \n", "\t-x\n", " -x -y \n", "  a  b\t\n", "\r\n", " -x", "\nexit 3\n"};
    static const mode_t modes[] = {0755, 0755, 0755, 0755, 0644, 0711, 0, 04755, 0001};
    char text[600];
    int length = 0, pad = one_in(5) ? 200 + (int)below(100) : one_in(4) ? (int)below(4) : 0;
    length += sprintf(text, "%s", one_in(8) ? "#" : one_in(12) ? "" : "#!");
    for (int i = 0; i < pad; i++)
        text[length++] = one_in(20) ? '\t' : ' ';
    const char *interpreter = ONE_OF(interpreters), *rest = ONE_OF(behind);
    length += sprintf(text + length, "%s", interpreter);
    if (one_in(12))
        text[length++] = 0;
    if (one_in(8)) {
        int more = 100 + (int)below(200);
        text[length++] = one_in(2) ? ' ' : 'x';
        memset(text + length, 'y', (size_t)more);
        length += more;
    }
    length += sprintf(text + length, "%s", rest);
    mode_t mode = ONE_OF(modes);
    int how = (int)below(4), nest = one_in(4), is_user = one_in(3);
    say("script %d bytes, %d of them blank, '%s' mode %o how %d user %d nest %d", length, pad, interpreter, mode, how, is_user, nest);
    for (const char *c = rest; *c; c++)
        say(" %02x", *c);
    put_file(nest ? "/tmp/script2" : "/tmp/script", text, (size_t)length, mode);
    char *none[] = {0}, *one[] = {"", 0}, *some[] = {"zero", "one", "", "three", 0}, *odd[] = {"a", (char *)8, 0}, *variables[] = {"A=b", "novalue", 0};
    char **const all[] = {none, one, some, some, some, odd, (char **)8, 0};
    char **arguments = ONE_OF(all), **environment = one_in(4) ? 0 : one_in(5) ? (char **)-8 : variables;
    say(" arguments %d variables %d", arguments == none ? 0 : arguments == one ? 1 : arguments == some ? 4 : arguments == odd ? 9 : -1, environment == 0 ? 0 : environment == variables ? 2 : -1);
    static const char *const paths[] = {"/tmp/script", "/tmp/script", "/tmp/script", "/tmp/script2", "/tmp/script3", "/tmp/link", "/tmp/loop", "/tmp/script/", "/tmp", "script", "/proc/version", "", "/proc/self/exe"};
    const char *path = ONE_OF(paths);
    say(" run '%s'", path);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (is_user && (setregid(1000, 1000) || setreuid(1000, 1000)))
            abort();
        run(path, arguments, environment, how);
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, 0, 0);
}

// How the program is run again, as interpreter: tells its arguments.
static void echoes(int count, char **arguments) {
    say(" [%d", count);
    for (int i = 0; i < count && i < 12; i++)
        say_bytes(arguments[i], (long)strnlen(arguments[i], 24));
    int variables = 0;
    while (environ[variables])
        variables++;
    say(" with %d as %d %d %d]", variables, getuid(), geteuid(), getegid());
    fflush(stdout);
    _exit(count);
}

int main(int count, char **arguments) {
    int kind;
    if (count < 3 || strspn(arguments[1], "0123456789") != strlen(arguments[1]))
        echoes(count, arguments);
    long steps = begin(count, arguments, &kind);
    if (chdir("/tmp"))
        return 1;
    static unsigned char self[4 << 20];
    int file = open("/proc/self/exe", O_RDONLY);
    long length = read(file, self, sizeof self);
    close(file);
    put_file("/tmp/echoes", self, (size_t)length, 0755);
    put_file("/tmp/closed", self, (size_t)length, 0644);
    put_file("/tmp/text", "some text\n", 10, 0755);
    put_file("/tmp/short", "\177ELF", 4, 0755);
    put_file("/tmp/script2", "#!/tmp/echoes a\n", 16, 0755);
    put_file("/tmp/script3", "#!/tmp/script2 b\n", 17, 0755);
    symlink("/tmp/script", "/tmp/link");
    symlink("/tmp/loop", "/tmp/loop");
    // A loader whose code ends with the number of arguments.
    Elf64_Ehdr *header = (Elf64_Ehdr *)image;
    *header = (Elf64_Ehdr){.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT}, .e_type = ET_DYN, .e_machine = EM_X86_64, .e_version = EV_CURRENT,
        .e_entry = CODE, .e_phoff = sizeof *header, .e_ehsize = sizeof *header, .e_phentsize = sizeof(Elf64_Phdr), .e_phnum = 1};
    *(Elf64_Phdr *)(header + 1) = (Elf64_Phdr){.p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_filesz = PAGE, .p_memsz = PAGE, .p_align = PAGE};
    put_code(image + CODE, 0, 3);
    put_file("/tmp/loader", image, PAGE, 0755);
    void (*const all[2][1])(void) = {{elf}, {script}};
    run_steps(all[kind & 1], 1, steps, 0);
    return 0;
}
