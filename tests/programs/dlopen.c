// SPDX-License-Identifier: Apache-2.0 OR MIT
/* dlopen: loads the libraries that are named, asks each for its answer, and says why one cannot be loaded. */
#include <dlfcn.h>
#include <stdio.h>

/* What a plug-in would call. */
int of_program(void)
{
	return 6;
}

int main(int count, char **names)
{
	for (int i = 1; i < count; i++) {
		void *library = dlopen(names[i], RTLD_NOW);
		if (!library) {
			printf("refused: %s\n", dlerror());
			continue;
		}
		int (*answer)(void) = (int (*)(void))dlsym(library, "answer");
		printf("answer %d\n", answer ? answer() : -1);
		printf("closed %d\n", dlclose(library));
	}
	printf("goes on with %d\n", of_program());
	return 0;
}
