# SPDX-License-Identifier: Apache-2.0 OR MIT
# The functions of unilith/netdev.h in a program that is linked with the kernel: the return address goes to RCX, where the
# kernel's entries expect it (micro/kernel/src/linked.s), for they write nothing to the program's stack. No function has more than
# three arguments, so RCX is free.
.macro raw name
.section .text.unilith_netdev_\name,"ax",@progbits
.balign 16
.globl unilith_netdev_\name
.type unilith_netdev_\name, @function
unilith_netdev_\name:
    pop %rcx
    movabs $unilith_raw_\name, %rax
    jmp *%rax
.size unilith_netdev_\name, . - unilith_netdev_\name
.endm

raw count
raw open
raw listening
raw allocate
raw free
raw rx_burst
raw tx_burst
raw wait
.section .note.GNU-stack,"",@progbits
