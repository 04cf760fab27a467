/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * eBPF programs for running machines: `clang -target bpf -g -O2 -I overlay/include -c x.c`, then
 * `unilith trace MACHINE x.o`. docs/how-to/trace.md shows one; docs/reference/tracing.md has all helpers and contexts.
 *
 * The structures are Linux', and so are the numbers of the helpers: programs that use <linux/bpf.h> and libbpf's
 * headers instead work as well. A member is found by its name (CO-RE), so a program may declare only what it uses.
 */
#ifndef UNILITH_BPF_H
#define UNILITH_BPF_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed int __s32;
typedef signed long long __s64;

/*
 * Where a program goes: SEC("entry/FUNCTION"), SEC("return/FUNCTION"), of the kernel SEC("entry/kernel:FUNCTION"),
 * SEC("tp/GROUP/TRACEPOINT"), SEC("perf_event") 99 times a second while the processor is busy.
 */
#define SEC(name) __attribute__((section(name), used))
/* A symbol of the machine: `extern int counter __ksym;`, whose address is &counter. */
#define __ksym __attribute__((section(".ksyms")))
#define __always_inline inline __attribute__((always_inline))

/*
 * A map:
 *     struct {
 *         __uint(type, BPF_MAP_TYPE_HASH);
 *         __uint(max_entries, 1024);
 *         __type(key, __u32);
 *         __type(value, __u64);
 *     } calls SEC(".maps");
 */
#define __uint(name, number) int (*name)[number]
#define __type(name, of) of *name

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_STACK_TRACE = 7,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_EXIST = 2,
};

/* Flags of bpf_get_stackid and bpf_get_stack; the low byte is how many frames are left out. */
#define BPF_F_USER_STACK (1ULL << 8)
#define BPF_F_REUSE_STACKID (1ULL << 10)

#define __context __attribute__((preserve_access_index))

/* Entry to and return from a function; what a sample hit. */
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
	unsigned long orig_ax, ip, cs, flags, sp, ss;
} __context;

/* Arguments of a function (System V ABI 3.2.3), and what it returns. */
#define ARG0(ctx) ((ctx)->di)
#define ARG1(ctx) ((ctx)->si)
#define ARG2(ctx) ((ctx)->dx)
#define ARG3(ctx) ((ctx)->cx)
#define ARG4(ctx) ((ctx)->r8)
#define ARG5(ctx) ((ctx)->r9)
#define RESULT(ctx) ((ctx)->ax)

/* tp/raw_syscalls/sys_enter */
struct trace_event_raw_sys_enter {
	__u64 ent;
	long id;
	unsigned long args[6];
} __context;

/* tp/raw_syscalls/sys_exit */
struct trace_event_raw_sys_exit {
	__u64 ent;
	long id;
	long ret;
} __context;

/* tp/sched/sched_switch */
struct trace_event_raw_sched_switch {
	__u64 ent;
	char prev_comm[16];
	int prev_pid;
	int prev_prio;
	long prev_state;
	char next_comm[16];
	int next_pid;
	int next_prio;
} __context;

/* tp/sched/sched_wakeup */
struct trace_event_raw_sched_wakeup_template {
	__u64 ent;
	char comm[16];
	int pid;
	int prio;
	int target_cpu;
} __context;

/* tp/exceptions/page_fault_user; the code has 2 of a write and 16 of an instruction. */
struct trace_event_raw_x86_exceptions {
	__u64 ent;
	unsigned long address;
	unsigned long ip;
	unsigned long error_code;
} __context;

/* tp/net/receive, tp/net/send: the bytes of the first buffer, and the length of the whole frame. */
struct unilith_packet {
	void *data;
	void *data_end;
	__u32 len;
} __context;

/* Maps. A look-up answers a pointer to the value, or null. */
static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;
static long (*const bpf_map_delete_elem)(void *map, const void *key) = (void *)3;

/* Memory of the program or the kernel; zeros and -EFAULT where there is none. */
static long (*const bpf_probe_read)(void *to, __u32 size, const void *from) = (void *)4;
static long (*const bpf_probe_read_str)(void *to, __u32 size, const void *from) = (void *)45;
static long (*const bpf_probe_read_user)(void *to, __u32 size, const void *from) = (void *)112;
static long (*const bpf_probe_read_kernel)(void *to, __u32 size, const void *from) = (void *)113;
static long (*const bpf_probe_read_user_str)(void *to, __u32 size, const void *from) = (void *)114;
static long (*const bpf_probe_read_kernel_str)(void *to, __u32 size, const void *from) = (void *)115;

static __u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static __u64 (*const bpf_ktime_get_boot_ns)(void) = (void *)125;
static __u32 (*const bpf_get_prandom_u32)(void) = (void *)7;
static __u32 (*const bpf_get_smp_processor_id)(void) = (void *)8;
/* Process id in the upper half, thread id in the lower. */
static __u64 (*const bpf_get_current_pid_tgid)(void) = (void *)14;
static __u64 (*const bpf_get_current_uid_gid)(void) = (void *)15;
static long (*const bpf_get_current_comm)(void *to, __u32 size) = (void *)16;
/* Address of the probed function. */
static __u64 (*const bpf_get_func_ip)(void *ctx) = (void *)173;

static long (*const bpf_get_stackid)(void *ctx, void *map, __u64 flags) = (void *)27;
static long (*const bpf_get_stack)(void *ctx, void *to, __u32 size, __u64 flags) = (void *)67;

/* A line for who traces: %d %u %x %s %p, at most three of them. */
static long (*const bpf_trace_printk)(const char *format, __u32 size, ...) = (void *)6;
#define bpf_printk(text, ...)                                                       \
	({                                                                          \
		static const char _format[] = text;                                 \
		bpf_trace_printk(_format, sizeof(_format), ##__VA_ARGS__);          \
	})

static long (*const bpf_ringbuf_output)(void *map, const void *record, __u64 size, __u64 flags) = (void *)130;
static void *(*const bpf_ringbuf_reserve)(void *map, __u64 size, __u64 flags) = (void *)131;
static void (*const bpf_ringbuf_submit)(void *record, __u64 flags) = (void *)132;
static void (*const bpf_ringbuf_discard)(void *record, __u64 flags) = (void *)133;
static __u64 (*const bpf_ringbuf_query)(void *map, __u64 what) = (void *)134;

/* Not Linux': a line without a format. */
static long (*const unilith_puts)(const char *text, __u32 size) = (void *)0x1007;

/* Not Linux': registers of the program, where the kernel was hit those with which it was entered. */
static long (*const unilith_program_regs)(void *ctx, struct pt_regs *to, __u32 size) = (void *)0x1100;

#endif
