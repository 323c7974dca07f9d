/* Times a plain loop of XXH3-128 over items of one size, summed modulo 2^128: processor time in
   nanoseconds for one item.

       xxh3_loop SIZE < items
*/

#define XXH_INLINE_ALL
#include "xxhash.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ROOM (64u << 20)
#define ROUNDS 5

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

int main(int count, char **arguments) {
    const size_t size = count > 1 ? strtoul(arguments[1], NULL, 10) : 32;
    unsigned char *items = malloc(ROOM);
    const size_t items_count = fread(items, 1, ROOM, stdin) / size;
    double best = 1e18;
    unsigned long long low = 0, high = 0;
    for (int round = 0; round < ROUNDS; round++) {
        const double start = now();
        for (size_t index = 0; index < items_count; index++) {
            const XXH128_hash_t hash = XXH3_128bits(items + index * size, size);
            low += hash.low64;
            high += hash.high64 + (low < hash.low64);
        }
        const double time = (now() - start) / items_count;
        best = time < best ? time : best;
    }
    printf("xxh3 %f\n", best);
    fprintf(stderr, "%llx %llx\n", high, low);
    return 0;
}
