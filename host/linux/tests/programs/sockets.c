// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * TCP and devices by read, write, send and recv in the cases that a shortcut could get wrong: each must be what it is
 * without one. Prints "all well".
 */
#define _GNU_SOURCE
#include "check.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LARGE = 3 << 20 };

static int near, far;
static char buffer[65536];
static volatile sig_atomic_t signals;

static void on_signal(int signal)
{
	(void)signal;
	signals++;
}

static void connect_both(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
	near = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(bind(listener, (void *)&address, length) == 0 && listen(listener, 1) == 0);
	CHECK(getsockname(listener, (void *)&address, &length) == 0);
	CHECK(connect(near, (void *)&address, length) == 0);
	far = accept(listener, NULL, NULL);
	CHECK(far >= 0);
	close(listener);
	CHECK(setsockopt(near, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) == 0);
	CHECK(setsockopt(far, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) == 0);
}

static void close_both(void)
{
	close(near);
	close(far);
}

/*
 * Waits until so many bytes can be read. What the sender has handed over is there at once, as a rule, but where the kernel is slow
 * a thread of its own (ksoftirqd) takes over what is between.
 */
static void arrived(int socket, int bytes)
{
	for (int ready = 0; ready < bytes; usleep(1000))
		CHECK(ioctl(socket, FIONREAD, &ready) == 0);
}

