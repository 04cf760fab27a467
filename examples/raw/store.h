/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The key-value store that the three servers share: one datagram, one request, one answer, in place of the request.
 *
 *   s KEY VALUE   sets: `ok`, or `full`      g KEY   `v VALUE`, or `none`      anything else: `what?`
 */
#ifndef STORE_H
#define STORE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { PORT = 7000, SLOTS = 1 << 14, PROBES = 16, MAX_KEY = 31, MAX_VALUE = 91, MAX_ANSWER = MAX_VALUE + 2 };

struct slot {
    uint8_t key_length, value_length;
    uint8_t key[MAX_KEY], value[MAX_VALUE];
};

static struct slot slots[SLOTS];

/* The slot of a key, or the free one where it belongs; NULL: there is none. */
static inline struct slot *find(const uint8_t *key, unsigned length, uint32_t hash) {
    for (unsigned probe = 0; probe < PROBES; probe++) {
        struct slot *slot = &slots[(hash + probe) % SLOTS];
        if (slot->key_length == 0 || (slot->key_length == length && memcmp(slot->key, key, length) == 0))
            return slot;
    }
    return NULL;
}

static inline unsigned say(uint8_t *to, const char *text, unsigned length) {
    memcpy(to, text, length);
    return length;
}

/* Replaces the request at `data` by its answer, of at most MAX_ANSWER bytes, for which there is room; the bytes of the answer. */
static inline unsigned store_answer(uint8_t *data, unsigned length) {
    if (length < 3 || data[1] != ' ')
        return say(data, "what?", 5);
    const uint8_t *key = data + 2, *end = data + length, *space = key;
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (; space < end && *space != ' '; space++)
        hash = (hash ^ *space) * 16777619u;
    unsigned key_length = (unsigned)(space - key);
    if (key_length == 0 || key_length > MAX_KEY)
        return say(data, "what?", 5);
    struct slot *slot = find(key, key_length, hash);
    if (data[0] == 'g' && space == end) {
        if (!slot || slot->key_length == 0)
            return say(data, "none", 4);
        memcpy(data, "v ", 2);
        memcpy(data + 2, slot->value, slot->value_length);
        return 2u + slot->value_length;
    }
    if (data[0] != 's' || space == end || end - (space + 1) > MAX_VALUE)
        return say(data, "what?", 5);
    if (!slot)
        return say(data, "full", 4);
    memcpy(slot->key, key, key_length);
    slot->key_length = (uint8_t)key_length;
    slot->value_length = (uint8_t)(end - (space + 1));
    memcpy(slot->value, space + 1, slot->value_length);
    return say(data, "ok", 2);
}

/*
 * For `unilith bench raw`: the server's argument is a number of answers, after which it says what processor time one took since
 * the tenth part of them, and ends. Without an argument it serves for ever.
 */
static long wanted, answered, begun;
static double begun_ns;

static inline double used_ns(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e9 + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e3;
}

static inline void count_answers(unsigned count) {
    answered += count;
    if (wanted == 0 || answered < wanted / 10)
        return;
    if (begun == 0) {
        begun = answered;
        begun_ns = used_ns();
    } else if (answered >= wanted) {
        printf("took %.1f\n", (used_ns() - begun_ns) / (double)(answered - begun));
        exit(0);
    }
}

#endif /* STORE_H */
