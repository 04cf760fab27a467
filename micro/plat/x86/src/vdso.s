# SPDX-License-Identifier: Apache-2.0 OR MIT
# The vDSO: a whole ELF file, written by the assembler into one page of the image. The program sees it behind the page of
# `ClockPage` (clock.rs), whose fields are read relative to RIP. Symbols and versions are those of Linux (vdso(7)).

.pushsection .rodata.vdso,"a",@progbits
.balign 4096
.globl unilith_vdso
unilith_vdso:
.set image, unilith_vdso
.set clock_page, image - 4096

    # ELF header
    .byte 0x7f, 0x45, 0x4c, 0x46, 2, 1, 1, 0
    .quad 0
    .short 3, 62                # ET_DYN, EM_X86_64
    .long 1
    .quad 0, 64, 0              # no entry, program headers, no section headers
    .long 0
    .short 64, 56, 2, 64, 0, 0

    # PT_LOAD, read and execute
    .long 1, 5
    .quad 0, 0, 0, vdso_end - image, vdso_end - image, 4096
    # PT_DYNAMIC, read
    .long 2, 4
    .quad dynamic - image, dynamic - image, dynamic - image, dynamic_end - dynamic, dynamic_end - dynamic, 8

dynamic:
    .quad 4, hash - image               # DT_HASH
    .quad 5, names - image              # DT_STRTAB
    .quad 6, symbols - image            # DT_SYMTAB
    .quad 10, names_end - names         # DT_STRSZ
    .quad 11, 24                        # DT_SYMENT
    .quad 14, soname - names            # DT_SONAME
    .quad 0x6ffffff0, versions - image  # DT_VERSYM
    .quad 0x6ffffffc, definitions - image # DT_VERDEF
    .quad 0x6ffffffd, 2                 # DT_VERDEFNUM
    .quad 0, 0
dynamic_end:

.set SYMBOLS, 10
    # One bucket, with all symbols in a chain.
hash:
    .long 1, SYMBOLS + 1, 1, 0
    .set n, 2
.rept SYMBOLS - 1
    .long n
    .set n, n + 1
.endr
    .long 0

.macro symbol name, kind, start, end
    .long \name - names
    .byte \kind, 0              # binding and type, default visibility
    .short 1                    # defined
    .quad \start - image, \end - \start
.endm
.balign 8
.set GLOBAL_FUNCTION, 0x12
.set WEAK_FUNCTION, 0x22
symbols:
    .quad 0, 0, 0
    symbol name_clock_gettime, GLOBAL_FUNCTION, clock_gettime, clock_gettime_end
    symbol name_gettimeofday, GLOBAL_FUNCTION, gettimeofday, gettimeofday_end
    symbol name_time, GLOBAL_FUNCTION, time, time_end
    symbol name_getcpu, GLOBAL_FUNCTION, getcpu, getcpu_end
    symbol name_clock_getres, GLOBAL_FUNCTION, clock_getres, clock_getres_end
    symbol name_clock_gettime + 7, WEAK_FUNCTION, clock_gettime, clock_gettime_end
    symbol name_gettimeofday + 7, WEAK_FUNCTION, gettimeofday, gettimeofday_end
    symbol name_time + 7, WEAK_FUNCTION, time, time_end
    symbol name_getcpu + 7, WEAK_FUNCTION, getcpu, getcpu_end
    symbol name_clock_getres + 7, WEAK_FUNCTION, clock_getres, clock_getres_end

    # The version of each symbol: the second definition.
versions:
    .short 0
.rept SYMBOLS
    .short 2
.endr
.balign 4
definitions:
    .short 1, 1, 1, 1           # version 1, the file itself, index 1, one name
    .long 0x0deebfa1, 20, 28    # hash of the name; where the name and the next definition are
    .long soname - names, 0
    .short 1, 0, 2, 1
    .long 0x03ae75f6, 20, 0
    .long name_version - names, 0

names:
    .byte 0
soname:             .asciz "linux-vdso.so.1"
name_version:       .asciz "LINUX_2.6"
name_clock_gettime: .asciz "__vdso_clock_gettime"
name_gettimeofday:  .asciz "__vdso_gettimeofday"
name_time:          .asciz "__vdso_time"
name_getcpu:        .asciz "__vdso_getcpu"
name_clock_getres:  .asciz "__vdso_clock_getres"
names_end:

