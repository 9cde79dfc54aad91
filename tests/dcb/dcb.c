/* A kernel whose NIC knows DCB, for one process: loaded before libc (LD_PRELOAD), it answers the questions about DCB that
 * are sent over a netlink socket. The layout of the answer is the compiler's, from linux/dcbnl.h, so that our reader and
 * iproute2's are both held against the kernel's own headers. DCB_TRUST=1: a kernel that tells what a port trusts. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/dcbnl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define TRUST_TABLE 11 /* DCB_ATTR_DCB_APP_TRUST_TABLE since Linux 6.3 */

static char answer[4096];
static int asked = -1;

static int keep(int handle, const void *data, size_t length) {
    const struct nlmsghdr *request = data;
    if (length < NLMSG_HDRLEN || request->nlmsg_type != RTM_GETDCB) return 0;
    memset(answer, 0, sizeof answer);
    struct nlmsghdr *header = (void *)answer;
    struct dcbmsg *about = NLMSG_DATA(header);
    header->nlmsg_type = RTM_GETDCB;
    header->nlmsg_seq = request->nlmsg_seq;
    about->cmd = DCB_CMD_IEEE_GET;
    char *at = (char *)about + NLMSG_ALIGN(sizeof *about);
    struct nlattr *ieee = (void *)at;
    at += NLA_HDRLEN;
    struct nlattr *pfc = (void *)at;
    struct ieee_pfc *flow = (void *)(at + NLA_HDRLEN);
    flow->pfc_cap = 8, flow->pfc_en = 1 << 3 | 1 << 5, flow->delay = 7;
    flow->requests[3] = 41, flow->requests[5] = 1, flow->indications[3] = 17;
    pfc->nla_type = DCB_ATTR_IEEE_PFC, pfc->nla_len = NLA_HDRLEN + sizeof *flow;
    at += NLA_ALIGN(pfc->nla_len);
    struct dcb_app entries[] = {{5, 3, 26}, {5, 7, 48}, {3, 3, 4791}, {1, 0, 0x8915}};
    struct nlattr *table = (void *)at;
    at += NLA_HDRLEN;
    for (unsigned each = 0; each < sizeof entries / sizeof *entries; each++) {
        struct nlattr *entry = (void *)at;
        entry->nla_type = DCB_ATTR_IEEE_APP, entry->nla_len = NLA_HDRLEN + sizeof *entries;
        memcpy(at + NLA_HDRLEN, &entries[each], sizeof *entries);
        at += NLA_ALIGN(entry->nla_len);
    }
    table->nla_type = DCB_ATTR_IEEE_APP_TABLE | NLA_F_NESTED, table->nla_len = at - (char *)table;
    if (getenv("DCB_TRUST")) {
        struct nlattr *trust = (void *)at, *first = (void *)(at + NLA_HDRLEN);
        first->nla_type = DCB_ATTR_IEEE_APP, first->nla_len = NLA_HDRLEN + 1;
        ((char *)first)[NLA_HDRLEN] = IEEE_8021QAZ_APP_SEL_DSCP;
        at += NLA_HDRLEN + NLA_ALIGN(first->nla_len);
        trust->nla_type = TRUST_TABLE | NLA_F_NESTED, trust->nla_len = at - (char *)trust;
    }
    ieee->nla_type = DCB_ATTR_IEEE, ieee->nla_len = at - (char *)ieee;
    header->nlmsg_len = at - answer;
    asked = handle;
    return 1;
}

static ssize_t give(void *buffer, size_t room) {
    size_t length = ((struct nlmsghdr *)answer)->nlmsg_len;
    asked = -1;
    memcpy(buffer, answer, length < room ? length : room);
    return length;
}

ssize_t send(int handle, const void *data, size_t length, int flags) {
    ssize_t (*next)(int, const void *, size_t, int) = dlsym(RTLD_NEXT, "send");
    return keep(handle, data, length) ? (ssize_t)length : next(handle, data, length, flags);
}

ssize_t sendto(int handle, const void *data, size_t length, int flags, const struct sockaddr *to, socklen_t size) {
    ssize_t (*next)(int, const void *, size_t, int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "sendto");
    return keep(handle, data, length) ? (ssize_t)length : next(handle, data, length, flags, to, size);
}

int poll(struct pollfd *handles, nfds_t count, int wait) {
    int (*next)(struct pollfd *, nfds_t, int) = dlsym(RTLD_NEXT, "poll");
    if (count != 1 || handles->fd != asked) return next(handles, count, wait);
    handles->revents = handles->events;
    return 1;
}

ssize_t recv(int handle, void *buffer, size_t room, int flags) {
    ssize_t (*next)(int, void *, size_t, int) = dlsym(RTLD_NEXT, "recv");
    return handle == asked ? give(buffer, room) : next(handle, buffer, room, flags);
}

ssize_t recvmsg(int handle, struct msghdr *message, int flags) {
    ssize_t (*next)(int, struct msghdr *, int) = dlsym(RTLD_NEXT, "recvmsg");
    if (handle != asked) return next(handle, message, flags);
    struct sockaddr_nl *from = message->msg_name;
    if (from) *from = (struct sockaddr_nl){.nl_family = AF_NETLINK}, message->msg_namelen = sizeof *from;
    message->msg_flags = 0;
    return give(message->msg_iov->iov_base, message->msg_iov->iov_len);
}
