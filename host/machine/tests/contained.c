// SPDX-License-Identifier: Apache-2.0 OR MIT
// Says what a contained process sees of the world, or waits for its end (argument "wait").
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv) {
  if (argc > 1 && !strcmp(argv[1], "wait"))
    for (;;) pause();
  int entries = 0, descriptors = 0;
  DIR *root = opendir("/");
  for (struct dirent *e; root && (e = readdir(root));) entries += e->d_name[0] != '.';
  if (root) closedir(root);
  for (int fd = 0; fd < 1000; fd++) descriptors += fcntl(fd, F_GETFD) >= 0;
  struct rlimit open_files, core;
  getrlimit(RLIMIT_NOFILE, &open_files);
  getrlimit(RLIMIT_CORE, &core);
  // More private memory than a kernel has variables.
  void *memory = mmap(0, 32 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  printf("uid %d gid %d pid %d entries %d descriptors %d files %d core %d environment %d writes %d memory %d\n", getuid(),
         getgid(), getpid(), entries, descriptors, (int)open_files.rlim_cur, (int)core.rlim_cur, environ[0] != 0,
         open("/new", O_CREAT | O_WRONLY, 0600) >= 0, memory != MAP_FAILED);
  return 7;
}
