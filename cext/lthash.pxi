# LtHash: the item's BLAKE3, drawn out to 2048 bytes, as 1024 numbers of 16 bits.  An item fits
# into one chunk of BLAKE3 (1024 bytes), so that its hash is a chain of blocks and no tree.
# Source: the paper of BLAKE3, section 2; Bellare and Micciancio 1997; Lewi et al. 2019.
# Needs octets.pxi.

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef enum:
    LTHASH_WORDS = 256
    BLOCK_SIZE = 64
    CHUNK_START = 1
    CHUNK_END = 2
    ROOT = 8
    # So many blocks of output are made side by side, in as many lanes of a vector.
    SIDE_BY_SIDE = 8

cdef extern from *:
    """
    static const uint32_t culm_blake3_start[8] = {
        0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
        0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19};
    static const uint8_t culm_blake3_order[16] = {
        2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8};
    #define CULM_ROTATE(value, by) ((value) >> (by) | (value) << (32 - (by)))
    /* One quarter of a round, on four rows of the state and all lanes. */
    #define CULM_QUARTER(a, b, c, d, x, y) \\
        for (int i = 0; i < 8; i++) { \\
            a[i] += b[i] + (x); d[i] = CULM_ROTATE(d[i] ^ a[i], 16); \\
            c[i] += d[i]; b[i] = CULM_ROTATE(b[i] ^ c[i], 12); \\
            a[i] += b[i] + (y); d[i] = CULM_ROTATE(d[i] ^ a[i], 8); \\
            c[i] += d[i]; b[i] = CULM_ROTATE(b[i] ^ c[i], 7); \\
        }
    static void culm_blake3_rounds(uint32_t v[16][8], const uint32_t block[16]) {
        uint32_t m[16], next[16];
        memcpy(m, block, sizeof m);
        for (int round = 0; round < 7; round++) {
            CULM_QUARTER(v[0], v[4], v[8], v[12], m[0], m[1])
            CULM_QUARTER(v[1], v[5], v[9], v[13], m[2], m[3])
            CULM_QUARTER(v[2], v[6], v[10], v[14], m[4], m[5])
            CULM_QUARTER(v[3], v[7], v[11], v[15], m[6], m[7])
            CULM_QUARTER(v[0], v[5], v[10], v[15], m[8], m[9])
            CULM_QUARTER(v[1], v[6], v[11], v[12], m[10], m[11])
            CULM_QUARTER(v[2], v[7], v[8], v[13], m[12], m[13])
            CULM_QUARTER(v[3], v[4], v[9], v[14], m[14], m[15])
            for (int i = 0; i < 16; i++) next[i] = m[culm_blake3_order[i]];
            memcpy(m, next, sizeof m);
        }
    }
    """
    const uint32_t *BLAKE3_START "culm_blake3_start"
    void blake3_rounds "culm_blake3_rounds"(uint32_t (*v)[8], const uint32_t *m) noexcept nogil


cdef void blake3_blocks(
    uint32_t (*v)[8], const uint32_t *chain, const uint32_t *block, uint32_t counter,
    uint32_t size, uint32_t flags
) noexcept nogil:
    """Compress with the counters `counter`, `counter` + 1, ...: one in each lane of `v`."""
    cdef int row, lane
    for lane in range(SIDE_BY_SIDE):
        for row in range(8):
            v[row][lane] = chain[row]
        for row in range(4):
            v[8 + row][lane] = BLAKE3_START[row]
        v[12][lane] = counter + lane
        v[13][lane] = 0
        v[14][lane] = size
        v[15][lane] = flags
    blake3_rounds(v, block)
    for row in range(8):
        for lane in range(SIDE_BY_SIDE):
            v[row][lane] ^= v[row + 8][lane]
            v[row + 8][lane] ^= chain[row]


cdef void lift_lthash(uint64_t *words, const uint8_t *p, Py_ssize_t size) noexcept nogil:
    """The 1024 numbers of an item of at most 1024 bytes, four in a word, lowest first."""
    cdef uint32_t[16][8] v
    cdef uint32_t[8] chain
    cdef uint32_t[16] block
    cdef uint8_t[BLOCK_SIZE] padded
    cdef uint32_t flags = CHUNK_START
    cdef int row, lane, group
    for row in range(8):
        chain[row] = BLAKE3_START[row]
    while size > BLOCK_SIZE:
        for row in range(16):
            block[row] = load_32(p + 4 * row)
        blake3_blocks(v, chain, block, 0, BLOCK_SIZE, flags)
        for row in range(8):
            chain[row] = v[row][0]
        flags = 0
        p += BLOCK_SIZE
        size -= BLOCK_SIZE
    memset(padded, 0, BLOCK_SIZE)
    memcpy(padded, p, size)
    for row in range(16):
        block[row] = load_32(padded + 4 * row)
    flags |= CHUNK_END | ROOT
    for group in range(8 * LTHASH_WORDS // (BLOCK_SIZE * SIDE_BY_SIDE)):
        blake3_blocks(v, chain, block, SIDE_BY_SIDE * group, <uint32_t>size, flags)
        for lane in range(SIDE_BY_SIDE):
            for row in range(0, 16, 2):
                words[0] = v[row][lane] | <uint64_t>v[row + 1][lane] << 32
                words += 1
