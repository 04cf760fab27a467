/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Ends by SIGSEGV two functions deep. */
__attribute__((noinline)) static int reads_through_null(volatile int *p)
{
    return *p + 1;
}

int main(void)
{
    return reads_through_null(0) + 1;
}
