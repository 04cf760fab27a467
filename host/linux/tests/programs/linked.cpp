// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * What C++ adds for a program that is linked into the kernel: constructors and destructors, exceptions through
 * functions of the C library, the standard library, threads with objects of their own. Prints each line once.
 */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

struct Announced {
	const char *name;
	explicit Announced(const char *name) : name(name) { std::printf("made %s\n", name); }
	~Announced() { std::printf("gone %s\n", name); }
};

static Announced everywhere("everywhere");
static thread_local std::string own = "thread";

static int compare(const void *a, const void *b)
{
	int left = *static_cast<const int *>(a), right = *static_cast<const int *>(b);
	if (left == 3 || right == 3)
		throw std::runtime_error("three");
	return left - right;
}

static int thrown()
{
	int numbers[] = {2, 1, 3};
	Announced here("here");
	try {
		std::qsort(numbers, 3, sizeof *numbers, compare);
	} catch (const std::exception &error) {
		std::printf("caught %s\n", error.what());
		return 1;
	}
	return 0;
}

int main()
{
	std::map<std::string, std::vector<int>> map;
	for (int i = 0; i < 1000; i++)
		map[std::to_string(i % 10)].push_back(i);
	std::printf("%zu keys, %d in 7\n", map.size(), *std::max_element(map["7"].begin(), map["7"].end()));
	std::string seen;
	std::thread([&] {
		own += " of its own";
		seen = own;
	}).join();
	std::printf("%s, %s\n", seen.c_str(), own.c_str());
	return thrown() ? 5 : 6;
}
