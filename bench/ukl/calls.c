// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * calls [COUNT]: the papers' calls (UKL, EuroSys '23, figures 3 and 4, table 2), each on a line with the nanoseconds it takes: the least
 * of several averages over COUNT calls (512), without the loop's own. Under QEMU's -icount a nanosecond is an
 * instruction. The first line names the clock: one that only ticks measures nothing here.
 *
 * NAME-BYTES: read from /dev/zero; write to /dev/null; send and recv, each timed alone, on a TCP connection of the
 * loopback device; tcp, a request and its answer on it. fault-PAGES: the first touch of so many pages.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 7, MOST = 8192 };

static char buffer[MOST];
static int count = 512;
static size_t bytes;
static int in, out, near, far;

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

/* One side's nanoseconds of `calls` calls; the other side of send and recv is not timed. */
typedef double measure(int calls);

static double nothing(int calls)
{
	double from = now();
	for (int i = 0; i < calls; i++)
		__asm__ volatile("" : : : "memory");
	return now() - from;
}

#define TIMED(name, statement)                                                                                       \
	static double name(int calls)                                                                                \
	{                                                                                                            \
		double from = now();                                                                                 \
		for (int i = 0; i < calls; i++)                                                                      \
			statement;                                                                                   \
		return now() - from;                                                                                 \
	}

static void all(ssize_t done)
{
	if (done == (ssize_t)bytes)
		return;
	perror("calls");
	exit(1);
}

static void receive(int from)
{
	for (size_t got = 0; got < bytes;) {
		ssize_t more = recv(from, buffer, bytes - got, 0);
		if (more <= 0)
			all(more);
		got += more;
	}
}

TIMED(call_getppid, (void)getppid())
TIMED(call_read, all(read(in, buffer, bytes)))
TIMED(call_write, all(write(out, buffer, bytes)))

/* A few messages at a time, so that they fit the socket's memory. */
static double one_side(int calls, int receiving)
{
	int batch = bytes > 4096 ? 2 : 8;
	double sum = 0;
	for (int i = 0; i < calls; i += batch) {
		double from = now();
		for (int n = 0; n < batch; n++)
			all(send(near, buffer, bytes, 0));
		double middle = now();
		for (int n = 0; n < batch; n++)
			receive(far);
		sum += receiving ? now() - middle : middle - from;
	}
	return sum;
}

static double call_send(int calls) { return one_side(calls, 0); }
static double call_recv(int calls) { return one_side(calls, 1); }

TIMED(call_tcp, (all(send(near, buffer, bytes, 0)), receive(far), all(send(far, buffer, bytes, 0)), receive(near)))

/* Behind a page that stays, so that the page table does too: what is measured is the fault of a page alone. */
static double call_fault(int calls)
{
	enum { TABLE = 1 << 21, FLAGS = MAP_PRIVATE | MAP_ANONYMOUS };
	static char *neighbour;
	double sum = 0;
	if (!neighbour) {
		char *area = mmap(NULL, 2 * TABLE, PROT_READ | PROT_WRITE, FLAGS, -1, 0);
		if (area == MAP_FAILED)
			all(-1);
		neighbour = area + (TABLE - (uintptr_t)area % TABLE);
		*neighbour = 1;
	}
	for (int i = 0; i < calls; i += 8) {
		char *memory = mmap(neighbour + 4096, bytes, PROT_READ | PROT_WRITE, FLAGS | MAP_FIXED, -1, 0);
		if (memory == MAP_FAILED)
			all(-1);
		double from = now();
		for (size_t at = 0; at < bytes; at += 4096)
			*(volatile char *)(memory + at) = 1;
		sum += (now() - from) * 8;
		munmap(memory, bytes);
	}
	return sum;
}

static void connect_both(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
	near = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (void *)&address, sizeof address) || listen(listener, 1) ||
	    getsockname(listener, (void *)&address, &length) || connect(near, (void *)&address, length))
		all(-1);
	far = accept(listener, NULL, NULL);
	setsockopt(near, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
	setsockopt(far, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

static double least(measure *call)
{
	double least = 1e18;
	for (int round = 0; round < ROUNDS; round++) {
		double each = call(count) / count;
		least = each < least ? each : least;
	}
	return least;
}

static void print(const char *name, unsigned number, measure *call, double loop)
{
	printf("%s-%u %.1f\n", name, number, least(call) - loop);
	fflush(stdout);
}

static void print_clock(void)
{
	char name[64] = "";
	int file = open("/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY);
	if (file >= 0 && read(file, name, sizeof name - 1) > 0)
		printf("clock %s", name);
	close(file);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		measure *call;
	} calls[] = {{"read", call_read}, {"write", call_write}, {"send", call_send}, {"recv", call_recv}};
	static const unsigned sizes[] = {1, 1024, 8192};
	double loop;

	if (argc > 1)
		count = atoi(argv[1]);
	if (count < 8)
		return 1;
	print_clock();
	in = open("/dev/zero", O_RDONLY);
	out = open("/dev/null", O_WRONLY);
	if (in < 0 || out < 0)
		all(-1);
	connect_both();
	loop = least(nothing);
	print("getppid", 0, call_getppid, loop);
	for (unsigned size = 0; size < sizeof sizes / sizeof *sizes; size++) {
		bytes = sizes[size];
		for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++)
			print(calls[i].name, bytes, calls[i].call, loop);
	}
	bytes = 64;
	print("tcp", bytes, call_tcp, loop);
	for (unsigned pages = 1; pages <= 10; pages++) {
		bytes = pages * 4096;
		print("fault", pages, call_fault, loop);
	}
	return 0;
}
