// SPDX-License-Identifier: Apache-2.0 OR MIT
// What setsockopt and getsockopt answer for each family: which lengths and values they take, how a flag reads back, what an
// option is before it was set. Passes on Linux, too.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static int failures;

#define CHECK(what, ...)                                                                                               \
  do {                                                                                                                 \
    if (!(what)) {                                                                                                     \
      failures++;                                                                                                      \
      printf("line %d: %s (errno %d): ", __LINE__, #what, errno);                                                      \
      printf(__VA_ARGS__);                                                                                             \
      printf("\n");                                                                                                    \
    }                                                                                                                  \
  } while (0)

static const struct {
  const char *name;
  int family, type;
} KINDS[] = {
    {"tcp", AF_INET, SOCK_STREAM},       {"tcp6", AF_INET6, SOCK_STREAM},     {"udp", AF_INET, SOCK_DGRAM},
    {"udp6", AF_INET6, SOCK_DGRAM},      {"stream", AF_UNIX, SOCK_STREAM},    {"dgram", AF_UNIX, SOCK_DGRAM},
    {"seqpacket", AF_UNIX, SOCK_SEQPACKET}, {"netlink", AF_NETLINK, SOCK_RAW},
};
enum { ALL = sizeof KINDS / sizeof *KINDS };

static int set(int s, int level, int name, int value) { return setsockopt(s, level, name, &value, sizeof value) ? errno : 0; }

// The value, or minus the error's number less a million.
static int get(int s, int level, int name) {
  int value = 0;
  socklen_t length = sizeof value;
  return getsockopt(s, level, name, &value, &length) ? -1000000 - errno : value;
}

// Flags that all families keep.
static void flags(const char *kind, int s) {
  static const int NAMES[] = {SO_REUSEADDR, SO_KEEPALIVE, SO_BROADCAST, SO_DONTROUTE, SO_OOBINLINE,
                              SO_RXQ_OVFL, SO_NOFCS, SO_SELECT_ERR_QUEUE, SO_WIFI_STATUS};
  for (unsigned i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
    CHECK(get(s, SOL_SOCKET, NAMES[i]) == 0, "%s, %d before", kind, NAMES[i]);
    CHECK(set(s, SOL_SOCKET, NAMES[i], 7) == 0, "%s, %d", kind, NAMES[i]);
    CHECK(get(s, SOL_SOCKET, NAMES[i]) == 1, "%s, %d after", kind, NAMES[i]);
    CHECK(set(s, SOL_SOCKET, NAMES[i], 0) == 0 && get(s, SOL_SOCKET, NAMES[i]) == 0, "%s, %d off", kind, NAMES[i]);
  }
}

static void common(const char *kind, int s) {
  char byte = 1;
  for (int name = 1; name < 60; name++)
    if (name != SO_BINDTODEVICE) {
      CHECK(setsockopt(s, SOL_SOCKET, name, &byte, 1) == -1 && errno == EINVAL, "%s, %d of a byte", kind, name);
      CHECK(setsockopt(s, SOL_SOCKET, name, NULL, 0) == -1 && errno == EINVAL, "%s, %d of nothing", kind, name);
    }
  struct linger linger = {5, 3}, read = {0};
  socklen_t length = sizeof read;
  CHECK(set(s, SOL_SOCKET, SO_LINGER, 1) == EINVAL, "%s", kind);
  CHECK(setsockopt(s, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0, "%s", kind);
  CHECK(getsockopt(s, SOL_SOCKET, SO_LINGER, &read, &length) == 0 && length == sizeof read, "%s", kind);
  CHECK(read.l_onoff == 1 && read.l_linger == 3, "%s: %d, %d", kind, read.l_onoff, read.l_linger);
  CHECK(set(s, SOL_SOCKET, SO_BUSY_POLL, -1) == EINVAL, "%s", kind);
  CHECK(get(s, SOL_SOCKET, SO_INCOMING_CPU) == -1, "%s", kind);
  CHECK(get(s, SOL_SOCKET, SO_MAX_PACING_RATE) == -1, "%s", kind);
  CHECK(set(s, SOL_SOCKET, SO_MAX_PACING_RATE, 123456) == 0 && get(s, SOL_SOCKET, SO_MAX_PACING_RATE) == 123456, "%s", kind);
  CHECK(get(s, SOL_SOCKET, SO_BPF_EXTENSIONS) == 64, "%s", kind);
  CHECK(get(s, SOL_SOCKET, SO_ZEROCOPY) == 0, "%s", kind);
  CHECK(set(s, SOL_SOCKET, SO_DETACH_FILTER, 0) == ENOENT, "%s", kind);
  unsigned char filter[8];
  length = sizeof filter;
  CHECK(getsockopt(s, SOL_SOCKET, SO_GET_FILTER, filter, &length) == 0 && length == 0, "%s: %u", kind, length);
  CHECK(set(s, SOL_SOCKET, SO_LOCK_FILTER, 1) == 0 && get(s, SOL_SOCKET, SO_LOCK_FILTER) == 1, "%s", kind);
  CHECK(set(s, SOL_SOCKET, SO_LOCK_FILTER, 0) == EPERM, "%s", kind);
  unsigned long long cookie = 0, again = 0;
  length = 4;
  CHECK(getsockopt(s, SOL_SOCKET, SO_COOKIE, &cookie, &length) == -1 && errno == EINVAL, "%s", kind);
  length = sizeof cookie;
  CHECK(getsockopt(s, SOL_SOCKET, SO_COOKIE, &cookie, &length) == 0 && length == sizeof cookie && cookie, "%s", kind);
  CHECK(getsockopt(s, SOL_SOCKET, SO_COOKIE, &again, &length) == 0 && again == cookie, "%s", kind);
}

static void internet(const char *kind, int s, int is_stream) {
  char byte = 1;
  static const int FLAGS[] = {IP_FREEBIND, IP_TRANSPARENT, IP_RECVOPTS, IP_RETOPTS, IP_PKTINFO, IP_RECVTTL, IP_RECVTOS, IP_RECVERR,
                              IP_BIND_ADDRESS_NO_PORT, IP_RECVORIGDSTADDR, IP_CHECKSUM};
  for (unsigned i = 0; i < sizeof FLAGS / sizeof *FLAGS; i++) {
    CHECK(set(s, IPPROTO_IP, FLAGS[i], -1) == 0 && get(s, IPPROTO_IP, FLAGS[i]) == 1, "%s, %d", kind, FLAGS[i]);
    CHECK(set(s, IPPROTO_IP, FLAGS[i], 0) == 0 && get(s, IPPROTO_IP, FLAGS[i]) == 0, "%s, %d", kind, FLAGS[i]);
    CHECK(setsockopt(s, IPPROTO_IP, FLAGS[i], &byte, 1) == 0 && get(s, IPPROTO_IP, FLAGS[i]) == 1, "%s, %d", kind, FLAGS[i]);
  }
  CHECK(setsockopt(s, IPPROTO_IP, IP_RECVTTL, NULL, 0) == 0 && get(s, IPPROTO_IP, IP_RECVTTL) == 0, "%s", kind);
  CHECK(setsockopt(s, IPPROTO_IP, IP_MINTTL, NULL, 0) == -1 && errno == EINVAL, "%s", kind);
  CHECK(setsockopt(s, IPPROTO_IP, IP_TTL, NULL, 0) == -1 && errno == EINVAL, "%s", kind);
  CHECK(set(s, IPPROTO_IP, IP_MTU_DISCOVER, 6) == EINVAL, "%s", kind);
  CHECK(get(s, IPPROTO_IP, IP_HDRINCL) == 0 && set(s, IPPROTO_IP, IP_HDRINCL, 1) == ENOPROTOOPT, "%s", kind);
  CHECK(set(s, IPPROTO_IP, IP_TOS, 0x2b) == 0, "%s", kind);
  // The two bits that tell of congestion are TCP's own.
  CHECK(get(s, IPPROTO_IP, IP_TOS) == (is_stream ? 0x28 : 0x2b), "%s: %#x", kind, get(s, IPPROTO_IP, IP_TOS));
  CHECK(get(s, IPPROTO_IP, IP_MULTICAST_TTL) == 1 && get(s, IPPROTO_IP, IP_MULTICAST_LOOP) == 1, "%s", kind);
  struct ip_mreq group = {.imr_multiaddr = {htonl(0xe0000105)}, .imr_interface = {htonl(INADDR_LOOPBACK)}};
  if (is_stream) {
    CHECK(set(s, IPPROTO_IP, IP_MULTICAST_TTL, 3) == EINVAL, "%s", kind);
    CHECK(setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group) == -1 && errno == EPROTO, "%s", kind);
    for (int name = 1; name < 32; name++)
      CHECK(setsockopt(s, IPPROTO_TCP, name, &byte, name == TCP_CONGESTION || name == TCP_ULP ? 0 : 1) == -1 && errno == EINVAL,
            "%s, %d of a byte", kind, name);
    CHECK(get(s, SOL_SOCKET, SO_SNDBUF) == 16384, "%s: %d", kind, get(s, SOL_SOCKET, SO_SNDBUF));
  } else {
    CHECK(set(s, IPPROTO_IP, IP_RECVFRAGSIZE, 9) == 0 && get(s, IPPROTO_IP, IP_RECVFRAGSIZE) == 1, "%s", kind);
    CHECK(setsockopt(s, IPPROTO_UDP, UDP_CORK, &byte, 1) == -1 && errno == EINVAL, "%s", kind);
  }
  struct sockaddr_storage peer;
  socklen_t length = sizeof(struct sockaddr_in);
  CHECK(getsockopt(s, SOL_SOCKET, SO_PEERNAME, &peer, &length) == -1 && errno == ENOTCONN, "%s", kind);
  struct {
    int pid, user, group;
  } who = {1, 1, 1};
  length = sizeof who;
  CHECK(getsockopt(s, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0 && length == sizeof who, "%s", kind);
  CHECK(who.pid == 0 && who.user == -1 && who.group == -1, "%s: %d, %d, %d", kind, who.pid, who.user, who.group);
}

static void internet6(const char *kind, int s, int is_stream) {
  static const int FLAGS[] = {IPV6_2292PKTINFO, IPV6_2292HOPLIMIT, IPV6_RECVPKTINFO, IPV6_RECVHOPLIMIT, IPV6_RECVTCLASS, IPV6_RECVERR,
                              IPV6_RECVHOPOPTS, IPV6_RECVRTHDR, IPV6_RECVDSTOPTS, IPV6_RECVPATHMTU, IPV6_DONTFRAG};
  for (unsigned i = 0; i < sizeof FLAGS / sizeof *FLAGS; i++)
    CHECK(set(s, IPPROTO_IPV6, FLAGS[i], 9) == 0 && get(s, IPPROTO_IPV6, FLAGS[i]) == 1, "%s, %d", kind, FLAGS[i]);
  CHECK(set(s, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, 2) == EINVAL, "%s", kind);
  CHECK(set(s, IPPROTO_IPV6, IPV6_MTU_DISCOVER, 6) == EINVAL, "%s", kind);
  CHECK(set(s, IPPROTO_IPV6, IPV6_MULTICAST_IF, -1) == (is_stream ? ENOPROTOOPT : ENODEV), "%s", kind);
  CHECK(set(s, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 256) == (is_stream ? ENOPROTOOPT : EINVAL), "%s", kind);
}

static void netlink(int s) {
  CHECK(get(s, SOL_NETLINK, NETLINK_EXT_ACK) == 0, "before");
  CHECK(set(s, SOL_NETLINK, NETLINK_EXT_ACK, 5) == 0 && get(s, SOL_NETLINK, NETLINK_EXT_ACK) == 1, "after");
  CHECK(get(s, SOL_NETLINK, NETLINK_CAP_ACK) == 0, "another");
  CHECK(set(s, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, 1000000) == EINVAL, "no such group");
  CHECK(set(s, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, 1) == 0, "a group");
  CHECK(set(s, SOL_NETLINK, 99, 1) == ENOPROTOOPT, "no such option");
}

// Connections to many ports leave some that bind can choose, also where each waits for its end: connect(2) takes every other port.
static void ports(void) {
  // Three listeners, and more connections than half of all ephemeral ports.
  enum { LISTENERS = 3, EACH = 5000 };
  int listeners[LISTENERS];
  struct sockaddr_in at[LISTENERS];
  for (int i = 0; i < LISTENERS; i++) {
    socklen_t length = sizeof at[i];
    at[i] = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    listeners[i] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(listeners[i], (struct sockaddr *)&at[i], sizeof at[i]) == 0 && listen(listeners[i], 16) == 0, "listener %d", i);
    CHECK(getsockname(listeners[i], (struct sockaddr *)&at[i], &length) == 0, "listener %d", i);
  }
  int odd = 0, made = 0;
  for (int n = 0; n < EACH; n++)
    for (int i = 0; i < LISTENERS; i++) {
      struct sockaddr_in local;
      socklen_t length = sizeof local;
      int s = socket(AF_INET, SOCK_STREAM, 0);
      if (connect(s, (struct sockaddr *)&at[i], sizeof at[i]) == 0) {
        made++;
        getsockname(s, (struct sockaddr *)&local, &length);
        odd += ntohs(local.sin_port) & 1;
        int other = accept(listeners[i], NULL, NULL);
        // Who closes first keeps the port for a minute.
        close(s);
        close(other);
      } else
        close(s);
    }
  CHECK(made == EACH * LISTENERS, "%d connections", made);
  CHECK(odd < made / 20, "%d of %d connections have ports of bind's half", odd, made);
  for (int i = 0; i < 100; i++) {
    struct sockaddr_in any = {.sin_family = AF_INET};
    int s = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(s, (struct sockaddr *)&any, sizeof any) == 0, "the %dth", i);
    close(s);
  }
  for (int i = 0; i < LISTENERS; i++)
    close(listeners[i]);
}

int main(void) {
  for (int i = 0; i < ALL; i++) {
    int s = socket(KINDS[i].family, KINDS[i].type, 0);
    if (s < 0) {
      printf("no socket of %s: errno %d\n", KINDS[i].name, errno);
      return 1;
    }
    flags(KINDS[i].name, s);
    common(KINDS[i].name, s);
    close(s);
    s = socket(KINDS[i].family, KINDS[i].type, 0);
    int is_stream = KINDS[i].type == SOCK_STREAM;
    if (KINDS[i].family == AF_INET)
      internet(KINDS[i].name, s, is_stream);
    if (KINDS[i].family == AF_INET6)
      internet6(KINDS[i].name, s, is_stream);
    if (KINDS[i].family == AF_NETLINK)
      netlink(s);
    close(s);
  }
  ports();
  puts(failures ? "socket options: failed" : "socket options: ok");
  return failures != 0;
}
