// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The echo server of HotOS '19, figure 1: one connection after the other on port 7, and what comes goes back. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PORT = 7 };

static int fail(const char *what)
{
	perror(what);
	return 1;
}

int main(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
	char buffer[4096];

	if (listener < 0 || bind(listener, (void *)&address, sizeof address) || listen(listener, 4))
		return fail("listen");
	for (;;) {
		int client = accept(listener, NULL, NULL);
		ssize_t got;
		if (client < 0)
			return fail("accept");
		setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
		/* A client that goes away in the middle is no reason to end. */
		while ((got = recv(client, buffer, sizeof buffer, 0)) > 0)
			if (send(client, buffer, got, MSG_NOSIGNAL) != got)
				break;
		close(client);
	}
}
