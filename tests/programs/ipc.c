// SPDX-License-Identifier: Apache-2.0 OR MIT
// System V IPC: shared memory, semaphores, message queues. Passes on Linux as root.
#define _GNU_SOURCE
#include <grp.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#define KEY 0x756e696c

union semun {
    int val;
    struct semid_ds *buf;
    unsigned short *array;
};

static void shared_memory(void)
{
    struct shmid_ds status;
    int id = shmget(KEY, 10000, IPC_CREAT | IPC_EXCL | 0600);
    CHECK(id >= 0 && shmget(KEY, 10000, 0) == id && shmget(KEY, 100, IPC_CREAT | 0600) == id);
    CHECK(shmget(KEY, 10000, IPC_CREAT | IPC_EXCL | 0600) == -1 && errno == EEXIST);
    CHECK(shmget(KEY, 10001, 0) == -1 && errno == EINVAL);
    CHECK(shmget(KEY + 1, 100, 0) == -1 && errno == ENOENT);
    CHECK(shmget(IPC_PRIVATE, 0, 0600) == -1 && errno == EINVAL);
    char *a = shmat(id, NULL, 0), *b = shmat(id, NULL, SHM_RDONLY);
    CHECK(a != (void *)-1 && b != (void *)-1 && a != b);
    CHECK(a[9999] == 0);
    strcpy(a + 5000, "both");
    CHECK(!strcmp(b + 5000, "both"));
    CHECK(mprotect(b, 4096, PROT_READ | PROT_WRITE) == -1 && errno == EACCES);
    CHECK(shmat(id, a + 1, 0) == (void *)-1 && errno == EINVAL);
    CHECK(shmat(id, a, 0) == (void *)-1 && errno == EINVAL);
    CHECK(shmat(id + 1, NULL, 0) == (void *)-1 && errno == EINVAL);
    CHECK(shmctl(id, IPC_STAT, &status) == 0);
    CHECK(status.shm_segsz == 10000 && status.shm_nattch == 2 && status.shm_perm.mode == 0600);
    CHECK(status.shm_cpid == getpid() && status.shm_lpid == getpid() && status.shm_atime >= status.shm_ctime);
    CHECK(shmdt(b + 4096) == -1 && errno == EINVAL);
    CHECK(shmdt(b) == 0 && shmdt(b) == -1 && errno == EINVAL);
    status.shm_perm.mode = 0640;
    CHECK(shmctl(id, IPC_SET, &status) == 0);
    // It lives on until it is no longer attached.
    CHECK(shmctl(id, IPC_RMID, NULL) == 0);
    CHECK(shmget(KEY, 100, 0) == -1 && errno == ENOENT);
    CHECK(shmctl(id, IPC_STAT, &status) == 0 && status.shm_nattch == 1 && (status.shm_perm.mode & 01777) == 01640);
    CHECK(!strcmp(a + 5000, "both"));
    CHECK(shmdt(a) == 0);
    CHECK(shmctl(id, IPC_STAT, &status) == -1 && errno == EINVAL);
}

static int set;

static void *posts(void *arg)
{
    struct sembuf up = {0, 2, 0};
    while (semctl(set, 0, GETNCNT) != 1)
        usleep(1000);
    CHECK(semop(set, &up, 1) == 0);
    return arg;
}

static void *waits_for_its_removal(void *arg)
{
    struct sembuf zero = {1, 0, 0};
    CHECK(semop(set, &zero, 1) == -1 && errno == EIDRM);
    return arg;
}

