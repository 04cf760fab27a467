// SPDX-License-Identifier: Apache-2.0 OR MIT
// Random sequences of calls on both ends of a pseudo-terminal (sequences.h). KIND 1: it controls the program, which hears of
// its keys by signals.
#include "sequences.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>

static const int local[] = {
    ICANON, ECHO, ECHOE, ECHOK, ECHONL, ISIG, IEXTEN, ECHOCTL, ECHOKE, NOFLSH, ECHOPRT,
};
static const int input[] = {
    ICRNL, INLCR, IGNCR, ISTRIP, IXON, IXANY, IXOFF, IUTF8, PARMRK, IGNBRK, BRKINT, IMAXBEL, IUCLC, INPCK,
};
static const int output[] = {OPOST, ONLCR, OCRNL, ONOCR, ONLRET, OLCUC, XTABS};
// INTR QUIT ERASE KILL EOF TIME MIN SWTC START STOP SUSP EOL REPRINT DISCARD WERASE LNEXT EOL2
static const unsigned char keys[] = {3, 28, 127, 21, 4, 0, 1, 0, 17, 19, 26, 0, 18, 15, 23, 22, 0};

static int master, slave, heard[32];

static void hears(int number) {
    heard[number]++;
}

static int either(void) {
    return one_in(2) ? master : slave;
}

static const char *end(int descriptor) {
    return descriptor == master ? "master" : "slave";
}

static void opens_pair(void) {
    if (master > 0)
        close(master), close(slave);
    master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
    if (master < 0 || grantpt(master) || unlockpt(master) || (slave = open(ptsname(master), O_RDWR | O_NONBLOCK | O_NOCTTY)) < 0) {
        perror("pseudo-terminal");
        exit(1);
    }
}

static void types(void) {
    static const char keyboard[] = "abc xyz\n\n\r\r\t\x03\x1c\x1a\x04\x04\x7f\x7f\x15\x17\x12\x16\x11\x13\x0f\0\xff\xc3\xa4\x08"
                                   "ABC_;.";
    char bytes[12];
    int length = below(sizeof bytes);
    for (int i = 0; i < length; i++)
        bytes[i] = keyboard[below(sizeof keyboard - 1)];
    say("types");
    say_bytes(bytes, length);
    answered(write(master, bytes, length));
}

static void prints(void) {
    static const char printed[] = "abc\n\r\t\x08\0\xff\xc3\xa4Zz";
    char bytes[10];
    int length = below(sizeof bytes);
    for (int i = 0; i < length; i++)
        bytes[i] = printed[below(sizeof printed - 1)];
    say("prints");
    say_bytes(bytes, length);
    answered(write(slave, bytes, length));
}

static void reads(void) {
    char bytes[256];
    int from = either(), length = one_in(4) ? below(6) : sizeof bytes;
    long result = read(from, bytes, length);
    say("%s reads %d", end(from), length);
    if (result > 0)
        say_bytes(bytes, result);
    answered(result);
}

static void changes_settings(void) {
    struct termios t;
    int on = either(), when = one_in(3) ? TCSAFLUSH : TCSANOW;
    tcgetattr(slave, &t);
    for (int i = 0; i < 2; i++) {
        switch (below(3)) {
        case 0:
            t.c_lflag ^= ONE_OF(local);
            break;
        case 1:
            t.c_iflag ^= ONE_OF(input);
            break;
        default:
            t.c_oflag ^= ONE_OF(output);
        }
    }
    if (one_in(6))
        t.c_cc[VMIN] = below(4);
    if (one_in(8)) {
        int key = below(5) + (one_in(2) ? 10 : 0);
        t.c_cc[key] = one_in(3) ? 0 : below(32);
    }
    if (one_in(8))
        cfmakeraw(&t);
    if (one_in(6)) {
        t.c_iflag = ICRNL | IXON;
        t.c_oflag = OPOST | ONLCR;
        t.c_lflag = ISIG | ICANON | ECHO | ECHOE | ECHOK | ECHOCTL | ECHOKE | IEXTEN;
        memcpy(t.c_cc, keys, sizeof keys);
    }
    say("%s sets %d input %o output %o local %o", end(on), when, t.c_iflag, t.c_oflag, t.c_lflag);
    answered(tcsetattr(on, when, &t));
}

static void asks_for_settings(void) {
    struct termios t;
    int of = either(), result = tcgetattr(of, &t);
    say("%s has input %o output %o control %o local %o keys", end(of), t.c_iflag, t.c_oflag, t.c_cflag, t.c_lflag);
    for (size_t i = 0; i < sizeof keys; i++)
        say(" %d", t.c_cc[i]);
    answered(result);
}

static void asks_how_much(void) {
    int of = either(), is_output = one_in(2), value = -1, result = ioctl(of, is_output ? TIOCOUTQ : FIONREAD, &value);
    say("%s %s %d", end(of), is_output ? "TIOCOUTQ" : "FIONREAD", value);
    answered(result);
}

static void flushes(void) {
    int of = either(), what = below(4);
    say("%s flushes %d", end(of), what);
    answered(tcflush(of, what));
}

static void stops_and_starts(void) {
    int of = either(), what = below(5);
    say("%s tcflow %d", end(of), what);
    answered(tcflow(of, what));
    if (what == TCOOFF)
        tcflow(of, TCOON);
}

static void polls(void) {
    struct pollfd both[] = {{master, POLLIN | POLLOUT | POLLPRI, 0}, {slave, POLLIN | POLLOUT | POLLPRI, 0}};
    int result = poll(both, 2, 0);
    say("poll %x %x", both[0].revents, both[1].revents);
    answered(result);
}

static void asks_for_packets(void) {
    int on = one_in(2);
    say("TIOCPKT %d", on);
    answered(ioctl(master, TIOCPKT, &on));
}

static void resizes(void) {
    struct winsize size = {below(50), below(50), 0, 0};
    say("resizes");
    answered(ioctl(either(), TIOCSWINSZ, &size));
}

static void signals(void) {
    int number = one_in(2) ? SIGINT : below(40);
    say("TIOCSIG %d", number);
    answered(ioctl(master, TIOCSIG, number));
}

static void begins_anew(void) {
    if (one_in(10))
        opens_pair();
    say("tcsendbreak");
    answered(tcsendbreak(either(), 0));
}

static void says_what_it_heard(void) {
    say("heard");
    for (size_t i = 0; i < COUNT(heard); i++) {
        if (heard[i])
            say(" %zu", i);
        heard[i] = 0;
    }
    answered(0);
}

static void (*const steps[])(void) = {
    types, types, types, types, types, reads, reads, reads, reads, reads, reads, prints, prints, changes_settings, changes_settings,
    asks_for_settings, asks_how_much, asks_how_much, flushes, stops_and_starts, polls, asks_for_packets, resizes, signals,
    begins_anew, says_what_it_heard, says_what_it_heard,
};

int main(int count, char **arguments) {
    static const int handled[] = {SIGHUP, SIGINT, SIGQUIT, SIGCONT, SIGTSTP, SIGWINCH};
    int controls, status;
    long total = begin(count, arguments, &controls);
    pid_t child = fork();
    if (child != 0)
        return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
    for (size_t i = 0; i < COUNT(handled); i++)
        signal(handled[i], hears);
    signal(SIGTTOU, SIG_IGN);
    opens_pair();
    if (setsid() < 0 || (controls && ioctl(slave, TIOCSCTTY, 0)))
        return 1;
    // Linux hands input and output on by a thread of its own.
    run_steps(steps, COUNT(steps), total, 1500);
    return 0;
}
