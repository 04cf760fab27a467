// SPDX-License-Identifier: Apache-2.0 OR MIT
// Random sequences of calls (sequences.h) on interfaces, addresses, routes, rules and neighbours: requests of rtnetlink(7), some of them
// malformed, and ioctls of netdevice(7) beside them. Interfaces are told by name; hardware addresses that a kernel made up are not told.
// KIND 0: links and ioctls; 1: addresses and routes too; 2: rules and neighbours beside, and more of what is malformed.
#include "sequences.h"
#include <arpa/inet.h>
#include <linux/fib_rules.h>
#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/if_arp.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/route.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <linux/veth.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

// So many calls are made in one namespace: what answers otherwise changes no more lines than those.
enum { LINES = 512, ROOM = 200, ROUND = 60 };

static int kind, netlink, inet;
static struct {
    struct nlmsghdr header;
    char body[2048];
} request;

static void put(int type, const void *data, size_t length) {
    struct rtattr *attribute = (void *)((char *)&request + NLMSG_ALIGN(request.header.nlmsg_len));
    attribute->rta_type = (unsigned short)type;
    attribute->rta_len = (unsigned short)RTA_LENGTH(length);
    memset(RTA_DATA(attribute), 0, RTA_ALIGN(length));
    memcpy(RTA_DATA(attribute), data, length);
    request.header.nlmsg_len = NLMSG_ALIGN(request.header.nlmsg_len) + RTA_ALIGN(attribute->rta_len);
}

static void put_number(int type, uint32_t value) { put(type, &value, 4); }
static void put_text(int type, const char *text) { put(type, text, strlen(text) + 1); }

static struct rtattr *nest(int type) {
    struct rtattr *attribute = (void *)((char *)&request + NLMSG_ALIGN(request.header.nlmsg_len));
    put(type, "", 0);
    return attribute;
}

static void end_nest(struct rtattr *attribute) {
    attribute->rta_len = (unsigned short)((char *)&request + request.header.nlmsg_len - (char *)attribute);
}

static void begin_request(int type, int flags, const void *header, size_t length) {
    memset(&request, 0, sizeof request);
    request.header = (struct nlmsghdr){.nlmsg_len = (uint32_t)NLMSG_LENGTH(length), .nlmsg_type = (uint16_t)type, .nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags), .nlmsg_seq = 1};
    memcpy(request.body, header, length);
}

static int index_of(const char *name) {
    struct ifreq asked = {0};
    strncpy(asked.ifr_name, name, IFNAMSIZ - 1);
    return *name == 0 ? 0 : !strcmp(name, "none") || ioctl(inet, SIOCGIFINDEX, &asked) ? 99 : asked.ifr_ifindex;
}

static const char *name_of(int index) {
    static struct ifreq asked;
    asked.ifr_ifindex = index;
    return index == 0 ? "-" : ioctl(inet, SIOCGIFNAME, &asked) ? "?" : asked.ifr_name;
}

// The words of a message, without what differs from computer to computer.
static char lines[LINES][ROOM];
static int count, length;

static void tell(const char *format, ...) {
    va_list list;
    va_start(list, format);
    int took = vsnprintf(lines[count] + length, (size_t)(ROOM - length), format, list);
    length += took < ROOM - length ? took : ROOM - length - 1;
    va_end(list);
}

static void tell_address(const char *word, const struct rtattr *attribute) {
    char text[64];
    if (attribute && RTA_PAYLOAD(attribute) >= 4)
        tell(" %s %s", word, inet_ntop(AF_INET, RTA_DATA(attribute), text, sizeof text));
}

static void tell_number(const char *word, const struct rtattr *attribute) {
    if (attribute && RTA_PAYLOAD(attribute) >= 4)
        tell(" %s %u", word, *(uint32_t *)RTA_DATA(attribute));
}

static void tell_text(const char *word, const struct rtattr *attribute) {
    if (attribute)
        tell(" %s %.*s", word, (int)RTA_PAYLOAD(attribute), (char *)RTA_DATA(attribute));
}

static void parse(struct rtattr **table, int most, struct rtattr *attribute, int left) {
    memset(table, 0, (size_t)(most + 1) * sizeof *table);
    for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left))
        if ((attribute->rta_type & NLA_TYPE_MASK) <= most)
            table[attribute->rta_type & NLA_TYPE_MASK] = attribute;
}

