# SPDX-License-Identifier: Apache-2.0 OR MIT
# The functions of unilith/*.h in a program that is linked with the kernel: the return address goes to RCX, where the
# kernel's entries expect it (micro/kernel/src/linked.s), for they write nothing to the program's stack. RCX is free where a function
# has no more than three arguments; a fourth one goes to R10, as with a system call.
.macro raw name
.section .text.unilith_\name,"ax",@progbits
.balign 16
.globl unilith_\name
.type unilith_\name, @function
unilith_\name:
    pop %rcx
    movabs $unilith_raw_\name, %rax
    jmp *%rax
.size unilith_\name, . - unilith_\name
.endm

.macro raw4 name
.section .text.unilith_\name,"ax",@progbits
.balign 16
.globl unilith_\name
.type unilith_\name, @function
unilith_\name:
    mov %rcx, %r10
    pop %rcx
    movabs $unilith_raw_\name, %rax
    jmp *%rax
.size unilith_\name, . - unilith_\name
.endm

raw netdev_count
raw netdev_open
raw netdev_listening
raw netdev_allocate
raw netdev_free
raw netdev_rx_burst
raw netdev_tx_burst
raw netdev_wait

raw blockdev_count
raw blockdev_open
raw blockdev_submit
raw blockdev_poll
raw blockdev_wait

raw shfs_mount
raw shfs_open
raw4 shfs_read
.section .note.GNU-stack,"",@progbits
