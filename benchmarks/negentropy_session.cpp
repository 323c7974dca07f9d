// Lets hoytech/negentropy reconcile two sets, once for each of its two stores in memory.
//
//     negentropy_session COUNT < ids of 32 bytes: COUNT of ours, then all of theirs
//
// Prints, for each store: bytes of both directions and messages until the initiator knows, and
// processor time of both sides in nanoseconds, without building the stores.

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iterator>
#include <string>
#include <vector>

#include "negentropy.h"
#include "negentropy/storage/BTreeMem.h"
#include "negentropy/storage/Vector.h"

static double now() {
    timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

template <typename Store>
static void reconcile(const char *name, Store &ours, Store &theirs) {
    const double start = now();
    Negentropy<Store> first(ours), second(theirs);
    std::vector<std::string> have, need;
    size_t bytes = 0, messages = 0;
    std::string said = first.initiate();
    while (true) {
        bytes += said.size(), messages++;
        const std::string answer = second.reconcile(said);
        bytes += answer.size(), messages++;
        const auto next = first.reconcile(answer, have, need);
        if (!next) break;
        said = *next;
    }
    printf("%s_time %f\n%s_bytes %zu\n", name, now() - start, name, bytes);
    printf("%s_messages %zu\n%s_found %zu\n", name, messages, name, have.size() + need.size());
}

int main(int, char **arguments) {
    const size_t count = strtoul(arguments[1], nullptr, 10);
    std::string ids;
    std::vector<char> room(1 << 20);
    for (size_t size; (size = fread(room.data(), 1, room.size(), stdin));)
        ids.append(room.data(), size);
    const size_t all = ids.size() / 32;
    auto id = [&](size_t index) { return std::string_view(ids.data() + 32 * index, 32); };

    negentropy::storage::Vector vectors[2];
    negentropy::storage::BTreeMem trees[2];
    for (size_t index = 0; index < all; index++) {
        vectors[index >= count].insert(0, id(index));
        trees[index >= count].insertItem(negentropy::Item(0, id(index)));
    }
    for (auto &vector : vectors) vector.seal();
    reconcile("vector", vectors[0], vectors[1]);
    reconcile("btree", trees[0], trees[1]);
    return 0;
}
