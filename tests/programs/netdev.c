// SPDX-License-Identifier: Apache-2.0 OR MIT
// What unilith/netdev.h promises of bad calls and of whom a packet belongs to. `with-socket`: beside TCP/IP.
#include "check.h"
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unilith/netdev.h>
#include <unistd.h>

#ifdef WITH_SOCKET
#include <sys/socket.h>
#endif

static void nothing(int number) { (void)number; }

int main(void) {
    struct unilith_netdev_info info, again;
    struct unilith_packet packets[UNILITH_BURST], all[1024], one;
    CHECK(unilith_netdev_count() == 1);
#ifdef WITH_SOCKET
    CHECK(socket(AF_INET, SOCK_DGRAM, 0) >= 0);
    printf("open: %s\n", strerror(-unilith_netdev_open(0, &info)));
    return 0;
#endif
    CHECK(unilith_netdev_open(1, &info) == -ENODEV);
    CHECK(unilith_netdev_rx_burst(0, packets, 1) == -EBADF);
    CHECK(unilith_netdev_wait(0, 0) == -EBADF);
    CHECK(unilith_netdev_open(0, (struct unilith_netdev_info *)8) == -EFAULT);
    CHECK(unilith_netdev_open(0, &info) == 0);
    CHECK(unilith_netdev_open(0, &again) == -EBUSY);
    CHECK(info.mtu >= 576 && (info.mac[0] & 1) == 0 && info.address != 0 && info.netmask != 0 && info.headroom <= 16);

    // Packets are the program's once, and there are as many as is said.
    unsigned count = 0;
    int given;
    while (count < 1024 && (given = unilith_netdev_allocate(0, all + count, 1024 - count)) > 0)
        count += (unsigned)given;
    CHECK(count > 128 && count <= info.buffers);
    for (unsigned i = 0; i < count; i++)
        memset(all[i].data - UNILITH_PACKET_HEADROOM, (int)i, UNILITH_PACKET_HEADROOM + UNILITH_PACKET_ROOM);
    for (unsigned i = 0; i < count; i++)
        CHECK(all[i].data[0] == (uint8_t)i && all[i].data[UNILITH_PACKET_ROOM - 1] == (uint8_t)i);
    CHECK(unilith_netdev_free(0, all, count) == (int)count);
    CHECK(unilith_netdev_free(0, all, 1) == -EINVAL);
    CHECK(unilith_netdev_allocate(0, packets, 2) == 2);
    CHECK(unilith_netdev_allocate(0, (struct unilith_packet *)8, 1) == -EFAULT);

    // What may not be sent stays the program's.
    for (int i = 0; i < 2; i++) {
        packets[i].length = 60;
        memset(packets[i].data, 0xff, 12); // to all, from nobody
        memset(packets[i].data + 12, 0x88, 48);
    }
    one = packets[0];
    one.length = 13;
    CHECK(unilith_netdev_tx_burst(0, &one, 1) == -EMSGSIZE);
    one.length = info.mtu + 15u;
    CHECK(unilith_netdev_tx_burst(0, &one, 1) == (info.mtu + 15 > UNILITH_PACKET_ROOM ? -EINVAL : -EMSGSIZE));
    one = packets[0];
    one.data += UNILITH_PACKET_ROOM - 59;
    CHECK(unilith_netdev_tx_burst(0, &one, 1) == -EINVAL);
    one.data = (uint8_t *)&info;
    CHECK(unilith_netdev_tx_burst(0, &one, 1) == -EINVAL);
    one = packets[0];
    one.buffer = 60000;
    CHECK(unilith_netdev_tx_burst(0, &one, 1) == -EINVAL);
    CHECK(unilith_netdev_tx_burst(0, (struct unilith_packet *)8, 1) == -EFAULT);
    struct unilith_packet twice[3] = { packets[0], packets[0], packets[1] };
    CHECK(unilith_netdev_tx_burst(0, twice, 3) == 1);
    CHECK(unilith_netdev_free(0, packets, 1) == -EINVAL);
    packets[1].data -= UNILITH_PACKET_HEADROOM;
    memset(packets[1].data, 0xff, 60);
    CHECK(unilith_netdev_tx_burst(0, packets + 1, 1) == 1);

    // The device gives every buffer back: more go through than there are.
    for (int sent = 0; sent < 3000;) {
        if (unilith_netdev_allocate(0, packets, 1) == 0)
            continue;
        packets[0].length = 60;
        memset(packets[0].data, 0xff, 60);
        if (unilith_netdev_tx_burst(0, packets, 1) == 1)
            sent++;
        else
            CHECK(unilith_netdev_free(0, packets, 1) == 1);
    }

    // A wait ends with its time and with a signal. Packets of the host's may come.
    int waited;
    while ((waited = unilith_netdev_wait(0, 1000000)) == 1)
        while ((given = unilith_netdev_rx_burst(0, packets, UNILITH_BURST)) > 0)
            CHECK(unilith_netdev_free(0, packets, (unsigned)given) == given);
    CHECK(waited == 0);
    signal(SIGALRM, nothing);
    struct itimerval timer = { .it_value = { 0, 50000 }, .it_interval = { 0, 50000 } };
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    while ((waited = unilith_netdev_wait(0, -1)) == 1)
        while ((given = unilith_netdev_rx_burst(0, packets, UNILITH_BURST)) > 0)
            CHECK(unilith_netdev_free(0, packets, (unsigned)given) == given);
    CHECK(waited == -EINTR);
    puts("all of it");
    return 0;
}
