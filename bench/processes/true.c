// SPDX-License-Identifier: Apache-2.0 OR MIT
// The smallest program that execve is measured with.
int main(void)
{
    return 0;
}