# Nanoseconds of the monotonic clock to RAX and of the wall clock to R9. Changes RCX, RDX, R8 and R10.
.balign 16
now:
    mov r8d, [rip + clock_page + {SEQUENCE}]
    test r8d, 1
    jnz busy
    # The counter must not be read before the fields (Intel SDM volume 2, RDTSC).
.globl unilith_vdso_ordered
unilith_vdso_ordered:
    lfence
    rdtsc
    shl rdx, 32
    or rax, rdx
    sub rax, [rip + clock_page + {BASE_TSC}]
    mul qword ptr [rip + clock_page + {RATE}]
    shrd rax, rdx, 32
    add rax, [rip + clock_page + {BASE_NS}]
    mov r9, [rip + clock_page + {WALL_NS}]
    cmp r8d, [rip + clock_page + {SEQUENCE}]
    jne now
    add r9, rax
    ret

    # Somebody changes the clock, or the process is in a time namespace of its own, whose clocks the kernel knows: clock_gettime asks it
    # for the clock that it is to read, the others for the wall clock.
busy:
    cmp dword ptr [rip + clock_page + {ASKS}], 0
    je now
    lea rcx, [rip + clock_gettime_reads]
    cmp rcx, [rsp]
    jne 1f
    add rsp, 8
    jmp clock_gettime_asks
1:  push rdi
    push rsi
    sub rsp, 16
    xor edi, edi
    mov rsi, rsp
    mov eax, 228
    syscall
    imul r9, [rsp], 1000000000
    add r9, [rsp + 8]
    add rsp, 16
    pop rsi
    pop rdi
    ret

# Cuts the nanoseconds in RAX into seconds (RDX) and nanoseconds (RAX). Changes RCX. A division is dearer than its reciprocal:
# n / (2^9 * 5^9), the second step by ceil(2^75 / 5^9), which is exact for all n (Granlund and Montgomery, 1994, 4.2).
seconds:
    mov rcx, rax
    shr rax, 9
    movabs rdx, 0x44b82fa09b5a53
    mul rdx
    shr rdx, 11
    imul rax, rdx, 1000000000
    sub rcx, rax
    mov rax, rcx
    ret

# int clock_gettime(clockid_t, struct timespec *)
.balign 16
clock_gettime:
    cmp edi, 7
    ja 2f
    mov ecx, 0xf3               # realtime, monotonic, raw, both coarse, boottime
    bt ecx, edi
    jnc 2f
    call now
clock_gettime_reads:
    test edi, edi
    jz 1f
    cmp edi, 5
    jne 3f
1:  mov rax, r9
3:  call seconds
    mov [rsi], rdx
    mov [rsi + 8], rax
    xor eax, eax
    ret
2:
clock_gettime_asks:
    mov eax, 228
    syscall
    ret
clock_gettime_end:

# int gettimeofday(struct timeval *, struct timezone *); both may be null
.balign 16
gettimeofday:
    test rdi, rdi
    jz 1f
    call now
    mov rax, r9
    call seconds
    mov [rdi], rdx
    imul rax, rax, 274877907    # by ceil(2^38 / 1000): exact below 10^9
    shr rax, 38
    mov [rdi + 8], rax
1:  test rsi, rsi
    jz 2f
    mov qword ptr [rsi], 0      # no time zone: minutes west and daylight saving are 0
2:  xor eax, eax
    ret
gettimeofday_end:

# time_t time(time_t *); may be null
.balign 16
time:
    call now
    mov rax, r9
    call seconds
    mov rax, rdx
    test rdi, rdi
    jz 1f
    mov [rdi], rax
1:  ret
time_end:

# int getcpu(unsigned *, unsigned *, void *): one node. GS base is the kernel's while the program runs as well.
.balign 16
getcpu:
    test rdi, rdi
    jz 1f
    mov eax, gs:[{GS_INDEX}]
    mov [rdi], eax
1:  test rsi, rsi
    jz 2f
    mov dword ptr [rsi], 0
2:  xor eax, eax
    ret
getcpu_end:

# int clock_getres(clockid_t, struct timespec *)
.balign 16
clock_getres:
    mov eax, 229
    syscall
    ret
clock_getres_end:
vdso_end:
# An error here: it does not fit its page.
.org unilith_vdso + 4096
.popsection
