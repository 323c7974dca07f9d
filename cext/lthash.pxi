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

# GCC and Clang have vectors that need no word about the machine: each becomes as many registers
# as it takes.  Plain loops over the lanes are not made into such by either.  Elsewhere there is
# one lane.
cdef extern from *:
    """
    /* Four numbers in a word: no carry may pass the highest bit of each. */
    #define CULM_TOPS 0x8000800080008000ull
    static CYTHON_INLINE uint64_t culm_add_four(uint64_t a, uint64_t b) {
        return ((a & ~CULM_TOPS) + (b & ~CULM_TOPS)) ^ ((a ^ b) & CULM_TOPS);
    }
    static CYTHON_INLINE uint64_t culm_take_four(uint64_t a, uint64_t b) {
        return ((a | CULM_TOPS) - (b & ~CULM_TOPS)) ^ ((a ^ ~b) & CULM_TOPS);
    }

    #define CULM_ITSELF(value) (value)
    #if defined(__GNUC__) || defined(__clang__)
    #define CULM_SIDE_BY_SIDE 8
    typedef uint32_t culm_row __attribute__((vector_size(32)));
    #define CULM_UP_FROM(start) ((start) + (culm_row){0, 1, 2, 3, 4, 5, 6, 7})
    typedef uint16_t culm_numbers __attribute__((vector_size(16)));
    #define CULM_PLUS(a, b) ((a) + (b))
    #define CULM_MINUS(a, b) ((a) - (b))
    #else
    #define CULM_SIDE_BY_SIDE 1
    typedef uint32_t culm_row;
    #define CULM_UP_FROM CULM_ITSELF
    typedef uint64_t culm_numbers;
    #define CULM_PLUS culm_add_four
    #define CULM_MINUS culm_take_four
    #endif

    /* Whether numbers lie in memory as they do in a state's bytes. */
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    #define CULM_WORDS_ARE_BYTES 1
    #else
    #define CULM_WORDS_ARE_BYTES 0
    #endif

    /* 2048 bytes of numbers, from wherever they lie; `into` may be `first`. */
    #define CULM_ALL_NUMBERS(name, operation) \\
        static void name(void *into, const void *first, const void *second) { \\
            for (size_t at = 0; at < 2048; at += sizeof(culm_numbers)) { \\
                culm_numbers a, b; \\
                memcpy(&a, (const uint8_t *)first + at, sizeof a); \\
                memcpy(&b, (const uint8_t *)second + at, sizeof b); \\
                a = operation(a, b); \\
                memcpy((uint8_t *)into + at, &a, sizeof a); \\
            } \\
        }
    CULM_ALL_NUMBERS(culm_add_numbers, CULM_PLUS)
    CULM_ALL_NUMBERS(culm_take_numbers, CULM_MINUS)

    static const uint32_t culm_blake3_start[8] = {
        0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
        0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19};
    static const uint8_t culm_blake3_order[16] = {
        2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8};
    #define CULM_ROTATE(value, by) ((value) >> (by) | (value) << (32 - (by)))
    #define CULM_QUARTER(a, b, c, d, x, y) \\
        a += b + (x); d = CULM_ROTATE(d ^ a, 16); \\
        c += d; b = CULM_ROTATE(b ^ c, 12); \\
        a += b + (y); d = CULM_ROTATE(d ^ a, 8); \\
        c += d; b = CULM_ROTATE(b ^ c, 7);
    /* Compress a block, with one counter or with those of all lanes. */
    #define CULM_COMPRESS(name, type, counters) \\
        static void name( \\
            type v[16], const uint32_t chain[8], const uint32_t block[16], uint32_t counter, \\
            uint32_t size, uint32_t flags \\
        ) { \\
            uint32_t m[16], next[16]; \\
            const type all = counters(counter), zero = all ^ all; \\
            for (int i = 0; i < 8; i++) v[i] = zero + chain[i]; \\
            for (int i = 0; i < 4; i++) v[8 + i] = zero + culm_blake3_start[i]; \\
            v[12] = all; v[13] = zero; v[14] = zero + size; v[15] = zero + flags; \\
            memcpy(m, block, sizeof m); \\
            for (int round = 0; round < 7; round++) { \\
                CULM_QUARTER(v[0], v[4], v[8], v[12], m[0], m[1]) \\
                CULM_QUARTER(v[1], v[5], v[9], v[13], m[2], m[3]) \\
                CULM_QUARTER(v[2], v[6], v[10], v[14], m[4], m[5]) \\
                CULM_QUARTER(v[3], v[7], v[11], v[15], m[6], m[7]) \\
                CULM_QUARTER(v[0], v[5], v[10], v[15], m[8], m[9]) \\
                CULM_QUARTER(v[1], v[6], v[11], v[12], m[10], m[11]) \\
                CULM_QUARTER(v[2], v[7], v[8], v[13], m[12], m[13]) \\
                CULM_QUARTER(v[3], v[4], v[9], v[14], m[14], m[15]) \\
                for (int i = 0; i < 16; i++) next[i] = m[culm_blake3_order[i]]; \\
                memcpy(m, next, sizeof m); \\
            } \\
            for (int i = 0; i < 8; i++) { \\
                v[i] ^= v[i + 8]; \\
                v[i + 8] ^= zero + chain[i]; \\
            } \\
        }
    CULM_COMPRESS(culm_blake3_one, uint32_t, CULM_ITSELF)
    CULM_COMPRESS(culm_blake3_row, culm_row, CULM_UP_FROM)
    /* So many bytes: the first row of all blocks that are made side by side, their second one, ... */
    static void culm_draw_out(
        uint8_t *rows, const uint32_t chain[8], const uint32_t block[16], uint32_t size,
        uint32_t flags
    ) {
        culm_row v[16];
        for (uint32_t at = 0; at < 2048 / 64; at += CULM_SIDE_BY_SIDE) {
            culm_blake3_row(v, chain, block, at, size, flags);
            memcpy(rows + 64 * at, v, sizeof v);
        }
    }
    """
    const int SIDE_BY_SIDE "CULM_SIDE_BY_SIDE"
    const bint WORDS_ARE_BYTES "CULM_WORDS_ARE_BYTES"
    uint64_t add_four "culm_add_four"(uint64_t first, uint64_t second) noexcept nogil
    uint64_t take_four "culm_take_four"(uint64_t first, uint64_t second) noexcept nogil
    const uint32_t *BLAKE3_START "culm_blake3_start"
    void blake3_one "culm_blake3_one"(
        uint32_t *v, const uint32_t *chain, const uint32_t *block, uint32_t counter,
        uint32_t size, uint32_t flags
    ) noexcept nogil
    void draw_out "culm_draw_out"(
        uint8_t *rows, const uint32_t *chain, const uint32_t *block, uint32_t size, uint32_t flags
    ) noexcept nogil
    void add_numbers "culm_add_numbers"(void *into, const void *first, const void *second) noexcept nogil
    void take_numbers "culm_take_numbers"(void *into, const void *first, const void *second) noexcept nogil


