// SPDX-License-Identifier: Apache-2.0 OR MIT
// A packet generator and sink. Datagrams to port 9 are counted and dropped (RFC 863), but for two: `count` is answered with how many
// there were, and `send N` with N frames of the smallest size to the sender, each with its number. What they took is printed.
#include "frames.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PORT = 9, SMALLEST = 60, PAYLOAD = SMALLEST - UDP_BYTES };

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

/* Sends `count` frames with the headers of `answer`, in bursts, as fast as the device takes them. */
static void generate(const struct unilith_packet *answer, unsigned count) {
    double begun = now_ns();
    for (unsigned sent = 0; sent < count;) {
        struct unilith_packet burst[UNILITH_BURST];
        unsigned wanted = count - sent < UNILITH_BURST ? count - sent : UNILITH_BURST;
        int given = unilith_netdev_allocate(0, burst, wanted);
        for (int i = 0; i < given; i++) {
            memcpy(burst[i].data, answer->data, UDP_BYTES);
            memset(burst[i].data + UDP_BYTES, 0, PAYLOAD);
            snprintf((char *)burst[i].data + UDP_BYTES, PAYLOAD, "%u", sent + (unsigned)i);
            burst[i].length = SMALLEST;
        }
        int taken = given > 0 ? unilith_netdev_tx_burst(0, burst, (unsigned)given) : 0;
        if (taken < given)
            unilith_netdev_free(0, burst + taken, (unsigned)(given - taken));
        sent += (unsigned)taken;
    }
    printf("sent %u frames, %.0f ns each\n", count, (now_ns() - begun) / count);
    fflush(stdout);
}

int main(void) {
    struct unilith_netdev_info device;
    int failed = unilith_netdev_open(0, &device);
    if (failed < 0) {
        fprintf(stderr, "traffic: network device 0: %s\n", strerror(-failed));
        return 1;
    }
    unilith_netdev_listening(1, PORT);
    unsigned long dropped = 0;
    for (;;) {
        struct unilith_packet packets[UNILITH_BURST];
        int came = unilith_netdev_rx_burst(0, packets, UNILITH_BURST);
        if (came == 0)
            unilith_netdev_wait(0, -1);
        for (int i = 0; i < came; i++) {
            unsigned length;
            char *text = (char *)udp_to(&device, &packets[i], PORT, &length);
            int is_sent = 0;
            if (text && length == 5 && memcmp(text, "count", 5) == 0) {
                answer_udp(&packets[i], (unsigned)snprintf(text, 24, "%lu", dropped));
                is_sent = unilith_netdev_tx_burst(0, &packets[i], 1) == 1;
            } else if (text && length > 5 && length < 16 && memcmp(text, "send ", 5) == 0) {
                text[length] = 0;
                unsigned count = (unsigned)strtoul(text + 5, NULL, 10);
                answer_udp(&packets[i], PAYLOAD);
                generate(&packets[i], count);
            } else if (text)
                dropped++;
            else if (answer_arp(&device, &packets[i]))
                is_sent = unilith_netdev_tx_burst(0, &packets[i], 1) == 1;
            if (!is_sent)
                unilith_netdev_free(0, &packets[i], 1);
        }
    }
}
