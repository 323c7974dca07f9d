// Times hoytech/negentropy's stores: processor time in nanoseconds, one line for each task.
//
//     negentropy_tree COUNT < ids of 32 bytes, the last 100,000 of them to be inserted later

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iterator>
#include <string>
#include <vector>

#include "negentropy.h"
#include "negentropy/storage/BTreeMem.h"
#include "negentropy/storage/Vector.h"

static const size_t LATER = 100000;

static double now() {
    timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

int main(int, char **arguments) {
    const size_t count = strtoul(arguments[1], nullptr, 10);
    std::string ids(32 * (count + LATER), '\0');
    if (fread(ids.data(), 32, count + LATER, stdin) != count + LATER) return 1;
    auto id = [&](size_t index) { return std::string_view(ids.data() + 32 * index, 32); };

    negentropy::storage::Vector vector;
    double start = now();
    for (size_t index = 0; index < count; index++) vector.insert(0, id(index));
    double filled = now();
    vector.seal();
    double sealed = now();
    printf("fill %f\nseal %f\n", filled - start, sealed - filled);

    negentropy::storage::BTreeMem tree;
    for (size_t index = 0; index < count; index++) tree.insertItem(negentropy::Item(0, id(index)));
    start = now();
    for (size_t index = count; index < count + LATER; index++)
        tree.insertItem(negentropy::Item(0, id(index)));
    printf("insert %f\n", (now() - start) / LATER);

    size_t sum = 0;
    start = now();
    for (size_t index = 0; index + 1 < LATER; index++) {
        size_t begin = tree.findLowerBound(0, tree.size(), negentropy::Bound(0, id(index)));
        size_t end = tree.findLowerBound(0, tree.size(), negentropy::Bound(0, id(index + 1)));
        if (begin > end) std::swap(begin, end);
        sum += tree.fingerprint(begin, end).buf[0];
    }
    printf("fingerprint %f\n", (now() - start) / (LATER - 1));
    fprintf(stderr, "%zu\n", sum);
    return 0;
}