cdef void lift_rows(uint64_t *rows, const uint8_t *p, Py_ssize_t size) noexcept nogil:
    """The numbers of an item of at most 1024 bytes, as they come: `in_order` puts them right.

    Sums of several items can be made before that.
    """
    cdef uint32_t[16] v
    cdef uint32_t[8] chain
    cdef uint32_t[16] block
    cdef uint8_t[BLOCK_SIZE] padded
    cdef uint32_t flags = CHUNK_START
    cdef int row
    for row in range(8):
        chain[row] = BLAKE3_START[row]
    while size > BLOCK_SIZE:
        for row in range(16):
            block[row] = load_32(p + 4 * row)
        blake3_one(v, chain, block, 0, BLOCK_SIZE, flags)
        memcpy(chain, v, sizeof(chain))
        flags = 0
        p += BLOCK_SIZE
        size -= BLOCK_SIZE
    memset(padded, 0, BLOCK_SIZE)
    memcpy(padded, p, size)
    for row in range(16):
        block[row] = load_32(padded + 4 * row)
    draw_out(<uint8_t *>rows, chain, block, <uint32_t>size, flags | CHUNK_END | ROOT)


cdef void in_order(uint64_t *words, const uint64_t *rows) noexcept nogil:
    """Four numbers in a word, lowest first."""
    cdef const uint8_t *p = <const uint8_t *>rows
    cdef uint32_t low, high
    cdef int at, lane, row, lanes = SIDE_BY_SIDE
    for at in range(LTHASH_WORDS // (8 * lanes)):
        for lane in range(lanes):
            for row in range(0, 16, 2):
                memcpy(&low, p + 4 * (lanes * row + lane), 4)
                memcpy(&high, p + 4 * (lanes * (row + 1) + lane), 4)
                words[0] = low | <uint64_t>high << 32
                words += 1
        p += 64 * lanes


cdef void lift_lthash(uint64_t *words, const uint8_t *p, Py_ssize_t size) noexcept nogil:
    """The numbers of one item, four in a word, lowest first."""
    cdef uint64_t[LTHASH_WORDS] rows
    lift_rows(rows, p, size)
    in_order(words, rows)
