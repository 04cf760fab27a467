# SPDX-License-Identifier: Apache-2.0 OR MIT
# From the PVH entry (32-bit, paging off, EBX = start info; Xen "HVM direct boot ABI") to `unilith_pc_main` in long
# mode at the kernel's own addresses. AT&T syntax: the assembler's Intel syntax has no 32-bit mode.

.set BASE, 0xffffffff80000000

.pushsection .note.Xen,"a",@note
.balign 4
    .long 4                     # length of the name
    .long 8                     # length of the descriptor: 8 bytes, or QEMU ignores the note
    .long 18                    # XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
.balign 4
    .quad unilith_start - BASE
.popsection

.pushsection .bss.page_tables,"aw",@nobits
.balign 4096
.globl unilith_pml4, unilith_pdpt_physical, unilith_pdpt_kernel, unilith_pd_kernel
unilith_pml4:          .skip 4096
unilith_pdpt_physical: .skip 4096  # the physical map, and the identity map until the kernel is at its addresses
unilith_pdpt_kernel:   .skip 4096
unilith_pd_kernel:     .skip 4096
pd_physical:           .skip 4096 * 4 # first 4 GiB in 2 MiB pages, where the processor has no 1 GiB pages
.popsection

# Stacks of the boot processor. Below each lies a page that `paging` leaves unmapped.
.pushsection .bss.stacks,"aw",@nobits
.balign 4096
    .skip 4096
    .skip {STACK_BOOT}
.globl unilith_stack_boot_top
unilith_stack_boot_top:
    .skip 4096
    .skip {STACK_IST}
.globl unilith_stack_interrupt_top
unilith_stack_interrupt_top:
    .skip 4096
    .skip {STACK_IST}
.globl unilith_stack_exception_top
unilith_stack_exception_top:
    .skip 4096
    .skip {STACK_IST}
.globl unilith_stack_fatal_top
unilith_stack_fatal_top:
.popsection

.pushsection .boot,"ax",@progbits
.code32
.globl unilith_start
unilith_start:
    cld
    movl %ebx, %edi
    # The time stamp of the first instruction, for the report of how long the kernel took.
    rdtsc
    movl %eax, (unilith_first_tsc - BASE)
    movl %edx, (unilith_first_tsc - BASE + 4)

    movl $(unilith_pdpt_physical - BASE + 3), %eax
    movl %eax, (unilith_pml4 - BASE)
    movl %eax, (unilith_pml4 - BASE + 256 * 8)
    movl $(unilith_pdpt_kernel - BASE + 3), (unilith_pml4 - BASE + 511 * 8)
    movl $(unilith_pd_kernel - BASE + 3), (unilith_pdpt_kernel - BASE + 510 * 8)
    # The kernel image: 2 MiB pages for now, cut by `paging`. 16 MiB are plenty.
    xorl %ecx, %ecx
1:  movl %ecx, %eax
    shll $21, %eax
    orl $0x83, %eax
    movl %eax, (unilith_pd_kernel - BASE)(,%ecx,8)
    incl %ecx
    cmpl $8, %ecx
    jne 1b

    movl $0x80000000, %eax
    cpuid
    cmpl $0x80000001, %eax
    jb unsupported
    movl $0x80000001, %eax
    cpuid
    testl $(1 << 29), %edx      # long mode
    jz unsupported
    testl $(1 << 20), %edx      # no-execute
    jz unsupported
    testl $(1 << 26), %edx      # 1 GiB pages
    jz 3f

    xorl %ecx, %ecx
2:  movl %ecx, %eax
    movl %ecx, %edx
    shll $30, %eax
    shrl $2, %edx
    orl $0x83, %eax
    movl %eax, (unilith_pdpt_physical - BASE)(,%ecx,8)
    movl %edx, (unilith_pdpt_physical - BASE + 4)(,%ecx,8)
    incl %ecx
    cmpl $512, %ecx
    jne 2b
    jmp 5f

3:  xorl %ecx, %ecx
4:  movl %ecx, %eax
    shll $21, %eax
    orl $0x83, %eax
    movl %eax, (pd_physical - BASE)(,%ecx,8)
    incl %ecx
    cmpl $2048, %ecx
    jne 4b
    movl $(pd_physical - BASE + 3), (unilith_pdpt_physical - BASE)
    movl $(pd_physical - BASE + 0x1003), (unilith_pdpt_physical - BASE + 8)
    movl $(pd_physical - BASE + 0x2003), (unilith_pdpt_physical - BASE + 16)
    movl $(pd_physical - BASE + 0x3003), (unilith_pdpt_physical - BASE + 24)

