/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Ethernet, ARP, IPv4 and UDP as far as these examples need them: requests are answered in the packet that they came in.
 */
#ifndef FRAMES_H
#define FRAMES_H

#include <stdint.h>
#include <string.h>
#include <unilith/netdev.h>

/* Offsets in a frame (RFC 826, RFC 791 without options, RFC 768), and bytes up to the end of each header. */
enum {
    ETHERNET_TO = 0, ETHERNET_FROM = 6, ETHERNET_TYPE = 12, ETHERNET_BYTES = 14,
    ARP_OPERATION = 20, ARP_SENDER = 22, ARP_TARGET = 32, ARP_BYTES = 42,
    IP_LENGTH = 16, IP_FRAGMENT = 20, IP_PROTOCOL = 23, IP_SUM = 24, IP_FROM = 26, IP_TO = 30, IP_BYTES = 34,
    UDP_FROM = 34, UDP_TO = 36, UDP_LENGTH = 38, UDP_SUM = 40, UDP_BYTES = 42,
};

static inline uint16_t get16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }

static inline void put16(uint8_t *at, uint16_t value) {
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static inline void swap(uint8_t *one, uint8_t *other, unsigned length) {
    uint8_t kept[8];
    memcpy(kept, one, length);
    memcpy(one, other, length);
    memcpy(other, kept, length);
}

/* Sets the total length of an IPv4 packet, and its checksum to what that makes of it (RFC 1624, equation 3). */
static inline void set_ip_length(uint8_t *frame, uint16_t length) {
    uint32_t sum = (uint16_t)~get16(frame + IP_SUM) + (uint32_t)(uint16_t)~get16(frame + IP_LENGTH) + length;
    sum = (sum & 0xffff) + (sum >> 16);
    put16(frame + IP_SUM, (uint16_t)~(sum + (sum >> 16)));
    put16(frame + IP_LENGTH, length);
}

/* Makes of an ARP request for the device's address its answer; 0 for any other frame. */
static inline int answer_arp(const struct unilith_netdev_info *device, struct unilith_packet *packet) {
    uint8_t *frame = packet->data;
    if (packet->length < ARP_BYTES || get16(frame + ETHERNET_TYPE) != 0x0806 || get16(frame + ARP_OPERATION) != 1 ||
        memcmp(frame + ARP_TARGET + 6, &device->address, 4) != 0)
        return 0;
    swap(frame + ARP_SENDER, frame + ARP_TARGET, 8);
    swap(frame + ARP_SENDER + 8, frame + ARP_TARGET + 8, 2);
    memcpy(frame + ARP_SENDER, device->mac, 6);
    put16(frame + ARP_OPERATION, 2);
    memcpy(frame + ETHERNET_TO, frame + ETHERNET_FROM, 6);
    memcpy(frame + ETHERNET_FROM, device->mac, 6);
    return 1;
}

/* The payload of a UDP datagram to this port of the device, and its bytes; NULL for any other frame. */
static inline uint8_t *udp_to(const struct unilith_netdev_info *device, const struct unilith_packet *packet, uint16_t port,
                              unsigned *length) {
    uint8_t *frame = packet->data;
    /* Version 4 without options, not a fragment, UDP. */
    if (packet->length < UDP_BYTES || get16(frame + ETHERNET_TYPE) != 0x0800 || frame[ETHERNET_BYTES] != 0x45 ||
        (get16(frame + IP_FRAGMENT) & 0x3fff) != 0 || frame[IP_PROTOCOL] != 17 || get16(frame + UDP_TO) != port ||
        memcmp(frame + IP_TO, &device->address, 4) != 0)
        return NULL;
    unsigned bytes = get16(frame + UDP_LENGTH);
    if (bytes < 8 || bytes > packet->length - IP_BYTES)
        return NULL;
    *length = bytes - 8;
    return frame + UDP_BYTES;
}

/* Makes of a datagram its answer, with `length` bytes of payload, which are there already. */
static inline void answer_udp(struct unilith_packet *packet, unsigned length) {
    uint8_t *frame = packet->data;
    swap(frame + ETHERNET_TO, frame + ETHERNET_FROM, 6);
    swap(frame + IP_FROM, frame + IP_TO, 4);
    swap(frame + UDP_FROM, frame + UDP_TO, 2);
    put16(frame + UDP_LENGTH, (uint16_t)(length + 8));
    put16(frame + UDP_SUM, 0); /* none: RFC 768 */
    set_ip_length(frame, (uint16_t)(length + 28));
    packet->length = UDP_BYTES + length;
}

#endif /* FRAMES_H */
