// SPDX-License-Identifier: Apache-2.0 OR MIT
// CHECK(condition) ends the run with the condition's text, line and errno when it does not hold.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                    \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            printf("FAILED line %d: %s (errno %d)\n", __LINE__, #condition, errno);         \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)
