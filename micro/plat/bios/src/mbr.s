# SPDX-License-Identifier: Apache-2.0 OR MIT
# The code of a disk's first sector (440 bytes; behind it is the partition table). The BIOS loads it to 0x7c00 and enters it in 16 bits
# with the disk's number in DL. It reads the loader by the BIOS's extensions (EDD-3, INT 13h AH=42h), 32 KiB at a time. AT&T syntax.

.pushsection .mbr,"awx",@progbits
.code16
    cli
    xorw %ax, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movw $0x7c00, %sp
    sti
    cld
    ljmp $0, $1f
1:  movb %dl, mbr_drive
    movb $0x41, %ah
    movw $0x55aa, %bx
    int $0x13
    movw $mbr_old, %si
    jc mbr_say
    cmpw $0xaa55, %bx
    jne mbr_say
    testb $1, %cl               # the calls with packets
    jz mbr_say
2:  movw mbr_sectors, %ax
    testw %ax, %ax
    jz 4f
    cmpw $64, %ax
    jbe 3f
    movw $64, %ax
3:  movw %ax, mbr_count
    movb $0x42, %ah
    movb mbr_drive, %dl
    movw $mbr_packet, %si
    int $0x13
    movw $mbr_unread, %si
    jc mbr_say
    movw mbr_count, %ax
    subw %ax, mbr_sectors
    addw %ax, mbr_block
    shlw $5, %ax                # paragraphs of 16 bytes
    addw %ax, mbr_segment
    jmp 2b
4:  movb mbr_drive, %dl
    ljmp $0, ${loader}
.globl unilith_bios_say
unilith_bios_say:
mbr_say:
    lodsb
    testb %al, %al
    jz 8f
    # Where the screen's interrupt is not that of a video ROM there is no screen, or SeaBIOS shows it at the serial port itself.
    cmpb $0xe0, 0x43
    jae 5f
    movb $0x0e, %ah
    movw $7, %bx
    pushw %ax
    int $0x10
    popw %ax
5:  movb %al, %ah
    xorw %cx, %cx
    movw $0x3fd, %dx            # the first serial port's status
6:  inb %dx, %al
    testb $0x20, %al
    loopz 6b
    movb %ah, %al
    movb $0xf8, %dl
    outb %al, %dx
    jmp mbr_say
8:  hlt
    jmp 8b
mbr_old:
    .asciz "unilith: this BIOS reads no disks by LBA; boot by UEFI\r\n"
mbr_unread:
    .asciz "unilith: the disk cannot be read\r\n"
mbr_drive:
    .byte 0
.balign 4
mbr_packet:
    .byte 16, 0
mbr_count:
    .word 0
    .word 0
mbr_segment:
    .word {loader} >> 4
mbr_block:
    .quad {first_block}
# The host writes how long the loader is.
.org 438
mbr_sectors:
    .word 0
.popsection
