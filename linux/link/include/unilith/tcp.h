/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Connections over TCP and IPv4 by the kernel's own tcp_recvmsg and tcp_sendmsg, for programs that are linked into Linux:
 * without descriptor, file, socket and address family between the call and the routine (UKL, EuroSys '23, 5.1: Redis'
 * ten lines).
 *
 *	struct unilith_tcp *tcp = unilith_tcp_open(fd);
 *	ssize_t got = tcp ? unilith_tcp_receive(tcp, buffer, size, MSG_DONTWAIT) : read(fd, buffer, size);
 *	...
 *	unilith_tcp_close(tcp);
 *	close(fd);
 *
 * What comes back is what recv(2) and send(2) return, errno included. That holds as long as the program keeps these rules,
 * which nobody checks for it:
 *  - `tcp` is closed before its descriptor is. It holds no reference, so that a program that is killed leaves no
 *    connection open; what it leaves is the kernel's memory that `tcp` lies in, 256 bytes.
 *  - One thread receives and one sends at a time. A child of fork(2) has the parent's descriptors but not its `tcp`, which
 *    is not private to it as its own memory is: it neither uses nor closes it.
 *  - O_NONBLOCK is not looked at: MSG_DONTWAIT says it. A call that waits and is interrupted by a signal ends with EINTR,
 *    SA_RESTART or not.
 *  - A connection that was given other routines (TCP_ULP) must not have a `tcp`.
 */
#ifndef UNILITH_TCP_H
#define UNILITH_TCP_H

#include <errno.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unilith/kernel.h>

UNILITH_KERNEL(fget);
UNILITH_KERNEL(fput);
UNILITH_KERNEL(inet_stream_ops);
UNILITH_KERNEL(kfree);
UNILITH_KERNEL(memdup_user);
UNILITH_KERNEL(sock_from_file);
UNILITH_KERNEL(tcp_recvmsg);
UNILITH_KERNEL(tcp_sendmsg);

/* `unilith linux cc --linux 6.12` defines it as 612. */
#ifndef UNILITH_LINUX
#define UNILITH_LINUX 601
#endif

enum {
	UNILITH_ITER_UBUF = UNILITH_LINUX >= 612 ? 0 : 6,	/* enum iter_type, include/linux/uio.h */
	UNILITH_ERESTARTSYS = 512,	/* include/linux/errno.h */
	UNILITH_MAX_RW_COUNT = 0x7ffff000,
};

/* struct msghdr (include/linux/socket.h), with its struct iov_iter (include/linux/uio.h). */
struct unilith_message {
	void *name;
	int name_length, more;
	struct {
#if UNILITH_LINUX >= 612
		unsigned char type, no_fault, is_source;
		size_t offset;
		const void *area;
		size_t count;
#else
		unsigned char type, no_fault, is_source, is_program;
		size_t offset, count;
		const void *area;
#endif
		unsigned long segments;
	} data;
	void *control;
	unsigned char control_bits;
	unsigned int flags;
	size_t control_length;
	void *unused[3];
};

/* Lies in the kernel's memory: its functions do not read the program's but by copying. */
struct unilith_tcp {
	void *sock;
	struct unilith_message in, out;
};

/* The beginning of struct socket (include/linux/net.h). */
struct unilith_socket {
	int state;
	short type;
	unsigned long flags;
	void *file, *sock;
	const void *operations;
};

/* NULL if the descriptor is not one of TCP over IPv4, or no memory is left. */
static inline struct unilith_tcp *unilith_tcp_open(int fd)
{
	struct unilith_tcp tcp = {.in.data = {.type = UNILITH_ITER_UBUF},
				  .out.data = {.type = UNILITH_ITER_UBUF, .is_source = 1}};
	void *file = (void *)unilith_kernel(fget, fd, 0, 0, 0, 0);
	const struct unilith_socket *socket;
	unsigned long copy;

	if (!file)
		return NULL;
	socket = (const struct unilith_socket *)unilith_kernel(sock_from_file, file, 0, 0, 0, 0);
	if (socket && socket->operations == unilith_kernel_inet_stream_ops)
		tcp.sock = socket->sock;
	unilith_kernel(fput, file, 0, 0, 0, 0);
	if (!tcp.sock)
		return NULL;
#if UNILITH_LINUX >= 612
	tcp.in.data.segments = tcp.out.data.segments = 1;
#else
	tcp.in.data.is_program = tcp.out.data.is_program = 1;
#endif
	copy = unilith_kernel(memdup_user, &tcp, sizeof tcp, 0, 0, 0);
	/* Errors are the last 4095 addresses. */
	return copy < -4095UL ? (struct unilith_tcp *)copy : NULL;
}

static inline void unilith_tcp_close(struct unilith_tcp *tcp)
{
	if (tcp)
		unilith_kernel(kfree, tcp, 0, 0, 0, 0);
}

static inline void unilith_tcp_fill(struct unilith_message *message, const void *area, size_t length, int flags)
{
	message->flags = flags;
	message->data.offset = 0;
	message->data.count = length < UNILITH_MAX_RW_COUNT ? length : UNILITH_MAX_RW_COUNT;
	message->data.area = area;
}

/* These functions return int: the upper half of the register is anything. */
static inline ssize_t unilith_tcp_result(int result)
{
	if (result >= 0)
		return result;
	errno = result == -UNILITH_ERESTARTSYS ? EINTR : -result;
	return -1;
}

static inline ssize_t unilith_tcp_receive(struct unilith_tcp *tcp, void *to, size_t length, int flags)
{
	struct unilith_message *in = &tcp->in;

	unilith_tcp_fill(in, to, length, 0);
	return unilith_tcp_result(unilith_kernel(tcp_recvmsg, tcp->sock, in, in->data.count, flags, &in->name_length));
}

static inline ssize_t unilith_tcp_send(struct unilith_tcp *tcp, const void *from, size_t length, int flags)
{
	struct unilith_message *out = &tcp->out;

	unilith_tcp_fill(out, from, length, flags);
	return unilith_tcp_result(unilith_kernel(tcp_sendmsg, tcp->sock, out, out->data.count, 0, 0));
}

#endif
