// SPDX-License-Identifier: Apache-2.0 OR MIT
// A TCP echo server with a thread for each connection; a line "fail" is answered by what was thrown, "end" ends it.
#include <cstdio>
#include <netinet/in.h>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

static struct Farewell {
    ~Farewell() { std::puts("destroyed"); }
} farewell;

static thread_local std::string of_this_thread;

static int served(const std::string &why)
{
    if (of_this_thread != why)
        throw std::runtime_error("failed as asked\n");
    return 0;
}

static void serve(int connection)
{
    char buffer[4096];
    ssize_t got;
    while ((got = read(connection, buffer, sizeof buffer)) > 0) {
        of_this_thread.assign(buffer, got);
        if (of_this_thread == "end\n")
            std::exit(served("end\n"));
        try {
            if (of_this_thread == "fail\n")
                served("well");
        } catch (const std::runtime_error &e) {
            of_this_thread = e.what();
        }
        for (size_t sent = 0; sent < of_this_thread.size();) {
            ssize_t more = write(connection, of_this_thread.data() + sent, of_this_thread.size() - sent);
            if (more <= 0)
                break;
            sent += more;
        }
    }
    close(connection);
}

int main()
{
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(7);
    if (bind(listener, reinterpret_cast<sockaddr *>(&address), sizeof address) || listen(listener, 16)) {
        std::perror("listen");
        return 1;
    }
    for (;;) {
        int connection = accept(listener, nullptr, nullptr);
        if (connection >= 0)
            std::thread(serve, connection).detach();
    }
}