5:  movl $0x6a0, %eax           # CR4: PAE, PGE, OSFXSR, OSXMMEXCPT
    movl %eax, %cr4
    movl $(unilith_pml4 - BASE), %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx      # EFER
    rdmsr
    orl $0x901, %eax            # SCE, LME, NXE
    wrmsr
    movl $0x80010033, %eax      # CR0: PG, WP, NE, ET, MP, PE
    movl %eax, %cr0
    lgdt (gdt_pointer - BASE)
    ljmp $8, $(6f - BASE)

    # A processor without 64-bit mode or no-execute pages: say so on the serial port and stop.
unsupported:
    movl $(no_long_mode - BASE), %esi
    movw $0x3f8, %dx
7:  lodsb
    testb %al, %al
    jz 8f
    outb %al, %dx
    jmp 7b
8:  movw $0xf4, %dx
    movl $1, %eax
    outl %eax, %dx
9:  hlt
    jmp 9b
no_long_mode:
    .asciz "unilith: this processor has no 64-bit mode or no execute-disable; give the machine a better one (-cpu max)\n"

.code64
6:  movabsq $1f, %rax
    jmp *%rax
1:  leaq unilith_stack_boot_top(%rip), %rsp
    xorl %eax, %eax
    movl %eax, %ss
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %fs
    movl %eax, %gs
    xorl %ebp, %ebp
    movl %edi, %edi
    call unilith_pc_main
    ud2
.popsection

.pushsection .data,"aw",@progbits
.balign 16
.globl unilith_gdt
unilith_gdt:
    .quad 0
    .quad 0x00af9b000000ffff    # 0x08: 64-bit code, ring 0
    .quad 0x00cf93000000ffff    # 0x10: data, ring 0
    .quad 0, 0                  # 0x18: the task-state segment
gdt_pointer:
    .word 39
    .long unilith_gdt - BASE
.balign 8
.globl unilith_first_tsc
unilith_first_tsc: .quad 0
.popsection

.if {SMP}
# ---- Processors but the first: from the page below 1 MiB that a message names, in real mode, to the kernel. What is absolute
# here is where the code is copied to.
.pushsection .rodata.unilith_start_code,"a",@progbits
.set AT, {START_PAGE}
.balign 16
.globl unilith_start_code, unilith_start_words, unilith_start_code_end
.code16
unilith_start_code:
    cli
    cld
    xorl %eax, %eax
    movw %ax, %ds
    lgdtl AT + (start_pointer - unilith_start_code)
    movl $0x620, %eax           # CR4: PAE, OSFXSR, OSXMMEXCPT; global pages only in the kernel's own tables
    movl %eax, %cr4
    movl $(AT + 0x1000), %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx      # EFER
    rdmsr
    orl $0x901, %eax            # SCE, LME, NXE
    wrmsr
    movl $0x80010033, %eax      # CR0: PG, WP, NE, ET, MP, PE
    movl %eax, %cr0
    ljmpl $8, $(AT + (start_long - unilith_start_code))
.code64
start_long:
    xorl %eax, %eax
    movl %eax, %ss
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %fs
    movl %eax, %gs
    movl $(AT + (unilith_start_words - unilith_start_code)), %esi
    movq 8(%rsi), %rsp
    movq 24(%rsi), %rdi
    movq (%rsi), %rax
    jmp *16(%rsi)
.balign 8
start_segments:
    .quad 0
    .quad 0x00af9b000000ffff    # 0x08: 64-bit code, ring 0
start_pointer:
    .word 15
    .long AT + (start_segments - unilith_start_code)
.balign 8
    # Root, stack, entry, attempt (`Start`).
unilith_start_words:
    .quad 0, 0, 0, 0
unilith_start_code_end:
.popsection

.pushsection .text.unilith_processor_start,"ax",@progbits
.globl unilith_processor_start
unilith_processor_start:
    movq %rax, %cr3
    movq %cr4, %rax
    orq $0x80, %rax             # PGE
    movq %rax, %cr4
    xorl %ebp, %ebp
    call unilith_pc_processor
    ud2
.popsection
.endif
