// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * suite LIST SECONDS AT-ONCE: runs the programs of a list, so many at once, each in a process group of its
 * own and for so many seconds at most. A line of the list is a program and its arguments, with tabs between. Prints a line for each that ends: how, its
 * name, and of one that fails what it said last.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 32, WORDS = 8, LINE = 512 };

static struct job {
	pid_t pid;
	time_t end;
	int late;
	char name[LINE];
} jobs[MOST];

static time_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec;
}

static void path_of(char *path, int slot)
{
	snprintf(path, LINE, "/tmp/said%d", slot);
}

static void child(int slot, char *line)
{
	char *words[WORDS + 1] = {0}, path[LINE];
	int out;
	for (int i = 0; i < WORDS && (words[i] = strtok(i ? NULL : line, "\t")); i++)
		;
	setpgid(0, 0);
	path_of(path, slot);
	out = open(path, O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644);
	if (out < 0)
		_exit(126);
	dup2(out, 1);
	dup2(out, 2);
	close(out);
	execv(words[0], words);
	_exit(127);
}

/* The last words of what it printed, in one line. */
static void print_said(int slot)
{
	char text[200], path[LINE];
	ssize_t length = 0;
	int file;
	path_of(path, slot);
	file = open(path, O_RDONLY);
	if (file < 0)
		return;
	lseek(file, -(off_t)sizeof text, SEEK_END);
	length = read(file, text, sizeof text);
	close(file);
	for (ssize_t i = 0; i < length; i++)
		putchar(text[i] < ' ' ? ' ' : text[i]);
}

static void ended(int slot, int status)
{
	struct job *job = &jobs[slot];
	const char *how = job->late ? "LATE" : status == 0 ? "PASS" : WIFEXITED(status) && WEXITSTATUS(status) == 77 ? "SKIP" : "FAIL";
	/* What it left behind. */
	kill(-job->pid, SIGKILL);
	printf("%s %s", how, job->name);
	if (strcmp(how, "PASS")) {
		printf(" %s %d: ", WIFSIGNALED(status) ? "signal" : "code", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		print_said(slot);
	}
	putchar('\n');
	fflush(stdout);
	job->pid = 0;
}

int main(int argc, char **argv)
{
	char line[LINE];
	int seconds, at_once, running = 0, more = 1;
	FILE *list = argc == 4 ? fopen(argv[1], "r") : NULL;
	if (!list)
		return 2;
	seconds = atoi(argv[2]);
	at_once = atoi(argv[3]) < MOST ? atoi(argv[3]) : MOST;
	while (more || running) {
		int status, slot = 0;
		pid_t pid;
		while (slot < at_once && jobs[slot].pid)
			slot++;
		if (more && slot < at_once) {
			if (!fgets(line, sizeof line, list)) {
				more = 0;
				continue;
			}
			line[strcspn(line, "\n")] = 0;
			snprintf(jobs[slot].name, LINE, "%.*s", (int)strcspn(line, "\t"), line);
			jobs[slot].late = 0;
			jobs[slot].end = now() + seconds;
			fflush(stdout);
			pid = fork();
			if (!pid)
				child(slot, line);
			if (pid < 0)
				return 3;
			jobs[slot].pid = pid;
			running++;
			continue;
		}
		pid = waitpid(-1, &status, WNOHANG);
		for (slot = 0; pid > 0 && slot < MOST; slot++)
			if (jobs[slot].pid == pid) {
				ended(slot, status);
				running--;
			}
		if (pid > 0)
			continue;
		for (slot = 0; slot < MOST; slot++)
			if (jobs[slot].pid && !jobs[slot].late && now() > jobs[slot].end) {
				jobs[slot].late = 1;
				kill(-jobs[slot].pid, SIGKILL);
			}
		usleep(5000);
	}
	return 0;
}