static void semaphores(void)
{
    union semun value = {.val = 1};
    struct semid_ds status;
    unsigned short values[2] = {9, 9};
    set = semget(IPC_PRIVATE, 2, 0600);
    CHECK(set >= 0);
    CHECK(semctl(set, 1, SETVAL, value) == 0 && semctl(set, 1, GETVAL) == 1 && semctl(set, 0, GETVAL) == 0);
    value.val = 32768;
    CHECK(semctl(set, 0, SETVAL, value) == -1 && errno == ERANGE);
    CHECK(semctl(set, 2, GETVAL) == -1 && errno == EINVAL);
    value.array = values;
    CHECK(semctl(set, 0, GETALL, value) == 0 && values[0] == 0 && values[1] == 1);
    value.buf = &status;
    CHECK(semctl(set, 0, IPC_STAT, value) == 0 && status.sem_nsems == 2 && status.sem_otime == 0);
    // All or nothing.
    struct sembuf both[2] = {{1, -1, IPC_NOWAIT}, {0, -1, IPC_NOWAIT}};
    CHECK(semop(set, both, 2) == -1 && errno == EAGAIN && semctl(set, 1, GETVAL) == 1);
    both[1].sem_num = 2;
    CHECK(semop(set, both, 2) == -1 && errno == EFBIG);
    CHECK(semop(set, both, 0) == -1 && errno == EINVAL && semop(set, both, 501) == -1 && errno == E2BIG);
    struct sembuf down = {0, -1, 0};
    struct timespec soon = {0, 50 * 1000 * 1000};
    CHECK(semtimedop(set, &down, 1, &soon) == -1 && errno == EAGAIN);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, posts, NULL) == 0);
    CHECK(semop(set, &down, 1) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(semctl(set, 0, GETVAL) == 1 && semctl(set, 0, GETPID) == getpid() && semctl(set, 0, GETNCNT) == 0);
    CHECK(pthread_create(&thread, NULL, waits_for_its_removal, NULL) == 0);
    while (semctl(set, 1, GETZCNT) != 1)
        usleep(1000);
    CHECK(semctl(set, 0, IPC_RMID) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(semop(set, &down, 1) == -1 && errno == EINVAL);
}

struct message {
    long type;
    char text[16];
};

static int queue;

static void *sends(void *arg)
{
    struct message message = {7, "late"};
    usleep(50 * 1000);
    CHECK(msgsnd(queue, &message, 5, 0) == 0);
    return arg;
}

static void message_queues(void)
{
    struct message one = {1, "one"}, two = {2, "two"}, bad = {0, ""}, got;
    struct msqid_ds status;
    queue = msgget(IPC_PRIVATE, 0600);
    CHECK(queue >= 0 && msgsnd(queue, &bad, 1, 0) == -1 && errno == EINVAL);
    CHECK(msgrcv(queue, &got, sizeof got.text, 0, IPC_NOWAIT) == -1 && errno == ENOMSG);
    CHECK(msgsnd(queue, &two, 4, 0) == 0 && msgsnd(queue, &one, 4, 0) == 0);
    CHECK(msgctl(queue, IPC_STAT, &status) == 0 && status.msg_qnum == 2 && status.msg_cbytes == 8);
    CHECK(status.msg_lspid == getpid() && status.msg_qbytes == 16384);
    CHECK(msgrcv(queue, &got, 3, 1, 0) == -1 && errno == E2BIG);
    CHECK(msgrcv(queue, &got, 3, 1, MSG_NOERROR) == 3 && got.type == 1 && !memcmp(got.text, "one", 3));
    CHECK(msgsnd(queue, &one, 4, 0) == 0);
    CHECK(msgrcv(queue, &got, sizeof got.text, -2, 0) == 4 && got.type == 1);
    CHECK(msgrcv(queue, &got, sizeof got.text, 1, MSG_EXCEPT) == 4 && got.type == 2);
    status.msg_qbytes = 10;
    CHECK(msgctl(queue, IPC_SET, &status) == 0);
    CHECK(msgsnd(queue, &one, 8, 0) == 0 && msgsnd(queue, &one, 8, IPC_NOWAIT) == -1 && errno == EAGAIN);
    CHECK(msgrcv(queue, &got, sizeof got.text, 0, 0) == 8);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, sends, NULL) == 0);
    CHECK(msgrcv(queue, &got, sizeof got.text, 7, 0) == 5 && !strcmp(got.text, "late"));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(msgctl(queue, IPC_RMID, NULL) == 0 && msgctl(queue, IPC_RMID, NULL) == -1 && errno == EINVAL);
}

static void rights(void)
{
    int id = shmget(IPC_PRIVATE, 4096, 0600), readable = shmget(IPC_PRIVATE, 4096, 0604);
    CHECK(setgroups(0, NULL) == 0 && setresgid(4242, 4242, 4242) == 0 && setresuid(4242, 4242, 4242) == 0);
    CHECK(shmat(id, NULL, SHM_RDONLY) == (void *)-1 && errno == EACCES);
    CHECK(shmctl(id, IPC_RMID, NULL) == -1 && errno == EPERM);
    CHECK(shmat(readable, NULL, 0) == (void *)-1 && errno == EACCES);
    void *at = shmat(readable, NULL, SHM_RDONLY);
    CHECK(at != (void *)-1 && shmdt(at) == 0);
}

int main(void)
{
    shared_memory();
    semaphores();
    message_queues();
    rights();
    puts("all IPC tests passed");
    return 0;
}
