# SPDX-License-Identifier: Apache-2.0 OR MIT
# The loader's first instructions, in 16 bits, on to 64 bits and the code in Rust, and the way back that calls of the BIOS take
# (Intel SDM 3A, 11.8.5 and 11.9). AT&T syntax: the assembler's Intel syntax has no 16-bit mode that can be relied on.

.pushsection .head,"awx",@progbits
.code16
.globl unilith_bios_start, unilith_bios_place, unilith_bios_call, unilith_bios_registers, unilith_bios_packet
unilith_bios_start:
    jmp 1f
.balign 8
# What is written by the host: `Place` in lib.rs.
unilith_bios_place:
    .fill 4, 8, 0
1:  cli
    cld
    xorw %ax, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movl $0x7c00, %esp
    movb %dl, drive
    # The 21st address line: by the BIOS, and by the port of newer chip sets.
    movw $0x2401, %ax
    sti
    int $0x15
    cli
    inb $0x92, %al
    testb $2, %al
    jnz 2f
    orb $2, %al
    andb $0xfe, %al
    outb %al, $0x92
2:  movl $0x80000000, %eax
    cpuid
    cmpl $0x80000001, %eax
    jb no_long_mode
    movl $0x80000001, %eax
    cpuid
    btl $29, %edx
    jnc no_long_mode
    lgdtw low_gdt_pointer
    movl %cr0, %eax
    orb $1, %al
    movl %eax, %cr0
    ljmpl $24, $3f
no_long_mode:
    movw $no_64, %si
    sti
    ljmp $0, $unilith_bios_say
no_64:
    .asciz "unilith: this processor has no 64-bit mode\r\n"

.code32
3:  movl $16, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movl $unilith_bios_bss, %edi
    movl $unilith_bios_bss_end, %ecx
    subl %edi, %ecx
    xorl %eax, %eax
    rep stosb
    # The first 4 GiB in pages of 2 MiB, each at its own address.
    movl $unilith_bios_tables, %ebx
    leal 0x1003(%ebx), %eax
    movl %eax, (%ebx)
    leal 0x2003(%ebx), %eax
    leal 0x1000(%ebx), %edi
    movl $4, %ecx
4:  movl %eax, (%edi)
    addl $0x1000, %eax
    addl $8, %edi
    loop 4b
    movl $0x83, %eax            # present, writable, large
    leal 0x2000(%ebx), %edi
    movl $2048, %ecx
5:  movl %eax, (%edi)
    addl $0x200000, %eax
    addl $8, %edi
    loop 5b
    movl $first, %ebp
# To 64 bits, and there to EBP.
to_long_mode:
    movl $0x620, %eax           # PAE; OSFXSR and OSXMMEXCPT, for the compiler uses SSE
    movl %eax, %cr4
    movl $unilith_bios_tables, %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx      # EFER
    rdmsr
    orl $0x100, %eax            # LME
    wrmsr
    movl %cr0, %eax
    andl $0xfffffffb, %eax      # EM
    orl $0x80000003, %eax       # PG, MP, PE
    movl %eax, %cr0
    ljmpl $8, $6f
.code64
6:  movl %ebp, %ebp
    jmp *%rbp
first:
    leaq unilith_bios_stack_end(%rip), %rsp
    xorl %ebp, %ebp
    movzbl drive(%rip), %edi
    call unilith_bios_main

# Calls interrupt EDI of the BIOS with the registers of `unilith_bios_registers`, and leaves there what it answers. Firmware has
# interrupts while it runs, the loader has none.
unilith_bios_call:
    pushq %rbx
    pushq %rbp
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, stack(%rip)
    movb %dil, number(%rip)
    lidt real_interrupts(%rip)
    leaq 7f(%rip), %rax
    pushq $24
    pushq %rax
    lretq
.code32
7:  movl $16, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movl %cr0, %eax
    andl $0x7fffffff, %eax      # PG
    movl %eax, %cr0
    movl $0xc0000080, %ecx      # EFER
    rdmsr
    andl $0xfffffeff, %eax      # LME
    wrmsr
    xorl %eax, %eax
    movl %eax, %cr4
    ljmpl $32, $8f
.code16
8:  movw $40, %ax               # segments of 64 KiB
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movw %ax, %fs
    movw %ax, %gs
    movl %cr0, %eax
    andb $0xfe, %al             # PE
    movl %eax, %cr0
    ljmp $0, $9f
9:  xorw %ax, %ax
    movw %ax, %ds
    movw %ax, %fs
    movw %ax, %gs
    movw %ax, %ss
    # The registers lie as POPAL takes them.
    movl $unilith_bios_registers, %esp
    popw %es
    popw %ax
    popal
    movl $0x7c00, %esp
    sti
    .byte 0xcd                  # INT
number:
    .byte 0
    cli
    cld
    pushfl
    pushal
    pushw %es
    xorw %ax, %ax
    movw %ax, %ds
    movw %ax, %es
    # What was pushed lies as the registers do, but for the flags, which are for the half word behind ES.
    movw %sp, %si
    movw $unilith_bios_registers, %di
    movsw
    addw $2, %di
    movw $16, %cx
    rep movsw
    lodsw
    movw %ax, unilith_bios_registers+2
    lgdtw low_gdt_pointer
    movl %cr0, %eax
    orb $1, %al
    movl %eax, %cr0
    ljmpl $24, $10f
.code32
10: movl $16, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movl $11f, %ebp
    jmp to_long_mode
.code64
11: movq stack(%rip), %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbp
    popq %rbx
    retq

.balign 8
low_gdt:
    .quad 0
    .quad 0x00af9b000000ffff    # 0x08: 64-bit code
    .quad 0x00cf93000000ffff    # 0x10: data, all 4 GiB
    .quad 0x00cf9b000000ffff    # 0x18: 32-bit code
    .quad 0x00009b000000ffff    # 0x20: 16-bit code, 64 KiB
    .quad 0x000093000000ffff    # 0x28: data, 64 KiB
low_gdt_pointer:
    .word 47
    .quad low_gdt
real_interrupts:
    .word 0x3ff
    .quad 0
.balign 8
stack:
    .quad 0
# What calls for disks read and write: they take its address in SI, below 64 KiB.
unilith_bios_packet:
    .fill 32, 1, 0
# `Registers` in firmware.rs.
unilith_bios_registers:
    .fill 9, 4, 0
drive:
    .byte 0
.popsection

.pushsection .bss.tables,"aw",@nobits
.balign 4096
unilith_bios_tables:
    .skip 6 * 4096
    .skip 65536
unilith_bios_stack_end:
.popsection
