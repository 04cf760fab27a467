// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * returns ADDRESS: where did the kernel continue this program after a page fault, by the variable that it jumps
 * through when it uses no IRET? ADDRESS is the variable's offset in GS, which is the kernel's at CPL 0.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PAGES = 64, PAGE = 4096 };

int main(int argc, char **argv)
{
	unsigned long variable = argc > 1 ? strtoul(argv[1], NULL, 16) : 0, found, fault;
	char *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int jumps = 0;
	if (memory == MAP_FAILED || !variable)
		return 1;
	for (int i = 0; i < PAGES; i++) {
		__asm__ volatile("lea 1f(%%rip), %1\n"
				 "1: movb $1, (%2)\n"
				 "mov %%gs:(%3), %0\n"
				 : "=&r"(found), "=&r"(fault)
				 : "r"(memory + i * PAGE), "r"(variable)
				 : "memory");
		jumps += found == fault;
	}
	/* An interrupt may come between the two instructions, but not each time. */
	puts(jumps > PAGES / 2 ? "jump" : jumps ? "sometimes" : "iret");
	return 0;
}
