// SPDX-License-Identifier: Apache-2.0 OR MIT
// The UDP key-value store, second stage: a socket, and as many datagrams as wait, by recvmmsg(2) and sendmmsg(2).
#define _GNU_SOURCE
#include "store.h"
#include <arpa/inet.h>
#include <sys/socket.h>

enum { BATCH = 64 };

int main(int count, char **words) {
    wanted = count > 1 ? atol(words[1]) : 0;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in here = { .sin_family = AF_INET, .sin_port = htons(PORT) };
    if (fd < 0 || bind(fd, (struct sockaddr *)&here, sizeof here) < 0) {
        perror("store: port 7000");
        return 1;
    }
    static uint8_t data[BATCH][2048];
    static struct sockaddr_in from[BATCH];
    static struct iovec parts[BATCH];
    static struct mmsghdr messages[BATCH];
    for (;;) {
        for (int i = 0; i < BATCH; i++) {
            parts[i] = (struct iovec){ data[i], sizeof data[i] };
            messages[i].msg_hdr = (struct msghdr){
                .msg_name = &from[i], .msg_namelen = sizeof from[i], .msg_iov = &parts[i], .msg_iovlen = 1 };
        }
        int came = recvmmsg(fd, messages, BATCH, MSG_WAITFORONE, NULL);
        if (came <= 0)
            continue;
        for (int i = 0; i < came; i++)
            parts[i].iov_len = store_answer(data[i], messages[i].msg_len);
        sendmmsg(fd, messages, (unsigned)came, 0);
        count_answers((unsigned)came);
    }
}
