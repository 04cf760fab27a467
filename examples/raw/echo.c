// SPDX-License-Identifier: Apache-2.0 OR MIT
// An echo server without a stack: UDP datagrams to port 7 come back (RFC 862), and ARP is answered.
#include "frames.h"
#include <stdio.h>

#define PORT 7

int main(void) {
    struct unilith_netdev_info device;
    int failed = unilith_netdev_open(0, &device);
    if (failed < 0) {
        fprintf(stderr, "echo: network device 0: %s\n", strerror(-failed));
        return 1;
    }
    unilith_netdev_listening(1, PORT);
    for (;;) {
        struct unilith_packet packets[UNILITH_BURST], answers[UNILITH_BURST];
        int came = unilith_netdev_rx_burst(0, packets, UNILITH_BURST), count = 0;
        if (came == 0)
            unilith_netdev_wait(0, -1);
        for (int i = 0; i < came; i++) {
            unsigned length;
            if (udp_to(&device, &packets[i], PORT, &length))
                answer_udp(&packets[i], length);
            else if (!answer_arp(&device, &packets[i])) {
                unilith_netdev_free(0, &packets[i], 1);
                continue;
            }
            answers[count++] = packets[i];
        }
        // What the device has no room for is dropped, as on any wire.
        int sent = count > 0 ? unilith_netdev_tx_burst(0, answers, (unsigned)count) : 0;
        if (sent < count)
            unilith_netdev_free(0, answers + sent, (unsigned)(count - sent));
    }
}
