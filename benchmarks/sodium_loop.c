/* A plain loop of libsodium's verification over messages in one buffer, as a shared library: what
   `verify_many` is measured beside.  The function is passed in, so that nothing is linked. */

#include <stdint.h>

typedef int (*verify_detached)(
    const unsigned char *, const unsigned char *, unsigned long long, const unsigned char *);

int64_t verify_loop(
    verify_detached verify, const unsigned char *keys, const unsigned char *signatures,
    const unsigned char *data, const int32_t *offsets, int64_t count
) {
    int64_t valid = 0;
    for (int64_t index = 0; index < count; index++) {
        const int32_t start = offsets[index];
        valid += verify(
            signatures + 64 * index, data + start, offsets[index + 1] - start,
            keys + 32 * index) == 0;
    }
    return valid;
}
