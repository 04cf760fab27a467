// SPDX-License-Identifier: Apache-2.0 OR MIT
// Rings of AF_PACKET that a program maps (PACKET_RX_RING, PACKET_TX_RING), on loopback. On Linux: in a network namespace, as root.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define EXPERIMENTAL 0x88b5
#define FAILS(call, with) CHECK((call) == -1 && errno == (with))
#define PAGE 4096u

static int lo;
static unsigned char frame[2000];

static int set(int fd, int name, int value)
{
    return setsockopt(fd, SOL_PACKET, name, &value, sizeof value);
}

static int opened(int type, int version, int protocol)
{
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_ifindex = lo, .sll_protocol = htons(protocol)};
    int fd = socket(AF_PACKET, type, 0);
    CHECK(fd >= 0 && bind(fd, (void *)&address, sizeof address) == 0 && set(fd, PACKET_VERSION, version) == 0);
    return fd;
}

static int ring(int fd, int name, unsigned block, unsigned blocks, unsigned size, unsigned frames)
{
    struct tpacket_req request = {block, blocks, size, frames};
    return setsockopt(fd, SOL_PACKET, name, &request, sizeof request);
}

static int ring3(int fd, unsigned block, unsigned blocks, unsigned milliseconds, unsigned private)
{
    struct tpacket_req3 request = {block, blocks, 2048, block / 2048 * blocks, milliseconds, private, 0};
    return setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &request, sizeof request);
}

// A frame of `length` bytes whose payload says its number.
static void send_frame(int fd, unsigned char number, unsigned length)
{
    frame[12] = EXPERIMENTAL >> 8, frame[13] = EXPERIMENTAL & 255;
    memset(frame + 14, number, sizeof frame - 14);
    CHECK(send(fd, frame, length, 0) == (ssize_t)length);
}

static int is_ready(int fd, int wait)
{
    struct pollfd p = {fd, POLLIN, 0};
    int n = poll(&p, 1, wait);
    CHECK(n == 0 || p.revents == POLLIN);
    return n;
}

static void requests_that_are_refused(int version)
{
    int fd = opened(SOCK_RAW, version, EXPERIMENTAL);
    unsigned least = (version == TPACKET_V2 ? TPACKET2_HDRLEN : TPACKET_HDRLEN);
    FAILS(setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &fd, 15), EINVAL);
    FAILS(ring(fd, PACKET_RX_RING, 0, 1, 2048, 2), EINVAL);
    FAILS(ring(fd, PACKET_RX_RING, 0x80000000u, 1, 2048, 2), EINVAL);
    FAILS(ring(fd, PACKET_RX_RING, PAGE + 2048, 1, 2048, 3), EINVAL);
    FAILS(ring(fd, PACKET_RX_RING, PAGE, 1, least - 4, PAGE / (least - 4)), EINVAL);
    FAILS(ring(fd, PACKET_RX_RING, PAGE, 1, 2047, 2), EINVAL);
    FAILS(ring(fd, PACKET_RX_RING, PAGE, 1, 8192, 1), EINVAL);
    FAILS(ring(fd, PACKET_RX_RING, PAGE, 2, 2048, 3), EINVAL);
    FAILS(ring(fd, PACKET_RX_RING, PAGE, 0x80000001u, 2048, 2), EINVAL);
    FAILS(ring(fd, PACKET_RX_RING, PAGE, 0, 2048, 2), EINVAL);
    CHECK(ring(fd, PACKET_RX_RING, 0, 0, 0, 0) == 0);
    CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EINVAL);
    CHECK(set(fd, PACKET_RESERVE, 2048) == 0);
    FAILS(ring(fd, PACKET_RX_RING, PAGE, 2, 2048, 4), EINVAL);
    CHECK(set(fd, PACKET_RESERVE, 0) == 0);
    CHECK(ring(fd, PACKET_RX_RING, PAGE, 2, 2048, 4) == 0);
    FAILS(ring(fd, PACKET_RX_RING, PAGE, 2, 2048, 4), EBUSY);
    FAILS(set(fd, PACKET_VERSION, TPACKET_V1), EBUSY);
    FAILS(set(fd, PACKET_RESERVE, 16), EBUSY);
    FAILS(set(fd, PACKET_LOSS, 1), EBUSY);
    CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EINVAL);
    CHECK(mmap(NULL, 3 * PAGE, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EINVAL);
    CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, PAGE) == MAP_FAILED && errno == EINVAL);
    void *at = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED);
    FAILS(ring(fd, PACKET_RX_RING, 0, 0, 0, 0), EBUSY);
    CHECK(munmap(at, 2 * PAGE) == 0 && ring(fd, PACKET_RX_RING, 0, 0, 0, 0) == 0 && set(fd, PACKET_VERSION, TPACKET_V1) == 0);
    close(fd);
}

