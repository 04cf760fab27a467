// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * sockets.c again by a program that is linked into the kernel: whatever is a connection, and only that, is received from and
 * sent to by unilith/tcp.h.
 */
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <unilith/tcp.h>
#include <unistd.h>

static atomic_int calls;

static int waiting(int fd, int flags)
{
	return fcntl(fd, F_GETFL) & O_NONBLOCK ? flags | MSG_DONTWAIT : flags;
}

static ssize_t named_recv(int fd, void *to, size_t length, int flags)
{
	struct unilith_tcp *tcp = unilith_tcp_open(fd);
	ssize_t got = tcp ? unilith_tcp_receive(tcp, to, length, waiting(fd, flags)) : recv(fd, to, length, flags);
	calls += tcp != NULL;
	unilith_tcp_close(tcp);
	return got;
}

static ssize_t named_send(int fd, const void *from, size_t length, int flags)
{
	struct unilith_tcp *tcp = unilith_tcp_open(fd);
	ssize_t sent = tcp ? unilith_tcp_send(tcp, from, length, waiting(fd, flags)) : send(fd, from, length, flags);
	calls += tcp != NULL;
	unilith_tcp_close(tcp);
	return sent;
}

static ssize_t named_read(int fd, void *to, size_t length)
{
	struct unilith_tcp *tcp = length ? unilith_tcp_open(fd) : NULL;
	if (!tcp)
		return read(fd, to, length);
	unilith_tcp_close(tcp);
	return named_recv(fd, to, length, 0);
}

static ssize_t named_write(int fd, const void *from, size_t length)
{
	struct unilith_tcp *tcp = unilith_tcp_open(fd);
	if (!tcp)
		return write(fd, from, length);
	unilith_tcp_close(tcp);
	return named_send(fd, from, length, 0);
}

#define recv named_recv
#define send named_send
#define read named_read
#define write named_write
#define main sockets_main
#include "sockets.c"
#undef main

static void only_connections(void)
{
	const int kinds[][2] = {{AF_UNIX, SOCK_STREAM}, {AF_INET, SOCK_DGRAM}, {AF_INET6, SOCK_STREAM}};
	CHECK(!unilith_tcp_open(-1) && !unilith_tcp_open(0));
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		int other = socket(kinds[i][0], kinds[i][1], 0);
		CHECK(other >= 0 && !unilith_tcp_open(other));
		close(other);
	}
}

/* Waiting ends with a signal, and with what comes late. */
static void waits(void)
{
	struct sigaction again = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	int status;

	connect_both();
	CHECK(sigaction(SIGALRM, &again, NULL) == 0);
	alarm(1);
	CHECK(recv(far, buffer, 1, 0) == -1 && errno == EINTR && signals == 1);
	signal(SIGALRM, SIG_DFL);
	pid_t late = fork();
	if (!late) {
		usleep(50000);
		_exit(send(near, "late", 4, 0) != 4);
	}
	CHECK(recv(far, buffer, 10, 0) == 4 && !memcmp(buffer, "late", 4));
	CHECK(waitpid(late, &status, 0) == late && status == 0);
	close_both();
}

int main(void)
{
	only_connections();
	waits();
	CHECK(sockets_main() == 0 && calls > 1000);
	return 0;
}