static void parts_and_flags(void)
{
	char *missing = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct iovec two[] = {{buffer, 3}, {buffer + 100, 10}};

	connect_both();
	CHECK(send(near, "abcdef", 6, 0) == 6);
	CHECK(recv(far, buffer, 2, 0) == 2 && !memcmp(buffer, "ab", 2));
	CHECK(recv(far, buffer, 2, MSG_PEEK) == 2 && !memcmp(buffer, "cd", 2));
	/* A page that is not there yet is brought in; one that cannot be is an error that takes nothing. */
	CHECK(recv(far, missing + 4096, 1, 0) == 1 && missing[4096] == 'c');
	CHECK(munmap(missing, 4096) == 0);
	CHECK(recv(far, missing, 1, 0) == -1 && errno == EFAULT);
	CHECK(read(far, (void *)-4096L, 1) == -1 && errno == EFAULT);
	CHECK(readv(far, two, 2) == 3 && !memcmp(buffer, "def", 3));
	CHECK(recv(far, buffer, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	CHECK(read(far, buffer, 0) == 0);
	CHECK(send(near, missing, 1, 0) == -1 && errno == EFAULT);
	/* Several segments at once. */
	CHECK(send(near, "12", 2, 0) == 2 && write(near, "34", 2) == 2);
	arrived(far, 4);
	CHECK(recv(far, buffer, 10, MSG_WAITALL | MSG_DONTWAIT) == 4 && !memcmp(buffer, "1234", 4));
	/* Out of band. */
	CHECK(send(near, "xyZ", 3, MSG_OOB) == 3);
	int mark = 0, two_bytes = 0;
	CHECK(recv(far, buffer, 10, 0) == 2 && !memcmp(buffer, "xy", 2));
	CHECK(ioctl(far, SIOCATMARK, &mark) == 0 && mark == 1);
	CHECK(recv(far, buffer, 1, MSG_OOB) == 1 && buffer[0] == 'Z');
	CHECK(send(near, "q", 1, 0) == 1 && recv(far, buffer, 10, 0) == 1 && buffer[0] == 'q');
	/* The least to wait for. */
	int least = 4;
	CHECK(setsockopt(far, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least) == 0);
	pid_t late = fork();
	if (!late) {
		usleep(50000);
		_exit(send(near, "rest", 4, 0) != 4);
	}
	CHECK(send(near, "12", 2, 0) == 2);
	CHECK(recv(far, buffer, 100, 0) == 6 && !memcmp(buffer, "12rest", 6));
	CHECK(waitpid(late, &two_bytes, 0) == late && two_bytes == 0);
	close_both();
}

static void ends_and_errors(void)
{
	struct linger now = {.l_onoff = 1};
	int file = -1;

	connect_both();
	CHECK(send(near, "end", 3, 0) == 3 && shutdown(near, SHUT_WR) == 0);
	CHECK(read(far, buffer, 10) == 3 && read(far, buffer, 10) == 0 && recv(far, buffer, 10, 0) == 0);
	/* The other direction is open. */
	CHECK(write(far, "back", 4) == 4 && recv(near, buffer, 10, 0) == 4);
	CHECK(send(near, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE && signals == 0);
	CHECK(write(near, "x", 1) == -1 && errno == EPIPE && signals == 1);
	close_both();

	connect_both();
	CHECK(send(near, "lost", 4, 0) == 4);
	CHECK(setsockopt(near, SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0 && close(near) == 0);
	CHECK(recv(far, buffer, 10, 0) == 4);
	CHECK(recv(far, buffer, 10, 0) == -1 && errno == ECONNRESET);
	close(far);

	CHECK(read(file, buffer, 1) == -1 && errno == EBADF);
	CHECK(send(file, buffer, 1, 0) == -1 && errno == EBADF);
	file = open("/dev/null", O_RDONLY);
	CHECK(write(file, buffer, 1) == -1 && errno == EBADF);
	CHECK(send(file, buffer, 1, 0) == -1 && errno == ENOTSOCK);
	CHECK(recv(file, buffer, 1, 0) == -1 && errno == ENOTSOCK);
	CHECK(read(file, buffer, 10) == 0);
	close(file);
	file = open("/dev/zero", O_RDWR);
	CHECK(read(file, (void *)-4096L, 1) == -1 && errno == EFAULT);
	CHECK(write(file, buffer, 7) == 7);
	close(file);
	CHECK(getppid() != getpid());
}

/* Both directions at once, with threads that block, poll and do not wait. */
static void *produce(void *socket)
{
	char *data = malloc(LARGE);
	for (int i = 0; i < LARGE; i++)
		data[i] = i * 7 + i / 4096;
	for (int at = 0; at < LARGE;) {
		ssize_t sent = send(*(int *)socket, data + at, LARGE - at < 50000 ? LARGE - at : 50000, 0);
		CHECK(sent > 0);
		at += sent;
	}
	free(data);
	return NULL;
}

static void *consume(void *socket)
{
	int from = *(int *)socket;
	char *into = malloc(8000);
	for (int at = 0; at < LARGE;) {
		struct pollfd ready = {.fd = from, .events = POLLIN};
		CHECK(poll(&ready, 1, 10000) == 1);
		ssize_t got = at % 3 ? recv(from, into, 1 + at % 7919, MSG_DONTWAIT) : read(from, into, 8000);
		CHECK(got > 0);
		for (int i = 0; i < got; i++, at++)
			CHECK(into[i] == (char)(at * 7 + at / 4096));
	}
	free(into);
	return NULL;
}

static void both_directions(void)
{
	pthread_t threads[4];
	connect_both();
	CHECK(pthread_create(&threads[0], NULL, consume, &near) == 0);
	CHECK(pthread_create(&threads[1], NULL, consume, &far) == 0);
	CHECK(pthread_create(&threads[2], NULL, produce, &near) == 0);
	CHECK(pthread_create(&threads[3], NULL, produce, &far) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	close_both();
}

/* What is captured, goes through the device. */
static void captured(void)
{
	int capture = socket(AF_PACKET, SOCK_RAW, htons(0x0003));
	int seen = 0;
	connect_both();
	CHECK(capture >= 0);
	CHECK(send(near, "look here", 9, 0) == 9 && recv(far, buffer, 100, 0) == 9);
	for (ssize_t got; (got = recv(capture, buffer, sizeof buffer, MSG_DONTWAIT)) > 0;)
		seen += memmem(buffer, got, "look here", 9) != NULL;
	CHECK(seen > 0);
	close(capture);
	close_both();
}

/*
 * Connections whose other end is no socket yet, but a request that waits for data: what goes to it must not look for a lock in
 * it. Several, as its timer is where a socket's lock is, and has a neighbour then.
 */
static void not_accepted_yet(void)
{
	enum { CONNECTIONS = 8 };
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	int listener = socket(AF_INET, SOCK_STREAM, 0), seconds = 10, clients[CONNECTIONS];
	CHECK(setsockopt(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds) == 0);
	CHECK(bind(listener, (void *)&address, length) == 0 && listen(listener, CONNECTIONS) == 0);
	CHECK(getsockname(listener, (void *)&address, &length) == 0);
	for (int i = 0; i < CONNECTIONS; i++) {
		clients[i] = socket(AF_INET, SOCK_STREAM, 0);
		CHECK(connect(clients[i], (void *)&address, length) == 0);
	}
	for (int i = 0; i < CONNECTIONS; i++)
		CHECK(write(clients[i], "x", 1) == 1);
	for (int i = 0; i < CONNECTIONS; i++) {
		int server = accept(listener, NULL, NULL);
		CHECK(server >= 0 && read(server, buffer, 2) == 1 && *buffer == 'x');
		close(server);
		close(clients[i]);
	}
	close(listener);
}

int main(void)
{
	signal(SIGPIPE, on_signal);
	alarm(60);
	for (int i = 0; i < 20; i++) {
		signals = 0;
		parts_and_flags();
		ends_and_errors();
	}
	not_accepted_yet();
	both_directions();
	captured();
	puts("all well");
	return 0;
}
