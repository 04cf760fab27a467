// SPDX-License-Identifier: Apache-2.0 OR MIT
// What C++ programs do: exceptions over frames of C++ and of C, threads, streams, regular expressions, files, constructors and
// destructors of static objects and of threads. What it prints does not depend on time or on the machine.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iomanip>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <variant>
#include <vector>

namespace {
struct Announced {
    const char *name;
    explicit Announced(const char *name) : name(name) { std::cout << name << " made\n"; }
    ~Announced() { std::cout << name << " destroyed\n" << std::flush; }
};
Announced of_the_program("the program's");

struct Cause : std::runtime_error {
    int depth;
    Cause(const std::string &text, int depth) : std::runtime_error(text), depth(depth) {}
};

std::atomic<int> destroyed{0};
struct Counted {
    ~Counted() { destroyed++; }
};

int deep(int depth)
{
    Counted counted;
    if (depth == 0)
        throw Cause("thrown at the bottom", 100);
    return deep(depth - 1) + 1;
}

int compare(const void *a, const void *b)
{
    int x = *static_cast<const int *>(a), y = *static_cast<const int *>(b);
    if (x == 3 || y == 3)
        throw std::logic_error("thrown through qsort");
    return x - y;
}

void exceptions()
{
    try {
        deep(100);
    } catch (const Cause &cause) {
        std::cout << cause.what() << ' ' << cause.depth << ' ' << destroyed << '\n';
    }
    // A frame of glibc is between throw and catch.
    int numbers[] = {5, 1, 3, 2};
    try {
        std::qsort(numbers, 4, sizeof numbers[0], compare);
    } catch (const std::exception &e) {
        std::cout << e.what() << '\n';
    }
    for (auto bad : {"vector", "bad", "nested", "number"}) {
        try {
            std::string which(bad);
            if (which == "vector")
                std::vector<int>(3).at(7) = 1;
            if (which == "bad")
                std::get<int>(std::variant<int, double>(1.5));
            if (which == "number")
                std::stoi("none");
            try {
                throw 42;
            } catch (int n) {
                std::throw_with_nested(std::runtime_error("outer " + std::to_string(n)));
            }
        } catch (const std::exception &e) {
            try {
                std::rethrow_if_nested(e);
                std::cout << bad << ": " << e.what() << '\n';
            } catch (int inner) {
                std::cout << bad << ": " << e.what() << " around " << inner << '\n';
            }
        }
    }
    int caught = 0;
    for (int i = 0; i < 20000; i++) {
        try {
            throw i;
        } catch (int n) {
            caught += n == i;
        }
    }
    std::cout << "caught " << caught << '\n';
}

thread_local std::string of_a_thread = "fresh";

void threads()
{
    std::mutex lock;
    std::condition_variable changed;
    int ready = 0;
    long sum = 0;
    std::vector<std::thread> all;
    for (int n = 0; n < 6; n++)
        all.emplace_back([&, n] {
            thread_local Counted at_end;
            (void)&at_end;
            if (of_a_thread != "fresh")
                std::abort();
            of_a_thread += std::to_string(n);
            try {
                deep(n);
            } catch (const Cause &) {
                std::lock_guard<std::mutex> guard(lock);
                sum += n;
                ready++;
                changed.notify_one();
            }
        });
    {
        std::unique_lock<std::mutex> guard(lock);
        changed.wait(guard, [&] { return ready == 6; });
    }
    for (auto &one : all)
        one.join();
    std::cout << "threads " << sum << ' ' << of_a_thread << ' ' << destroyed << '\n';
    auto later = std::async(std::launch::async, [] { return deep(2); });
    try {
        later.get();
    } catch (const Cause &cause) {
        std::cout << "from another thread: " << cause.what() << '\n';
    }
    std::promise<int> promise;
    std::thread keeps([&] { promise.set_value(9); });
    std::cout << "promised " << promise.get_future().get() << '\n';
    keeps.join();
}

void texts()
{
    std::ostringstream out;
    out << std::setw(8) << std::setfill('*') << std::hex << 48879 << std::dec << ' ' << std::fixed << std::setprecision(3)
        << 2.0 / 3 << ' ' << std::boolalpha << true << ' ' << std::scientific << 12345.678;
    std::cout << out.str() << '\n';
    std::string text = "Unilith 1.2.3, micro 4.5.6";
    std::regex version(R"((\w+) (\d+)\.(\d+)\.(\d+))");
    for (std::sregex_iterator it(text.begin(), text.end(), version), end; it != end; ++it)
        std::cout << (*it)[1] << '=' << (*it)[2] << '.' << (*it)[4] << ' ';
    std::cout << std::regex_replace(text, std::regex("[aeiou]"), "_") << '\n';
    std::istringstream in("12 words 3.5");
    int n;
    std::string word;
    double x;
    in >> n >> word >> x;
    std::cout << n << word << x << std::locale().name() << '\n';
    std::mt19937 engine(7);
    std::map<int, std::unique_ptr<std::string>> map;
    for (int i = 0; i < 1000; i++)
        map[static_cast<int>(engine() % 500)] = std::make_unique<std::string>(std::to_string(i));
    std::vector<int> keys;
    for (auto &[key, value] : map)
        keys.push_back(key + static_cast<int>(value->size()));
    std::sort(keys.begin(), keys.end(), std::greater<>());
    std::cout << keys.size() << ' ' << std::accumulate(keys.begin(), keys.end(), 0L) << '\n';
}

void files()
{
    namespace fs = std::filesystem;
    fs::path folder = fs::temp_directory_path() / "several";
    fs::remove_all(folder);
    fs::create_directories(folder / "a" / "b");
    for (auto name : {"one", "two", "three"})
        std::ofstream(folder / "a" / name) << name << '\n';
    fs::copy(folder / "a", folder / "copy", fs::copy_options::recursive);
    fs::rename(folder / "copy" / "one", folder / "copy" / "b" / "one");
    std::vector<std::string> seen;
    for (auto &entry : fs::recursive_directory_iterator(folder))
        seen.push_back(fs::relative(entry.path(), folder).string() + (entry.is_directory() ? "/" : ""));
    std::sort(seen.begin(), seen.end());
    for (auto &name : seen)
        std::cout << name << ' ';
    std::ifstream in(folder / "a" / "three");
    std::string word;
    in >> word;
    std::cout << word << ' ' << fs::file_size(folder / "a" / "three") << '\n';
    std::cout << fs::remove_all(folder) << " removed\n";
    std::error_code error;
    (void)fs::file_size("/nothing/there", error);
    std::cout << error.message() << '\n';
    try {
        fs::copy("/nothing", "/there");
    } catch (const fs::filesystem_error &e) {
        std::cout << e.path1() << ' ' << e.code().value() << '\n';
    }
}
}

int main(int count, char **words)
{
    Announced of_main("main's");
    std::cout << count << ' ' << words[count - 1] << '\n';
    exceptions();
    threads();
    texts();
    files();
    auto start = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::cout << (std::chrono::steady_clock::now() - start >= std::chrono::milliseconds(5)) << '\n';
    std::exit(6);
}