// False of a message that is left out.
static int tell_message(struct nlmsghdr *header) {
    static struct rtattr *a[128];
    int left = (int)header->nlmsg_len;
    void *data = NLMSG_DATA(header);
#define PARSE(type) parse(a, 127, (void *)((char *)data + NLMSG_ALIGN(sizeof(type))), left - (int)NLMSG_LENGTH(sizeof(type)))
    switch (header->nlmsg_type) {
    case RTM_NEWLINK: {
        struct ifinfomsg *info = data;
        struct rtattr *nested[8] = {0};
        PARSE(*info);
        if (a[IFLA_LINKINFO])
            parse(nested, 7, RTA_DATA(a[IFLA_LINKINFO]), (int)RTA_PAYLOAD(a[IFLA_LINKINFO]));
        int is_bridge = nested[IFLA_INFO_KIND] && !strcmp(RTA_DATA(nested[IFLA_INFO_KIND]), "bridge");
        // Whether it runs comes by and by on Linux (linkwatch), and so does a bridge's carrier.
        unsigned flags = info->ifi_flags & ~(unsigned)(IFF_RUNNING | (is_bridge ? IFF_LOWER_UP : 0));
        tell("link");
        tell_text("name", a[IFLA_IFNAME]);
        tell(" family %d type %d flags %x change %x", info->ifi_family, info->ifi_type, flags, info->ifi_change);
        tell_number("mtu", a[IFLA_MTU]);
        tell_number("queue", a[IFLA_TXQLEN]);
        tell_number("group", a[IFLA_GROUP]);
        tell_text("kind", nested[IFLA_INFO_KIND]);
        if (a[IFLA_MASTER])
            tell(" master %s", name_of(*(int *)RTA_DATA(a[IFLA_MASTER])));
        if (a[IFLA_LINK])
            tell(" peer %s", name_of(*(int *)RTA_DATA(a[IFLA_LINK])));
        if (a[IFLA_ADDRESS] && !is_bridge) {
            unsigned char *mac = RTA_DATA(a[IFLA_ADDRESS]);
            if (!memcmp(mac, "\2\0\0\0", 4) || !memcmp(mac, "\0\0\0\0", 4))
                tell(" address %d", mac[5]);
        }
        return 1;
    }
    case RTM_NEWADDR: {
        struct ifaddrmsg *info = data;
        PARSE(*info);
        if (info->ifa_family != AF_INET)
            return 0;
        tell("address of %s /%d flags %x scope %d", name_of((int)info->ifa_index), info->ifa_prefixlen, info->ifa_flags, info->ifa_scope);
        tell_address("local", a[IFA_LOCAL]);
        tell_address("peer", a[IFA_ADDRESS]);
        tell_address("broadcast", a[IFA_BROADCAST]);
        tell_text("label", a[IFA_LABEL]);
        tell_number("all flags", a[IFA_FLAGS]);
        tell_number("metric", a[IFA_RT_PRIORITY]);
        return 1;
    }
    case RTM_NEWROUTE: {
        struct rtmsg *info = data;
        PARSE(*info);
        if (info->rtm_family != AF_INET)
            return 0;
        tell("route /%d from /%d tos %d table %d proto %d scope %d type %d flags %x", info->rtm_dst_len, info->rtm_src_len, info->rtm_tos, info->rtm_table, info->rtm_protocol, info->rtm_scope, info->rtm_type, info->rtm_flags & ~(unsigned)(RTNH_F_LINKDOWN | RTNH_F_DEAD));
        tell_number("table", a[RTA_TABLE]);
        tell_address("to", a[RTA_DST]);
        tell_address("from", a[RTA_SRC]);
        tell_address("via", a[RTA_GATEWAY]);
        tell_address("source", a[RTA_PREFSRC]);
        tell_number("metric", a[RTA_PRIORITY]);
        if (a[RTA_OIF])
            tell(" dev %s", name_of(*(int *)RTA_DATA(a[RTA_OIF])));
        if (a[RTA_METRICS]) {
            struct rtattr *metrics[32];
            parse(metrics, 31, RTA_DATA(a[RTA_METRICS]), (int)RTA_PAYLOAD(a[RTA_METRICS]));
            for (int i = 0; i < 32; i++)
                if (metrics[i] && i != RTAX_CC_ALGO)
                    tell(" m%d %u", i, *(uint32_t *)RTA_DATA(metrics[i]));
        }
        return 1;
    }
    case RTM_NEWRULE: {
        struct fib_rule_hdr *info = data;
        PARSE(*info);
        if (info->family != AF_INET)
            return 0;
        tell("rule to /%d from /%d tos %d table %d action %d flags %x", info->dst_len, info->src_len, info->tos, info->table, info->action, info->flags);
        tell_number("table", a[FRA_TABLE]);
        tell_number("priority", a[FRA_PRIORITY]);
        tell_address("to", a[FRA_DST]);
        tell_address("from", a[FRA_SRC]);
        tell_text("iif", a[FRA_IIFNAME]);
        tell_text("oif", a[FRA_OIFNAME]);
        tell_number("mark", a[FRA_FWMARK]);
        tell_number("mask", a[FRA_FWMASK]);
        tell_number("suppress", a[FRA_SUPPRESS_PREFIXLEN]);
        if (a[FRA_PROTOCOL])
            tell(" proto %d", *(unsigned char *)RTA_DATA(a[FRA_PROTOCOL]));
        return 1;
    }
    case RTM_NEWNEIGH: {
        struct ndmsg *info = data;
        PARSE(*info);
        // Those that Linux learns by itself are not told.
        if (info->ndm_family != AF_INET || !(info->ndm_state & NUD_PERMANENT))
            return 0;
        tell("neighbour of %s state %x flags %x type %d", name_of(info->ndm_ifindex), info->ndm_state, info->ndm_flags, info->ndm_type);
        tell_address("to", a[NDA_DST]);
        if (a[NDA_LLADDR])
            tell(" is %d", ((unsigned char *)RTA_DATA(a[NDA_LLADDR]))[5]);
        return 1;
    }
    case NLMSG_DONE:
        return 0;
    default:
        tell("message %d", header->nlmsg_type);
        return 1;
    }
}

static int compare(const void *a, const void *b) { return strcmp(a, b); }