// Frames of one size: each has its status.
static void frames_of_one_size(int version, int type, int reserve)
{
    int fd = opened(type, version, EXPERIMENTAL), sender = opened(SOCK_RAW, TPACKET_V1, 0), status;
    unsigned link = type == SOCK_RAW ? 14 : 0;
    CHECK(set(fd, PACKET_RESERVE, reserve) == 0 && ring(fd, PACKET_RX_RING, PAGE, 2, 512, 16) == 0);
    unsigned char *map = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED && !is_ready(fd, 0));
    for (int round = 0; round < 40; round++) {
        unsigned char *at = map + round % 16 * 512;
        unsigned length = 60 + round * 17;
        send_frame(sender, round, length);
        CHECK(is_ready(fd, 5000));
        struct tpacket_hdr *h1 = (void *)at;
        struct tpacket2_hdr *h2 = (void *)at;
        unsigned state = version == TPACKET_V1 ? h1->tp_status : h2->tp_status;
        unsigned mac = version == TPACKET_V1 ? h1->tp_mac : h2->tp_mac, net = version == TPACKET_V1 ? h1->tp_net : h2->tp_net;
        unsigned len = version == TPACKET_V1 ? h1->tp_len : h2->tp_len, snap = version == TPACKET_V1 ? h1->tp_snaplen : h2->tp_snaplen;
        struct sockaddr_ll *from = (void *)(at + TPACKET_ALIGN(version == TPACKET_V1 ? sizeof *h1 : sizeof *h2));
        CHECK(state == TP_STATUS_USER && len == length - 14 + link);
        CHECK(net == TPACKET_ALIGN((unsigned)TPACKET_HDRLEN + (link ? 16 : 0)) + (link ? 0 : 16) + reserve && mac == net - link);
        CHECK(snap == (len < 512 - mac ? len : 512 - mac));
        CHECK(memcmp(at + net, (unsigned char[8]){round, round, round, round, round, round, round, round}, 8) == 0);
        CHECK(from->sll_family == AF_PACKET && from->sll_protocol == htons(EXPERIMENTAL) && from->sll_ifindex == lo);
        CHECK((version == TPACKET_V1 ? h1->tp_sec : h2->tp_sec) > 1600000000u);
        if (version == TPACKET_V1)
            h1->tp_status = TP_STATUS_KERNEL;
        else
            h2->tp_status = TP_STATUS_KERNEL;
        CHECK(!is_ready(fd, 0));
    }
    // A ring that is full loses packets, and the next one that has room says so.
    for (int i = 0; i < 20; i++)
        send_frame(sender, i, 60);
    struct tpacket_stats stats;
    socklen_t size = sizeof stats;
    unsigned last = 8 + 15, *first = (void *)(map + 8 * 512);
    CHECK(*(unsigned *)(map + last % 16 * 512) == TP_STATUS_USER);
    *first = TP_STATUS_KERNEL;
    send_frame(sender, 1, 60);
    CHECK(*first == (TP_STATUS_USER | TP_STATUS_LOSING));
    CHECK(getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &stats, &size) == 0 && stats.tp_packets == 61 && stats.tp_drops == 4);
    // The child has the mapping, and the memory outlives the socket.
    pid_t child = fork();
    if (child == 0) {
        close(fd);
        CHECK(*first == (TP_STATUS_USER | TP_STATUS_LOSING));
        *first = 77;
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0 && *first == 77);
    close(fd);
    *first = 78;
    CHECK(munmap(map, 2 * PAGE) == 0);
    close(sender);
}

static void a_copy_of_what_is_cut(void)
{
    int fd = opened(SOCK_RAW, TPACKET_V2, EXPERIMENTAL), sender = opened(SOCK_RAW, TPACKET_V1, 0);
    CHECK(set(fd, PACKET_COPY_THRESH, 1) == 0 && ring(fd, PACKET_RX_RING, PAGE, 1, 256, 16) == 0);
    struct tpacket2_hdr *map = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED);
    send_frame(sender, 9, 1000);
    CHECK(map->tp_status == (TP_STATUS_USER | TP_STATUS_COPY) && map->tp_len == 1000 && map->tp_snaplen < 256);
    unsigned char back[2000];
    CHECK(recv(fd, back, sizeof back, MSG_DONTWAIT) == 1000 && back[999] == 9);
    close(fd), close(sender);
}

