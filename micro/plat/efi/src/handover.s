# SPDX-License-Identifier: Apache-2.0 OR MIT
# From firmware's long mode to the kernel's PVH entry: 32 bits, no paging, EBX = start information. Copied to a page below
# 4 GiB, where it runs: it may refer to nothing but itself. AT&T syntax: the assembler's Intel syntax has no 32-bit mode.
# EDI = the kernel's entry, ESI = the start information.

.pushsection .text.handover,"ax",@progbits
.balign 16
.globl unilith_efi_handover, unilith_efi_handover_end
unilith_efi_handover:
    cli
    # Firmware's timer is still connected to the old interrupt controllers; the kernel uses the APICs.
    movb $0xff, %al
    outb %al, $0xa1
    outb %al, $0x21
    leaq gdt(%rip), %rax
    movq %rax, gdt_pointer+2(%rip)
    lgdt gdt_pointer(%rip)
    leaq 1f(%rip), %rax
    pushq $8
    pushq %rax
    lretq
.code32
1:  movl $16, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    movl %eax, %fs
    movl %eax, %gs
    movl %cr0, %eax
    andl $0x7fffffff, %eax      # PG
    movl %eax, %cr0
    movl $0xc0000080, %ecx      # EFER
    rdmsr
    andl $0xfffffeff, %eax      # LME
    wrmsr
    xorl %eax, %eax
    movl %eax, %cr4
    movl %esi, %ebx
    jmp *%edi
.code64
.balign 8
gdt:
    .quad 0
    .quad 0x00cf9b000000ffff    # 0x08: 32-bit code, all 4 GiB
    .quad 0x00cf93000000ffff    # 0x10: data
gdt_pointer:
    .word 23
    .quad 0
unilith_efi_handover_end:
.popsection