// Asks, and tells what is answered; the messages of a dump in the order of their words.
static void ask(void) {
    static char answer[32768] __attribute__((aligned(8)));
    long sent = send(netlink, &request, request.header.nlmsg_len, 0), got, left;
    if (sent < 0) {
        answered(-1);
        return;
    }
    int error = 1, is_padded = 1;
    count = 0;
    while ((got = recv(netlink, answer, sizeof answer, MSG_DONTWAIT)) > 0) {
        struct nlmsghdr *header = (void *)answer;
        for (left = got; NLMSG_OK(header, (int)left); header = NLMSG_NEXT(header, left)) {
            length = 0;
            is_padded &= left >= (long)NLMSG_ALIGN(header->nlmsg_len);
            if (header->nlmsg_type == NLMSG_ERROR)
                error = *(int *)NLMSG_DATA(header);
            else if (tell_message(header) && count < LINES - 1)
                count++;
        }
    }
    qsort(lines, (size_t)count, ROOM, compare);
    for (int i = 0; i < count; i++)
        say("%s %s", i ? ";" : ":", lines[i]);
    if (!is_padded)
        say(" without padding");
    if (error > 0)
        say(" = nothing\n");
    else if (error)
        say(" = %s\n", strerrorname_np(-error));
    else
        say(" = 0\n");
}

// What is wrong with some requests: their length, an attribute's, an attribute that nobody knows.
static void spoil_and_ask(size_t header) {
    static const int unknown[] = {0, 70, 200, 0x3fff, 0x8000 | 5, 0x4000 | 6};
    int is_spoilt = one_in(kind == 2 ? 6 : 16), how = (int)below(5), cut = (int)below(40), type = ONE_OF(unknown), size = (int)below(9);
    struct rtattr *first = (void *)(request.body + NLMSG_ALIGN(header));
    if (is_spoilt) {
        switch (how) {
        case 0: say(" cut to %d", cut); request.header.nlmsg_len = (uint32_t)(cut < 16 ? 16 + cut : cut); break;
        case 1: if (request.header.nlmsg_len > NLMSG_LENGTH(header)) { say(" length %d", size); first->rta_len = (unsigned short)(4 + size); } break;
        case 2: say(" attribute %x of %d", type, size); put(type, "\1\2\3\4\5\6\7\10", (size_t)size); break;
        case 3: // Bridges answer requests of links themselves (7), and of IPv6 (10) other computers have more.
            cut += cut == 7 || cut == 10;
            say(" family %d", cut);
            request.body[0] = (char)cut;
            break;
        default: say(" rest %d", size); request.header.nlmsg_len += (uint32_t)size; break;
        }
    }
    ask();
}

static int some_flags(void) {
    static const int all[] = {NLM_F_CREATE, NLM_F_CREATE | NLM_F_EXCL, NLM_F_CREATE | NLM_F_EXCL, NLM_F_REPLACE, NLM_F_CREATE | NLM_F_REPLACE, NLM_F_CREATE | NLM_F_APPEND, NLM_F_EXCL, 0, NLM_F_APPEND};
    int flags = ONE_OF(all);
    if (!one_in(16))
        flags |= NLM_F_ACK;
    say(" f%x", flags);
    return flags;
}

static const char *some_name(void) {
    static const char *const all[] = {"v0", "v1", "v2", "v3", "b0", "b1"};
    static const char *const odd[] = {"lo", "none", "", "v%d", "a/b", "a b", ".", "..", "0123456789abcdef", "0123456789abcde", "a:b", "%s%d", "all", "v9"};
    const char *usual = ONE_OF(all), *other = ONE_OF(odd);
    return one_in(10) ? other : usual;
}

static const char *some_interface(void) {
    static const char *const all[] = {"v0", "v1", "v2", "v3", "b0", "b1", "v0", "v1", "v2", "lo"};
    static const char *const odd[] = {"", "none"};
    const char *usual = ONE_OF(all), *other = ONE_OF(odd);
    return one_in(16) ? other : usual;
}

static uint32_t some_address(void) {
    static const char *const all[] = {"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.1.1", "10.0.1.2", "10.1.0.1", "192.168.0.1", "10.0.0.0", "10.0.0.255"};
    static const char *const odd[] = {"0.0.0.0", "127.0.0.1", "127.0.0.2", "224.0.0.1", "255.255.255.255", "240.0.0.1", "0.0.0.1", "169.254.1.1"};
    const char *usual = ONE_OF(all), *other = ONE_OF(odd);
    const char *text = one_in(12) ? other : usual;
    say(" %s", text);
    return inet_addr(text);
}

static uint32_t some_mtu(void) {
    static const uint32_t all[] = {1500, 1400, 9000, 68, 67, 0, 65535, 65536, 1280, 100, 0xffffffff};
    return ONE_OF(all);
}

static void put_mac(int type) {
    unsigned char mac[8] = {2, 0, 0, 0, 0, (unsigned char)below(4)};
    static const int lengths[] = {6, 6, 6, 6, 6, 6, 4, 8, 0};
    int size = ONE_OF(lengths), odd = one_in(8), which = (int)below(3);
    if (odd)
        mac[0] = which == 0 ? 1 : which == 1 ? 0 : 0xff;
    say(" mac %d %d of %d", mac[0], mac[5], size);
    put(type, mac, (size_t)size);
}

// Of the loopback interface only whether it is up and its MTU are changed.
static void put_flags(struct ifinfomsg *info, int is_loopback) {
    static const unsigned all[] = {IFF_UP, IFF_UP, IFF_UP, IFF_UP, IFF_UP, IFF_NOARP, IFF_PROMISC, IFF_ALLMULTI, IFF_MULTICAST, IFF_DEBUG, IFF_BROADCAST, IFF_RUNNING, IFF_LOOPBACK, IFF_DYNAMIC, IFF_NOTRAILERS, IFF_PORTSEL};
    unsigned flags = ONE_OF(all), set = below(3), without = one_in(12);
    if (is_loopback)
        flags = IFF_UP, without = 0;
    info->ifi_flags = set ? flags : 0;
    info->ifi_change = without ? 0 : flags;
    say(" flags %x/%x", info->ifi_flags, info->ifi_change);
}

