// SPDX-License-Identifier: Apache-2.0 OR MIT
/* library: a shared library that uses the C library it was linked with; with PLUGIN, also a function of the program's. */
#include <stdio.h>
#include <stdlib.h>

int of_program(void);

int answer(void)
{
	char *text = malloc(100000);
	int number = 0;

	if (!text)
		return -1;
	snprintf(text, 100000, "%d", 42);
	sscanf(text, "%d", &number);
	free(text);
#ifdef PLUGIN
	number += of_program();
#endif
	return number;
}
