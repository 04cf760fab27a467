// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Where a program that is linked into the kernel has its text, and at which level it runs. */
#include <stdio.h>

int main(void)
{
	unsigned short cs;
	__asm__("mov %%cs, %0" : "=r"(cs));
	printf("text at %lx, level %d\n", (unsigned long)main >> 24, cs & 3);
	return 0;
}
