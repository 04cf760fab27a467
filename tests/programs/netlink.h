// SPDX-License-Identifier: Apache-2.0 OR MIT
// Requests of rtnetlink(7) for tests, and what they are answered.
#include <arpa/inet.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct request {
    struct nlmsghdr header;
    char body[1024];
};

static struct request begin(int type, int flags, const void *header, size_t length)
{
    struct request r = {.header = {.nlmsg_len = NLMSG_LENGTH(length), .nlmsg_type = type}};
    r.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    memcpy(r.body, header, length);
    return r;
}

static void add(struct request *r, int type, const void *data, size_t length)
{
    struct rtattr *a = (void *)((char *)r + NLMSG_ALIGN(r->header.nlmsg_len));
    a->rta_type = type;
    a->rta_len = RTA_LENGTH(length);
    memcpy(RTA_DATA(a), data, length);
    r->header.nlmsg_len = NLMSG_ALIGN(r->header.nlmsg_len) + RTA_ALIGN(a->rta_len);
}

static void add_number(struct request *r, int type, unsigned value) { add(r, type, &value, 4); }
static void add_text(struct request *r, int type, const char *text) { add(r, type, text, strlen(text) + 1); }

static void add_address(struct request *r, int type, const char *text)
{
    struct in_addr address;
    CHECK(inet_pton(AF_INET, text, &address) == 1);
    add(r, type, &address, 4);
}

static struct rtattr *nest(struct request *r, int type)
{
    struct rtattr *a = (void *)((char *)r + NLMSG_ALIGN(r->header.nlmsg_len));
    add(r, type, "", 0);
    return a;
}

static void end_nest(struct request *r, struct rtattr *a) { a->rta_len = (char *)r + r->header.nlmsg_len - (char *)a; }

// The error of a request, 0 for none.
static int ask(struct request *r)
{
    int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    CHECK(fd >= 0);
    CHECK(send(fd, r, r->header.nlmsg_len, 0) == (ssize_t)r->header.nlmsg_len);
    char answer[8192];
    ssize_t n = recv(fd, answer, sizeof answer, 0);
    struct nlmsghdr *h = (void *)answer;
    CHECK(n >= (ssize_t)NLMSG_LENGTH(4) && h->nlmsg_type == NLMSG_ERROR);
    close(fd);
    return -*(int *)NLMSG_DATA(h);
}

static int link_index(const char *name)
{
    struct ifreq i = {0};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    strcpy(i.ifr_name, name);
    int index = ioctl(fd, SIOCGIFINDEX, &i) ? 0 : i.ifr_ifindex;
    close(fd);
    return index;
}

static struct request link_request(int type, int flags, const char *name)
{
    struct ifinfomsg info = {.ifi_family = AF_UNSPEC, .ifi_index = name ? link_index(name) : 0};
    return begin(type, flags, &info, sizeof info);
}

static int set_up(const char *name, int up)
{
    struct request r = link_request(RTM_NEWLINK, 0, name);
    struct ifinfomsg *info = (void *)r.body;
    info->ifi_flags = up ? IFF_UP : 0;
    info->ifi_change = IFF_UP;
    return ask(&r);
}

static int make_link(const char *kind, const char *name, const char *peer, int flags)
{
    struct request r = link_request(RTM_NEWLINK, NLM_F_CREATE | flags, NULL);
    add_text(&r, IFLA_IFNAME, name);
    struct rtattr *info = nest(&r, IFLA_LINKINFO);
    add(&r, IFLA_INFO_KIND, kind, strlen(kind));
    if (peer) {
        struct rtattr *data = nest(&r, IFLA_INFO_DATA), *other = nest(&r, VETH_INFO_PEER);
        struct ifinfomsg none = {0};
        memcpy((char *)&r + r.header.nlmsg_len, &none, sizeof none);
        r.header.nlmsg_len += sizeof none;
        add_text(&r, IFLA_IFNAME, peer);
        end_nest(&r, other);
        end_nest(&r, data);
    }
    end_nest(&r, info);
    return ask(&r);
}

static int delete_link(const char *name)
{
    struct request r = link_request(RTM_DELLINK, 0, NULL);
    add_text(&r, IFLA_IFNAME, name);
    return ask(&r);
}

static int set_number(const char *name, int attribute, unsigned value)
{
    struct request r = link_request(RTM_NEWLINK, 0, name);
    add_number(&r, attribute, value);
    return ask(&r);
}

static int address(int type, int flags, const char *name, const char *text, int prefix)
{
    struct ifaddrmsg m = {.ifa_family = AF_INET, .ifa_prefixlen = prefix, .ifa_index = link_index(name)};
    struct request r = begin(type, flags, &m, sizeof m);
    add_address(&r, IFA_LOCAL, text);
    add_address(&r, IFA_ADDRESS, text);
    return ask(&r);
}

static int add_ip(const char *name, const char *text, int prefix)
{
    return address(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, name, text, prefix);
}

// A route to `to`/`prefix` by `via` or `name`, of that kind and table.
struct route {
    const char *to, *via, *name, *from;
    int prefix, kind, table, metric, scope;
};

static int route(int type, int flags, struct route of)
{
    struct rtmsg m = {.rtm_family = AF_INET, .rtm_dst_len = of.prefix, .rtm_table = of.table ? of.table : RT_TABLE_MAIN};
    m.rtm_type = of.kind ? of.kind : RTN_UNICAST;
    m.rtm_protocol = RTPROT_BOOT;
    m.rtm_scope = of.scope ? of.scope : of.via || m.rtm_type != RTN_UNICAST ? RT_SCOPE_UNIVERSE : RT_SCOPE_LINK;
    if (type == RTM_DELROUTE)
        m.rtm_scope = RT_SCOPE_NOWHERE, m.rtm_protocol = 0, m.rtm_type = of.kind;
    struct request r = begin(type, flags, &m, sizeof m);
    if (of.to)
        add_address(&r, RTA_DST, of.to);
    if (of.via)
        add_address(&r, RTA_GATEWAY, of.via);
    if (of.from)
        add_address(&r, RTA_PREFSRC, of.from);
    if (of.name)
        add_number(&r, RTA_OIF, link_index(of.name));
    if (of.metric)
        add_number(&r, RTA_PRIORITY, of.metric);
    return ask(&r);
}

#define ADD (NLM_F_CREATE | NLM_F_EXCL)
