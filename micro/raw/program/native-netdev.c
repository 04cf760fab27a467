// SPDX-License-Identifier: Apache-2.0 OR MIT
// The functions of unilith/netdev.h in a program that was not linked with the kernel: it ends before main, for there is no
// device that it could have.
#include <unilith/netdev.h>
#include <errno.h>
#include <unistd.h>

#define EX_CONFIG 78

__attribute__((constructor)) static void refuse(void) {
    static const char text[] = "this program drives a network device itself (unilith/netdev.h), so its kernel must be linked "
                               "to it: unilith run --static PROGRAM\n";
    ssize_t written = write(2, text, sizeof text - 1);
    (void)written;
    _exit(EX_CONFIG);
}

int unilith_netdev_count(void) { return 0; }

int unilith_netdev_open(unsigned device, struct unilith_netdev_info *info) {
    (void)device, (void)info;
    return -ENODEV;
}

int unilith_netdev_listening(int is_udp, uint16_t port) {
    (void)is_udp, (void)port;
    return -ENODEV;
}

int unilith_netdev_allocate(unsigned device, struct unilith_packet *packets, unsigned count) {
    (void)device, (void)packets, (void)count;
    return -EBADF;
}

int unilith_netdev_free(unsigned device, const struct unilith_packet *packets, unsigned count) {
    (void)device, (void)packets, (void)count;
    return -EBADF;
}

int unilith_netdev_rx_burst(unsigned device, struct unilith_packet *packets, unsigned count) {
    (void)device, (void)packets, (void)count;
    return -EBADF;
}

int unilith_netdev_tx_burst(unsigned device, const struct unilith_packet *packets, unsigned count) {
    (void)device, (void)packets, (void)count;
    return -EBADF;
}

int unilith_netdev_wait(unsigned device, int64_t timeout_ns) {
    (void)device, (void)timeout_ns;
    return -EBADF;
}
