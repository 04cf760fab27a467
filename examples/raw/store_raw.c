// SPDX-License-Identifier: Apache-2.0 OR MIT
// The UDP key-value store, third stage: frames of the network device, answered in the buffers they came in.
#include "frames.h"
#include "store.h"

int main(int count, char **words) {
    wanted = count > 1 ? atol(words[1]) : 0;
    struct unilith_netdev_info device;
    int failed = unilith_netdev_open(0, &device);
    if (failed < 0) {
        fprintf(stderr, "store: network device 0: %s\n", strerror(-failed));
        return 1;
    }
    unilith_netdev_listening(1, PORT);
    for (;;) {
        struct unilith_packet packets[UNILITH_BURST], answers[UNILITH_BURST], others[UNILITH_BURST];
        unsigned to_send = 0, to_free = 0, requests = 0;
        int came = unilith_netdev_rx_burst(0, packets, UNILITH_BURST);
        if (came == 0)
            unilith_netdev_wait(0, -1);
        for (int i = 0; i < came; i++) {
            unsigned length;
            uint8_t *request = udp_to(&device, &packets[i], PORT, &length);
            if (request) {
                answer_udp(&packets[i], store_answer(request, length));
                requests++;
            }
            if (request || answer_arp(&device, &packets[i]))
                answers[to_send++] = packets[i];
            else
                others[to_free++] = packets[i];
        }
        int sent = to_send ? unilith_netdev_tx_burst(0, answers, to_send) : 0;
        // What the device has no room for is dropped, as on any wire.
        while ((unsigned)sent < to_send)
            others[to_free++] = answers[sent++];
        if (to_free)
            unilith_netdev_free(0, others, to_free);
        count_answers(requests);
    }
}
