// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Starts redis-server and prints the nanoseconds of one request over the loopback device, the client's part included:
 * the least of several averages. Under QEMU's -icount a nanosecond is an instruction.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 5, REQUESTS = 500, PORT = 6379 };

static int server;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void request(const char *text, const char *answer)
{
	char buffer[64];
	size_t length = strlen(text), wanted = strlen(answer), got = 0;
	if (send(server, text, length, 0) != (ssize_t)length)
		fail("send");
	while (got < wanted) {
		ssize_t more = recv(server, buffer + got, sizeof buffer - got, 0);
		if (more <= 0)
			fail("recv");
		got += more;
	}
	if (got != wanted || memcmp(buffer, answer, wanted))
		fail("another answer");
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

static void measure(const char *name, const char *text, const char *answer)
{
	double least = 1e18;
	for (int round = 0; round < ROUNDS; round++) {
		double from = now();
		for (int i = 0; i < REQUESTS; i++)
			request(text, answer);
		double each = (now() - from) / REQUESTS;
		least = each < least ? each : least;
	}
	printf("%s %.0f\n", name, least);
}

int main(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	int yes = 1;
	pid_t child = fork();
	if (!child) {
		/* Its log is not the result. */
		execl("/usr/bin/redis-server", "redis-server", "--save", "", "--hz", "1", "--logfile", "/dev/null", NULL);
		fail("redis-server");
	}
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (int tries = 0;; tries++) {
		server = socket(AF_INET, SOCK_STREAM, 0);
		if (!connect(server, (void *)&address, sizeof address))
			break;
		close(server);
		if (tries == 200)
			fail("connect");
		usleep(50000);
	}
	setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
	measure("redis-set", "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\nabc\r\n", "+OK\r\n");
	measure("redis-get", "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "$3\r\nabc\r\n");
	kill(child, SIGKILL);
	return 0;
}
