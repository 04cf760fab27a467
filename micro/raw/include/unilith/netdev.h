/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Network devices for programs that are linked with the micro kernel: frames in bursts, without a stack, without copies.
 *
 * Compile with `unilith cc`, run with `unilith run --static`. The same file started on Linux, or without --static, ends
 * at its start with a sentence that says so: these functions are the kernel's.
 *
 * Functions answer a negative error number (of Linux) when they fail. None blocks, but for unilith_netdev_wait. Any thread may
 * call them. Numbers are in the machine's byte order unless something else is said.
 */
#ifndef UNILITH_NETDEV_H
#define UNILITH_NETDEV_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Devices --------------------------------------------------------------------------------------------------- */

/*
 * What the program is told of a device.
 *
 * mac: its Ethernet address. mtu: bytes of the largest IP packet; the largest frame has 14 bytes more.
 * address, netmask, gateway: what the host gave the machine for this device, IPv4 in network byte order as in struct
 * in_addr; 0: nothing. The kernel does not use them: it answers no ARP request, the program does.
 * buffers: packets that the device and the program have together at most.
 * headroom: bytes in front of `data` that a packet must leave free in its buffer when it is sent.
 */
struct unilith_netdev_info {
    uint8_t mac[6];
    uint16_t mtu;
    uint32_t address;
    uint32_t netmask;
    uint32_t gateway;
    uint32_t buffers;
    uint32_t headroom;
};

/*
 * The network devices of the machine. They are numbered from 0.
 */
int unilith_netdev_count(void);

/*
 * Takes a device for the program, until the machine ends, and tells of it.
 * 0, or -ENODEV: there is no such device; -EBUSY: the kernel's TCP/IP has it, because the program calls socket (leave TCP/IP
 * out with `--set net=none`), or it is open already; -ENOMEM: the machine has too little memory for its packets;
 * -EFAULT: info cannot be written.
 */
int unilith_netdev_open(unsigned device, struct unilith_netdev_info *info);

/*
 * Tells the host that the program now serves a port: `unilith run -d` waits for that. is_udp: 1 for UDP, 0 for TCP.
 */
int unilith_netdev_listening(int is_udp, uint16_t port);

/* ---- Packets --------------------------------------------------------------------------------------------------- */

/*
 * An Ethernet frame in a buffer of the kernel's, without preamble and frame check sequence.
 *
 * data: where it begins. Of a packet that was allocated there are UNILITH_PACKET_ROOM bytes from there on and
 * UNILITH_PACKET_HEADROOM in front of it; the program may move data within these, and sets length to the bytes of the frame.
 * buffer: which buffer it is; the program keeps it with the packet and never changes it.
 *
 * Whose it is: a packet belongs to the program from unilith_netdev_allocate or unilith_netdev_rx_burst on, and no longer when
 * unilith_netdev_tx_burst took it or unilith_netdev_free was called. A program that touches it afterwards reads and writes what
 * belongs to the device. A packet that was received may be changed in place and sent.
 *
 * System calls take no pointers into packets (they answer EFAULT): copy what is written to a file or a pipe.
 */
struct unilith_packet {
    uint8_t *data;
    uint32_t length;
    uint16_t buffer;
    uint16_t flags;
};

/*
 * In flags of a received packet: the host vouches for the checksum of its TCP or UDP header, which may not be computed. Only
 * where the machine's link is a packet socket, as in pods.
 */
#define UNILITH_PACKET_CHECKED 1

/* The most packets that one call takes or gives. */
#define UNILITH_BURST 64

/* Bytes of an allocated packet, and in front of it. */
#define UNILITH_PACKET_ROOM 1920
#define UNILITH_PACKET_HEADROOM 112

/*
 * Gives up to count empty packets; how many. Fewer when there is no memory, or device and program have all of them.
 * -EFAULT: packets cannot be written; -EBADF here and below: the device is not open.
 */
int unilith_netdev_allocate(unsigned device, struct unilith_packet *packets, unsigned count);

/*
 * Takes back packets that the program does not send. count, or -EINVAL: one of them is not the program's (freed or sent
 * already); those before it are freed.
 */
int unilith_netdev_free(unsigned device, const struct unilith_packet *packets, unsigned count);

/*
 * Takes up to count packets that came, in their order; how many, 0 when none has come. Each has at least the 14 bytes of an
 * Ethernet header. A device whose buffers the program keeps drops what comes.
 */
int unilith_netdev_rx_burst(unsigned device, struct unilith_packet *packets, unsigned count);

/*
 * Sends packets, in their order; how many were taken from the front, 0 when the device has no room: offer the others again.
 * They are on their way when the call returns; what the host then loses is not reported.
 * -EINVAL: the first packet is not the program's, or data and length are not within its buffer; -EMSGSIZE: it is longer than
 * the device takes, or shorter than an Ethernet header. With such a packet behind others, those are taken.
 */
int unilith_netdev_tx_burst(unsigned device, const struct unilith_packet *packets, unsigned count);

/*
 * Sleeps until a packet has come: 1, or 0 when timeout_ns nanoseconds have passed, or -EINTR after a signal. A negative
 * timeout_ns: however long it takes. A program that calls it when a burst was empty takes no processor time while
 * nothing comes; one that calls unilith_netdev_rx_burst again and again answers soonest.
 */
int unilith_netdev_wait(unsigned device, int64_t timeout_ns);

#ifdef __cplusplus
}
#endif

#endif /* UNILITH_NETDEV_H */
