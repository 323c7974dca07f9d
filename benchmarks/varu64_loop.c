/* VarU64 decoded into an array by a plain loop: the measure for the kernel. */

#include <stddef.h>
#include <stdint.h>

/* Returns the number of values, or -1 if the data ends within one. */
int64_t varu64_loop(const uint8_t *data, size_t size, uint64_t *values)
{
    size_t at = 0;
    int64_t count = 0;
    while (at < size) {
        uint64_t value = data[at++];
        if (value >= 248) {
            size_t octets = (size_t)value - 247;
            if (size - at < octets)
                return -1;
            value = 0;
            while (octets--)
                value = value << 8 | data[at++];
        }
        values[count++] = value;
    }
    return count;
}