struct block {
    struct tpacket_block_desc *at;
    unsigned packets;
};

// Packets of a block that the program has, which are numbered in a row; then it is the kernel's.
static unsigned read_block(unsigned char *at, unsigned char *next, unsigned private)
{
    struct tpacket_block_desc *block = (void *)at;
    struct tpacket_hdr_v1 *h = &block->hdr.bh1;
    CHECK(h->block_status & TP_STATUS_USER && block->version == TPACKET_V3 && block->offset_to_priv == 48);
    CHECK(h->offset_to_first_pkt == 48 + ((private + 7) & ~7u) && h->ts_last_pkt.ts_sec > 1600000000u);
    unsigned bytes = h->offset_to_first_pkt;
    struct tpacket3_hdr *packet = (void *)(at + h->offset_to_first_pkt);
    for (unsigned i = 0; i < h->num_pkts; i++) {
        struct sockaddr_ll *from = (void *)((char *)packet + TPACKET_ALIGN(sizeof *packet));
        unsigned char *data = (unsigned char *)packet + packet->tp_mac;
        CHECK(packet->tp_status == TP_STATUS_AVAILABLE || packet->tp_status == TP_STATUS_USER);
        CHECK(packet->tp_net == packet->tp_mac + 14 && data[14] == *next && data[packet->tp_snaplen - 1] == *next);
        CHECK(from->sll_protocol == htons(EXPERIMENTAL) && packet->tp_len == packet->tp_snaplen);
        ++*next;
        bytes += (packet->tp_mac + packet->tp_snaplen + 7) & ~7u;
        CHECK(!packet->tp_next_offset == (i + 1 == h->num_pkts));
        packet = (void *)((char *)packet + packet->tp_next_offset);
    }
    CHECK(h->blk_len == bytes);
    unsigned packets = h->num_pkts;
    h->block_status = TP_STATUS_KERNEL;
    return packets;
}

static void blocks(void)
{
    int fd = opened(SOCK_RAW, TPACKET_V3, EXPERIMENTAL), sender = opened(SOCK_RAW, TPACKET_V1, 0);
    unsigned char next = 0, sent = 0;
    struct tpacket_stats_v3 stats;
    socklen_t size = sizeof stats;
    FAILS(ring3(fd, PAGE, 4, 20, 4096 - 48 - 60), EINVAL);
    FAILS(ring(fd, PACKET_RX_RING, PAGE, 4, 2048, 8), EINVAL);
    // Their time is long, so that only what is full is handed over.
    CHECK(ring3(fd, PAGE, 4, 60000, 13) == 0);
    unsigned char *map = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED && !is_ready(fd, 0));
    for (int round = 0; round < 12; round++) {
        while (!is_ready(fd, 0))
            send_frame(sender, sent++, 100 + round * 50);
        CHECK(read_block(map + round % 4 * PAGE, &next, 13) > 2 && next == (unsigned char)(sent - 1));
        CHECK(!is_ready(fd, 0));
    }
    // Packets are lost while all blocks are the program's, and one that is given back is filled again.
    for (int i = 0; i < 60; i++)
        send_frame(sender, sent++, 1000);
    CHECK(getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &stats, &size) == 0 && size == sizeof stats);
    CHECK(stats.tp_drops > 40 && stats.tp_packets == sent && stats.tp_freeze_q_cnt == 1);
    for (int i = 0; i < 4; i++)
        CHECK(read_block(map + i * PAGE, &next, 13) == 3 || i == 0);
    next = sent;
    send_frame(sender, sent++, 1000);
    send_frame(sender, sent++, 1000);
    send_frame(sender, sent++, 1000);
    send_frame(sender, sent++, 1000);
    CHECK(is_ready(fd, 5000) && read_block(map, &next, 13) == 3);
    // The largest packet fills a block alone, and a larger one is cut.
    CHECK(munmap(map, 4 * PAGE) == 0);
    close(fd);
    fd = opened(SOCK_RAW, TPACKET_V3, EXPERIMENTAL);
    CHECK(ring3(fd, PAGE, 2, 20, 2000) == 0);
    map = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED);
    send_frame(sender, 5, 2000);
    // Its time comes.
    CHECK(is_ready(fd, 5000));
    struct tpacket_block_desc *block = (void *)map;
    struct tpacket3_hdr *packet = (void *)(map + 2048);
    while (!(block->hdr.bh1.block_status & TP_STATUS_USER) || block->hdr.bh1.num_pkts == 0) {
        // Linux hands an empty block over first.
        block = (void *)((char *)block == (char *)map ? map + PAGE : map);
        packet = (void *)((char *)block + 2048);
    }
    CHECK(block->hdr.bh1.block_status & TP_STATUS_BLK_TMO && block->hdr.bh1.num_pkts == 1);
    CHECK(packet->tp_len == 2000 && packet->tp_snaplen == 2048u - packet->tp_mac);
    close(fd), close(sender);
}