// Attributes of a link that is changed or made.
static void put_link(int is_loopback) {
    uint32_t mtu = some_mtu(), queue = below(3) * 500;
    const char *master = some_interface(), *name = some_name();
    // With less than IPv4 needs Linux takes the loopback's address away.
    if (is_loopback && mtu < 68)
        mtu = 1500;
    if (one_in(5)) {
        say(" mtu %u", mtu);
        put_number(IFLA_MTU, mtu);
    }
    if (one_in(8) && !is_loopback) {
        say(" queue %u", queue);
        put_number(IFLA_TXQLEN, queue);
    }
    if (one_in(6) && !is_loopback)
        put_mac(IFLA_ADDRESS);
    if (one_in(6) && !is_loopback) {
        say(" master %s", master);
        put_number(IFLA_MASTER, (uint32_t)index_of(master));
    }
    if (one_in(12) && !is_loopback) {
        say(" group 3");
        put_number(IFLA_GROUP, 3);
    }
    if (one_in(14) && !is_loopback) {
        say(" rename %s", name);
        put_text(IFLA_IFNAME, name);
    }
}

static void makes(void) {
    static const char *const sorts[] = {"veth", "veth", "veth", "bridge", "bridge", "nosuch", "", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"};
    static const char *const veths[] = {"v0", "v1", "v2", "v3"}, *const bridges[] = {"b0", "b1"};
    struct ifinfomsg info = {0}, other = {0};
    say("newlink");
    int flags = some_flags(), has_flags = one_in(3), index = (int)below(5), has_sort = !one_in(10), has_peer = !one_in(3), has_name = !one_in(12), odd_name = one_in(8), peer_odd = one_in(8), with_index = one_in(14);
    const char *sort = ONE_OF(sorts), *veth = ONE_OF(veths), *peer = ONE_OF(veths), *bridge = ONE_OF(bridges), *odd = some_name(), *odd_peer = some_name();
    const char *name = odd_name ? odd : !strcmp(sort, "bridge") ? bridge : veth;
    if (peer_odd)
        peer = odd_peer;
    if (has_flags)
        put_flags(&info, 0);
    if (with_index) {
        info.ifi_index = index * 20 - 20;
        say(" index %d", info.ifi_index);
    }
    begin_request(RTM_NEWLINK, flags, &info, sizeof info);
    // A name that only one of them would choose tells nothing.
    if (has_name || strcmp(sort, "nosuch")) {
        say(" '%s'", name);
        put_text(IFLA_IFNAME, name);
    }
    say(" kind %s", has_sort ? sort : "-");
    if (has_sort) {
        struct rtattr *nested = nest(IFLA_LINKINFO);
        put(IFLA_INFO_KIND, sort, strlen(sort));
        if (!strcmp(sort, "veth") || !has_peer) {
            struct rtattr *more = nest(IFLA_INFO_DATA);
            if (!strcmp(sort, "veth")) {
                say(" peer '%s'", peer);
                struct rtattr *end = nest(VETH_INFO_PEER);
                memcpy((char *)&request + request.header.nlmsg_len, &other, sizeof other);
                request.header.nlmsg_len += sizeof other;
                put_text(IFLA_IFNAME, peer);
                if (one_in(8))
                    put_link(0);
                end_nest(end);
            }
            end_nest(more);
        }
        end_nest(nested);
    }
    if (one_in(4))
        put_link(0);
    spoil_and_ask(sizeof info);
}

static void changes_link(void) {
    static const int types[] = {RTM_NEWLINK, RTM_SETLINK, RTM_NEWLINK, RTM_SETLINK};
    struct ifinfomsg info = {0};
    int type = ONE_OF(types), by_name = one_in(4), has_flags = one_in(2), sort = one_in(16);
    const char *name = some_interface();
    say(type == RTM_NEWLINK ? "newlink of %s" : "setlink %s", name);
    int flags = one_in(6) ? some_flags() : NLM_F_ACK;
    if (has_flags)
        put_flags(&info, !strcmp(name, "lo"));
    if (!by_name)
        info.ifi_index = index_of(name);
    begin_request(type, flags, &info, sizeof info);
    if (by_name) {
        say(" by name");
        put_text(IFLA_IFNAME, name);
    }
    if (sort) {
        say(" kind bridge");
        struct rtattr *nested = nest(IFLA_LINKINFO);
        put_text(IFLA_INFO_KIND, "bridge");
        end_nest(nested);
    }
    put_link(!strcmp(name, "lo"));
    spoil_and_ask(sizeof info);
}

// Up, and down.
static void sets_up(void) {
    struct ifinfomsg info = {.ifi_change = IFF_UP};
    const char *name = some_interface();
    info.ifi_flags = one_in(3) ? 0 : IFF_UP;
    info.ifi_index = index_of(name);
    say("set %s %s", name, info.ifi_flags ? "up" : "down");
    begin_request(RTM_NEWLINK, NLM_F_ACK, &info, sizeof info);
    ask();
}

static void deletes_link(void) {
    struct ifinfomsg info = {0};
    const char *name = some_interface();
    int by_name = one_in(2), both = one_in(8), group = one_in(20);
    say("dellink %s", name);
    if (!by_name || both)
        info.ifi_index = index_of(name);
    begin_request(RTM_DELLINK, NLM_F_ACK, &info, sizeof info);
    if (by_name || both) {
        say(" by name");
        put_text(IFLA_IFNAME, name);
    }
    if (group) {
        say(" group 7");
        put_number(IFLA_GROUP, 7);
    }
    spoil_and_ask(sizeof info);
}

static void gets_link(void) {
    struct ifinfomsg info = {0};
    int is_dump = one_in(2), by_name = one_in(2), filter = one_in(4), master = one_in(2), flags = one_in(3) ? NLM_F_ACK : 0;
    const char *name = some_interface();
    say("getlink");
    if (!is_dump) {
        say(" %s", name);
        info.ifi_index = by_name ? 0 : index_of(name);
    }
    begin_request(RTM_GETLINK, flags | (is_dump ? NLM_F_DUMP : 0), &info, sizeof info);
    if (!is_dump && by_name)
        put_text(IFLA_IFNAME, name);
    if (is_dump && filter) {
        say(master ? " master %s" : " kind bridge", name);
        if (master) {
            put_number(IFLA_MASTER, (uint32_t)index_of(name));
        } else {
            struct rtattr *nested = nest(IFLA_LINKINFO);
            put_text(IFLA_INFO_KIND, "bridge");
            end_nest(nested);
        }
    }
    spoil_and_ask(sizeof info);
}

static void asks_by_ioctl(void) {
    static const struct {
        const char *name;
        unsigned long call;
    } calls[] = {{"SIOCGIFFLAGS", SIOCGIFFLAGS}, {"SIOCSIFFLAGS", SIOCSIFFLAGS}, {"SIOCGIFMTU", SIOCGIFMTU}, {"SIOCSIFMTU", SIOCSIFMTU}, {"SIOCGIFADDR", SIOCGIFADDR}, {"SIOCSIFADDR", SIOCSIFADDR}, {"SIOCGIFNETMASK", SIOCGIFNETMASK}, {"SIOCSIFNETMASK", SIOCSIFNETMASK}, {"SIOCGIFBRDADDR", SIOCGIFBRDADDR}, {"SIOCSIFBRDADDR", SIOCSIFBRDADDR}, {"SIOCGIFDSTADDR", SIOCGIFDSTADDR}, {"SIOCSIFDSTADDR", SIOCSIFDSTADDR}, {"SIOCGIFTXQLEN", SIOCGIFTXQLEN}, {"SIOCSIFTXQLEN", SIOCSIFTXQLEN}, {"SIOCGIFMETRIC", SIOCGIFMETRIC}, {"SIOCSIFNAME", SIOCSIFNAME}, {"SIOCSIFHWADDR", SIOCSIFHWADDR}};
    static const short up[] = {IFF_UP, IFF_UP | IFF_MULTICAST, 0, IFF_UP | IFF_PROMISC, IFF_UP | IFF_NOARP};
    static const char *const masks[] = {"255.255.255.0", "255.255.0.0", "255.0.255.0", "0.0.0.0", "255.255.255.255"};
    int which = (int)below(COUNT(calls) - (kind == 0 ? 2 : 0)), family = one_in(8) ? (int)below(12) : AF_INET, number = (int)below(4);
    const char *name = some_interface(), *other = some_name(), *mask = ONE_OF(masks);
    struct ifreq asked = {0};
    struct sockaddr_in *address = (void *)&asked.ifr_addr;
    short flags = ONE_OF(up);
    int mtu = (int)some_mtu(), is_alias = one_in(10);
    if (!strcmp(name, "lo"))
        mtu = mtu >= 0 && mtu < 68 ? 1500 : mtu, which = which % 3 == 0 ? 1 : which % 3 == 1 ? 3 : 4, flags &= IFF_UP;
    snprintf(asked.ifr_name, IFNAMSIZ, is_alias ? "%s:1" : "%s", name);
    say("%s %s", calls[which].name, asked.ifr_name);
    uint32_t ip = some_address();
    switch (calls[which].call) {
    case SIOCSIFFLAGS: asked.ifr_flags = flags; say(" %x", flags); break;
    case SIOCSIFMTU: asked.ifr_mtu = mtu; say(" %d", mtu); break;
    case SIOCSIFTXQLEN: asked.ifr_qlen = number * 100 - 100; say(" %d", asked.ifr_qlen); break;
    case SIOCSIFNAME: strcpy(asked.ifr_newname, other); say(" %s", other); break;
    case SIOCSIFHWADDR: asked.ifr_hwaddr.sa_family = (unsigned short)(family == AF_INET ? ARPHRD_ETHER : family); memcpy(asked.ifr_hwaddr.sa_data, "\2\0\0\0\0", 5); asked.ifr_hwaddr.sa_data[5] = (char)number; say(" %d %d", asked.ifr_hwaddr.sa_family, number); break;
    case SIOCSIFNETMASK: ip = inet_addr(mask); say(" mask %s", mask); // fall through
    default: address->sin_family = (unsigned short)family; address->sin_addr.s_addr = ip; say(" family %d", family); break;
    }
    int result = ioctl(inet, calls[which].call, &asked);
    if (result == 0)
        switch (calls[which].call) {
        case SIOCGIFFLAGS: say(" %x", (unsigned short)asked.ifr_flags & ~(unsigned)IFF_RUNNING); break;
        case SIOCGIFMTU: case SIOCGIFTXQLEN: case SIOCGIFMETRIC: say(" %d", asked.ifr_mtu); break;
        case SIOCGIFADDR: case SIOCGIFNETMASK: case SIOCGIFBRDADDR: case SIOCGIFDSTADDR: say(" %s of %d", inet_ntoa(address->sin_addr), address->sin_family); break;
        }
    answered(result);
}

static void changes_address(void) {
    static const int prefixes[] = {24, 24, 24, 16, 8, 32, 31, 30, 0, 33};
    static const char *const labels[] = {"", "v0", "v0:1", "v1:x", "lo:1", "0123456789abcdef"};
    int is_new = !one_in(3), has_peer = one_in(2), has_local = !one_in(10), has_broadcast = one_in(3), has_label = one_in(6), scope = one_in(8), life = one_in(12), wide = one_in(5), metric = one_in(5);
    const char *name = some_interface(), *label = ONE_OF(labels);
    struct ifaddrmsg info = {.ifa_family = AF_INET, .ifa_prefixlen = (unsigned char)ONE_OF(prefixes)};
    if (!strcmp(name, "lo"))
        info.ifa_prefixlen = 32, has_peer = has_broadcast = has_label = scope = life = wide = metric = 0, has_local = 1;
    say(is_new ? "newaddr %s /%d" : "deladdr %s /%d", name, info.ifa_prefixlen);
    int flags = is_new ? some_flags() : NLM_F_ACK;
    info.ifa_index = (unsigned)index_of(name);
    if (scope) {
        info.ifa_scope = (unsigned char)(one_in(2) ? RT_SCOPE_LINK : RT_SCOPE_HOST);
        say(" scope %d", info.ifa_scope);
    }
    begin_request(is_new ? RTM_NEWADDR : RTM_DELADDR, flags, &info, sizeof info);
    uint32_t local = some_address(), peer = some_address(), broadcast = some_address();
    if (has_local) {
        say(" local");
        put_number(IFA_LOCAL, local);
    }
    if (has_peer) {
        int same = !one_in(3);
        say(same ? " peer same" : " peer");
        put_number(IFA_ADDRESS, same ? local : peer);
    }
    if (has_broadcast) {
        say(" broadcast");
        put_number(IFA_BROADCAST, broadcast);
    }
    if (has_label) {
        say(" label '%s'", label);
        put_text(IFA_LABEL, label);
    }
    if (life) {
        struct ifa_cacheinfo cache = {.ifa_prefered = one_in(2) ? 1000 : 3000, .ifa_valid = one_in(2) ? 0 : 500};
        say(" preferred %u valid %u", cache.ifa_prefered, cache.ifa_valid);
        put(IFA_CACHEINFO, &cache, sizeof cache);
    }
    if (wide) {
        say(" without route");
        put_number(IFA_FLAGS, IFA_F_NOPREFIXROUTE);
    }
    if (metric) {
        uint32_t number = below(4);
        say(" metric %u", number);
        put_number(IFA_RT_PRIORITY, number);
    }
    spoil_and_ask(sizeof info);
}

static void gets_addresses(void) {
    struct ifaddrmsg info = {.ifa_family = one_in(6) ? 0 : AF_INET};
    begin_request(RTM_GETADDR, NLM_F_DUMP, &info, sizeof info);
    say("getaddr %d", info.ifa_family);
    spoil_and_ask(sizeof info);
}

static void changes_route(void) {
    static const int prefixes[] = {24, 24, 24, 16, 32, 0, 25, 33}, types[] = {1, 1, 1, 1, 1, 1, 6, 7, 8, 9, 0, 10, 11, 12};
    static const int tables[] = {254, 254, 254, 254, 0, 100, 253, 101}, scopes[] = {0, 0, 0, 253, 253, 254, 255, 200}, protocols[] = {3, 3, 3, 4, 0, 2};
    static const uint32_t networks[] = {0x0a000000, 0x0a000100, 0x0a010000, 0xc0a80000, 0xac100000, 0, 0x0a000005, 0xe0000000};
    int is_new = !one_in(3), to = !one_in(10), via = one_in(3), dev = one_in(2), source = one_in(8), metric = one_in(4), wide = one_in(10), metrics = one_in(10), onlink = one_in(12), tos = one_in(12), usual = one_in(2);
    const char *name = some_interface();
    uint32_t network = ONE_OF(networks);
    struct rtmsg info = {.rtm_family = AF_INET, .rtm_dst_len = (unsigned char)ONE_OF(prefixes), .rtm_table = (unsigned char)ONE_OF(tables), .rtm_scope = (unsigned char)ONE_OF(scopes), .rtm_type = (unsigned char)ONE_OF(types), .rtm_protocol = (unsigned char)ONE_OF(protocols)};
    uint32_t gateway, from;
    if (usual) {
        info.rtm_table = 254, info.rtm_protocol = 3, info.rtm_type = 1, info.rtm_scope = (unsigned char)(!is_new ? 255 : via ? 0 : 253), dev = 1;
        info.rtm_dst_len = network & 0xff ? 32 : network & 0xff00 ? 24 : network ? 16 : 0;
    }
    if (onlink)
        info.rtm_flags = RTNH_F_ONLINK;
    if (tos) {
        static const int all[] = {4, 8, 16, 1, 32};
        info.rtm_tos = (unsigned char)ONE_OF(all);
    }
    say(is_new ? "newroute" : "delroute");
    int flags = is_new ? some_flags() : NLM_F_ACK;
    say(" /%d table %d scope %d type %d proto %d flags %x tos %d", info.rtm_dst_len, info.rtm_table, info.rtm_scope, info.rtm_type, info.rtm_protocol, info.rtm_flags, info.rtm_tos);
    begin_request(is_new ? RTM_NEWROUTE : RTM_DELROUTE, flags, &info, sizeof info);
    if (to) {
        say(" to %x", network);
        put_number(RTA_DST, htonl(network));
    }
    gateway = some_address();
    if (via) {
        say(" via");
        put_number(RTA_GATEWAY, gateway);
    }
    from = some_address();
    if (source) {
        say(" source");
        put_number(RTA_PREFSRC, from);
    }
    if (dev) {
        say(" dev %s", name);
        put_number(RTA_OIF, (uint32_t)index_of(name));
    }
    if (metric) {
        uint32_t n = below(3);
        say(" metric %u", n);
        put_number(RTA_PRIORITY, n);
    }
    if (wide) {
        uint32_t n = below(2) ? 1000 : 100;
        say(" table %u", n);
        put_number(RTA_TABLE, n);
    }
    if (metrics) {
        static const int all[] = {RTAX_MTU, RTAX_MTU, RTAX_MTU, 30};
        struct rtattr *nested = nest(RTA_METRICS);
        for (uint32_t i = 1 + below(2); i > 0; i--) {
            int type = ONE_OF(all);
            uint32_t n = one_in(4) ? 100000 : 1 + below(3);
            say(" m%d %u", type, n);
            put_number(type, n);
        }
        end_nest(nested);
    }
    spoil_and_ask(sizeof info);
}

static void gets_routes(void) {
    static const int tables[] = {0, 0, 254, 255, 100};
    struct rtmsg info = {.rtm_family = AF_INET, .rtm_table = (unsigned char)ONE_OF(tables)};
    say("getroute table %d", info.rtm_table);
    begin_request(RTM_GETROUTE, NLM_F_DUMP, &info, sizeof info);
    spoil_and_ask(sizeof info);
}

// The route to one address.
static void looks_up(void) {
    static const int lengths[] = {32, 32, 32, 32, 32, 24, 0};
    struct rtmsg info = {.rtm_family = AF_INET, .rtm_dst_len = (unsigned char)ONE_OF(lengths)};
    int from = one_in(6), dev = one_in(5);
    const char *name = some_interface();
    say("getroute /%d", info.rtm_dst_len);
    if (from)
        info.rtm_src_len = 32;
    begin_request(RTM_GETROUTE, 0, &info, sizeof info);
    put_number(RTA_DST, some_address());
    uint32_t source = some_address();
    if (from) {
        say(" from");
        put_number(RTA_SRC, source);
    }
    if (dev) {
        say(" dev %s", name);
        put_number(RTA_OIF, (uint32_t)index_of(name));
    }
    spoil_and_ask(sizeof info);
}

static void changes_rule(void) {
    static const int actions[] = {1, 1, 1, 1, 3, 6, 7, 8, 9}, tables[] = {254, 254, 100, 0, 255};
    static const int lengths[] = {0, 24, 32, 16, 33};
    int is_new = !one_in(3), to = one_in(3), from = one_in(3), priority = one_in(2), mark = one_in(6), mask = one_in(8), in = one_in(8), out = one_in(8), wide = one_in(8), suppress = one_in(10), protocol = one_in(8), invert = one_in(8), tos = one_in(12);
    const char *name = some_name(), *other = some_name();
    struct fib_rule_hdr info = {.family = AF_INET, .action = (unsigned char)ONE_OF(actions), .table = (unsigned char)ONE_OF(tables)};
    if (to)
        info.dst_len = (unsigned char)ONE_OF(lengths);
    if (from)
        info.src_len = (unsigned char)ONE_OF(lengths);
    if (invert)
        info.flags = FIB_RULE_INVERT;
    if (tos)
        info.tos = 8;
    say(is_new ? "newrule" : "delrule");
    int flags = is_new ? some_flags() : NLM_F_ACK;
    say(" to /%d from /%d action %d table %d flags %x tos %d", info.dst_len, info.src_len, info.action, info.table, info.flags, info.tos);
    begin_request(is_new ? RTM_NEWRULE : RTM_DELRULE, flags, &info, sizeof info);
    uint32_t a = some_address(), b = some_address();
    if (to && !one_in(8))
        put_number(FRA_DST, a), say(" to");
    if (from && !one_in(8))
        put_number(FRA_SRC, b), say(" from");
    if (priority) {
        static const uint32_t all[] = {0, 1, 5, 100, 32766, 32767, 40000};
        uint32_t n = ONE_OF(all);
        say(" priority %u", n);
        put_number(FRA_PRIORITY, n);
    }
    if (mark)
        put_number(FRA_FWMARK, 3), say(" mark 3");
    if (mask)
        put_number(FRA_FWMASK, 0xff), say(" mask ff");
    if (in)
        put_text(FRA_IIFNAME, name), say(" iif '%s'", name);
    if (out)
        put_text(FRA_OIFNAME, other), say(" oif '%s'", other);
    if (wide)
        put_number(FRA_TABLE, 1000), say(" table 1000");
    if (suppress)
        put_number(FRA_SUPPRESS_PREFIXLEN, below(2) ? 0 : 16), say(" suppress");
    if (protocol)
        put(FRA_PROTOCOL, "\4", 1), say(" proto 4");
    spoil_and_ask(sizeof info);
}

static void gets_rules(void) {
    struct fib_rule_hdr info = {.family = AF_INET};
    say("getrule");
    begin_request(RTM_GETRULE, NLM_F_DUMP, &info, sizeof info);
    spoil_and_ask(sizeof info);
}

static void changes_neighbour(void) {
    static const int states[] = {NUD_PERMANENT, NUD_PERMANENT, NUD_PERMANENT};
    int is_new = !one_in(3), mac = !one_in(8), to = !one_in(12);
    const char *name = some_interface();
    struct ndmsg info = {.ndm_family = AF_INET, .ndm_state = (uint16_t)ONE_OF(states)};
    say(is_new ? "newneigh %s %x" : "delneigh %s %x", name, info.ndm_state);
    int flags = is_new ? some_flags() : NLM_F_ACK;
    info.ndm_ifindex = index_of(name);
    begin_request(is_new ? RTM_NEWNEIGH : RTM_DELNEIGH, flags, &info, sizeof info);
    uint32_t address = some_address();
    if (to)
        put_number(NDA_DST, address), say(" to");
    if (mac)
        put_mac(NDA_LLADDR);
    spoil_and_ask(sizeof info);
}

static void gets_neighbours(void) {
    struct ndmsg info = {.ndm_family = AF_INET};
    say("getneigh");
    begin_request(RTM_GETNEIGH, NLM_F_DUMP, &info, sizeof info);
    spoil_and_ask(sizeof info);
}

// Types that nobody knows, and those with nothing in them.
static void odd_types(void) {
    static const int types[] = {0, 1, 5, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 127, 200, 0xffff};
    int type = ONE_OF(types), flags = one_in(2) ? NLM_F_ACK : 0, dump = one_in(4), without = one_in(8), size = (int)below(4) * 8;
    char zeros[32] = {0};
    zeros[0] = (char)(one_in(2) ? AF_INET : one_in(2) ? 0 : 77);
    say("type %d of %d family %d %x%s", type, size, zeros[0], flags, dump ? " dump" : "");
    begin_request(type, flags | (dump ? NLM_F_DUMP : 0), zeros, (size_t)size);
    if (without) {
        say(" no request");
        request.header.nlmsg_flags &= (uint16_t)~NLM_F_REQUEST;
    }
    ask();
}

static void make(const char *sort, const char *name, const char *peer) {
    struct ifinfomsg info = {0};
    begin_request(RTM_NEWLINK, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, &info, sizeof info);
    put_text(IFLA_IFNAME, name);
    struct rtattr *nested = nest(IFLA_LINKINFO);
    put_text(IFLA_INFO_KIND, sort);
    if (peer) {
        struct rtattr *more = nest(IFLA_INFO_DATA), *end = nest(VETH_INFO_PEER);
        memcpy((char *)&request + request.header.nlmsg_len, &info, sizeof info);
        request.header.nlmsg_len += sizeof info;
        put_text(IFLA_IFNAME, peer);
        end_nest(end);
        end_nest(more);
    }
    end_nest(nested);
    say(" %s", name);
    ask();
}

// A new namespace with a pair and a bridge, some of them up and with an address.
static void begin_round(void) {
    static const char *const names[] = {"lo", "v0", "v1", "b0"};
    static const uint32_t addresses[] = {0, 0x0a000001, 0x0a000101, 0xc0a80001};
    if (netlink)
        close(netlink), close(inet);
    say("unshare");
    answered(unshare(CLONE_NEWNET));
    netlink = socket(AF_NETLINK, SOCK_RAW, 0);
    inet = socket(AF_INET, SOCK_DGRAM, 0);
    make("veth", "v0", "v1");
    make("bridge", "b0", 0);
    for (size_t i = 0; i < COUNT(names); i++) {
        int up = !one_in(4), with = !one_in(3);
        struct ifinfomsg info = {.ifi_index = index_of(names[i]), .ifi_change = IFF_UP, .ifi_flags = IFF_UP};
        struct ifaddrmsg address = {.ifa_family = AF_INET, .ifa_prefixlen = 24, .ifa_index = (unsigned)info.ifi_index};
        if (up) {
            begin_request(RTM_NEWLINK, NLM_F_ACK, &info, sizeof info);
            say("%s up", names[i]);
            ask();
        }
        if (kind && with && addresses[i]) {
            begin_request(RTM_NEWADDR, NLM_F_ACK | NLM_F_CREATE, &address, sizeof address);
            put_number(IFA_LOCAL, htonl(addresses[i]));
            say("%s address", names[i]);
            ask();
        }
    }
}

int main(int argc, char **argv) {
    static void (*const steps[])(void) = {
        makes, makes, makes, changes_link, changes_link, sets_up, sets_up, deletes_link, gets_link, gets_link, asks_by_ioctl, odd_types,
        changes_address, changes_address, changes_address, changes_address, gets_addresses, gets_addresses, changes_route, changes_route, changes_route, changes_route, gets_routes, gets_routes, looks_up, looks_up, asks_by_ioctl, sets_up,
        changes_rule, changes_rule, gets_rules, changes_neighbour, changes_neighbour, gets_neighbours};
    static const uint32_t kinds[] = {12, 28, 34};
    long steps_count = begin(argc, argv, &kind);
    for (; steps_count > 0; steps_count -= ROUND) {
        begin_round();
        run_steps(steps, kinds[kind % 3], steps_count < ROUND ? steps_count : ROUND, 0);
    }
    return 0;
}
