# Targets of lipmaalinks.  Included as text, after octets.pxi.

cdef enum:
    BLOCK_LEVELS = 41

# u(1), u(2), ..., u(41): the sizes of blocks, as `culm.bamboo.links` explains them.
cdef uint64_t[BLOCK_LEVELS] BLOCKS
cdef int level
BLOCKS[0] = 1
for level in range(1, BLOCK_LEVELS):
    BLOCKS[level] = 3 * BLOCKS[level - 1] + 1


cdef inline uint64_t lipmaa(uint64_t seqnum) noexcept nogil:
    cdef uint64_t index = seqnum - 1
    cdef int top = 0
    while top < BLOCK_LEVELS and BLOCKS[top] < seqnum:
        top += 1
    if top < BLOCK_LEVELS and BLOCKS[top] == seqnum:
        return BLOCKS[top - 1] if top else 0
    while True:
        top -= 1
        index %= BLOCKS[top]
        if index == BLOCKS[top] - 1:
            return seqnum - BLOCKS[top]
