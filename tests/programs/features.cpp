// SPDX-License-Identifier: Apache-2.0 OR MIT
// What C++ programs rest on: static constructors and destructors, exceptions (also across threads), threads, atomics.
#include <atomic>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

struct Announce {
    Announce() { std::puts("constructed"); }
    ~Announce() { std::puts("destroyed"); }
} announce;

static void throws(const std::string &what) { throw std::runtime_error(what); }

int main()
{
    try {
        throws("thrown in a function");
    } catch (const std::exception &e) {
        std::printf("caught: %s\n", e.what());
    }
    std::atomic<int> sum{0}, caught{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++) {
        threads.emplace_back([&] {
            for (int i = 0; i < 1000; i++)
                sum++;
            try {
                throws("thrown in a thread");
            } catch (const std::exception &) {
                caught++;
            }
        });
    }
    for (auto &thread : threads)
        thread.join();
    std::printf("caught in %d threads\nsum %d\n", caught.load(), sum.load());
    return 3;
}
