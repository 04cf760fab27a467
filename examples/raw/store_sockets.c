// SPDX-License-Identifier: Apache-2.0 OR MIT
// The UDP key-value store, first stage: a socket, one datagram at a time.
#include "store.h"
#include <arpa/inet.h>
#include <sys/socket.h>

int main(int count, char **words) {
    wanted = count > 1 ? atol(words[1]) : 0;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in here = { .sin_family = AF_INET, .sin_port = htons(PORT) };
    if (fd < 0 || bind(fd, (struct sockaddr *)&here, sizeof here) < 0) {
        perror("store: port 7000");
        return 1;
    }
    for (;;) {
        uint8_t data[2048];
        struct sockaddr_in from;
        socklen_t size = sizeof from;
        ssize_t length = recvfrom(fd, data, sizeof data, 0, (struct sockaddr *)&from, &size);
        if (length < 0)
            continue;
        sendto(fd, data, store_answer(data, (unsigned)length), 0, (struct sockaddr *)&from, size);
        count_answers(1);
    }
}