static void a_ring_that_sends(int version)
{
    int fd = opened(SOCK_RAW, version, 0), reader = opened(SOCK_RAW, TPACKET_V1, EXPERIMENTAL), status;
    unsigned char back[2000];
    struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_ifindex = lo, .sll_protocol = htons(EXPERIMENTAL)};
    CHECK(ring(fd, PACKET_TX_RING, PAGE, 1, 1024, 4) == 0);
    unsigned char *map = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    struct pollfd p = {fd, POLLOUT, 0};
    CHECK(map != MAP_FAILED && poll(&p, 1, 0) == 1 && send(fd, NULL, 0, MSG_DONTWAIT) == 0);
    frame[12] = EXPERIMENTAL >> 8, frame[13] = EXPERIMENTAL & 255;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 4; i++) {
            struct tpacket2_hdr *h = (void *)(map + i * 1024);
            CHECK(h->tp_status == TP_STATUS_AVAILABLE);
            memset(frame + 14, round * 4 + i, 86);
            memcpy((char *)h + TPACKET2_HDRLEN - sizeof to, frame, 100);
            h->tp_len = 100;
            h->tp_status = TP_STATUS_SEND_REQUEST;
        }
        CHECK((round ? send(fd, NULL, 0, 0) : sendto(fd, NULL, 0, 0, (void *)&to, sizeof to)) == 400);
        for (int i = 0; i < 4; i++)
            CHECK(recv(reader, back, sizeof back, 0) == 100 && back[14] == round * 4 + i && back[99] == back[14]);
    }
    struct tpacket2_hdr *h = (void *)map;
    h->tp_len = 1024, h->tp_status = TP_STATUS_SEND_REQUEST;
    FAILS(send(fd, NULL, 0, 0), EMSGSIZE);
    CHECK(h->tp_status == TP_STATUS_WRONG_FORMAT);
    h->tp_len = 13, h->tp_status = TP_STATUS_SEND_REQUEST;
    FAILS(send(fd, NULL, 0, 0), EINVAL);
    CHECK(h->tp_status == TP_STATUS_WRONG_FORMAT);
    CHECK(waitpid(-1, &status, 0) == -1);
    close(fd), close(reader);
    fd = opened(SOCK_RAW, TPACKET_V3, 0);
    struct tpacket_req3 request = {PAGE, 1, 2048, 2, 5, 0, 0};
    FAILS(setsockopt(fd, SOL_PACKET, PACKET_TX_RING, &request, sizeof request), EINVAL);
    // Both rings are mapped as one.
    request.tp_retire_blk_tov = 0;
    CHECK(setsockopt(fd, SOL_PACKET, PACKET_TX_RING, &request, sizeof request) == 0 && ring3(fd, PAGE, 2, 0, 0) == 0);
    map = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED && ((struct tpacket_block_desc *)map)->version == TPACKET_V3);
    CHECK(*(unsigned *)(map + 2 * PAGE) == 0);
    close(fd);
}

int main(void)
{
    lo = if_nametoindex("lo");
    CHECK(lo > 0);
    requests_that_are_refused(TPACKET_V1);
    requests_that_are_refused(TPACKET_V2);
    frames_of_one_size(TPACKET_V1, SOCK_RAW, 0);
    frames_of_one_size(TPACKET_V2, SOCK_RAW, 0);
    frames_of_one_size(TPACKET_V2, SOCK_RAW, 32);
    frames_of_one_size(TPACKET_V2, SOCK_DGRAM, 0);
    a_copy_of_what_is_cut();
    blocks();
    a_ring_that_sends(TPACKET_V2);
    puts("packet rings: ok");
    return 0;
}
