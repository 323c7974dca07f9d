# BLAKE3 of messages of at most one chunk (1024 bytes), eight side by side in the lanes of
# vectors, in two forms: for any processor, and for those of x86 with AVX2.  Source: the paper of
# BLAKE3, section 2.  Needs octets.pxi.

from libc.string cimport memcpy, memset

cdef enum:
    LANES = 8
    BLOCK_SIZE = 64
    DIGEST_SIZE = 32
    CHUNK_START = 1
    CHUNK_END = 2
    ROOT = 8

cdef extern from *:
    """
    static const uint32_t culm_blake3_begin[8] = {
        0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
        0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19};
    /* The word of the message that each half of each quarter of a round takes. */
    static const uint8_t culm_blake3_words[7][16] = {
        {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
        {2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8},
        {3, 4, 10, 12, 13, 2, 7, 14, 6, 5, 9, 0, 11, 15, 8, 1},
        {10, 7, 12, 9, 14, 3, 13, 15, 4, 0, 11, 2, 5, 8, 1, 6},
        {12, 13, 9, 11, 15, 10, 14, 8, 7, 2, 5, 3, 0, 1, 6, 4},
        {9, 14, 11, 5, 8, 12, 15, 1, 13, 3, 0, 10, 2, 6, 4, 7},
        {11, 15, 5, 0, 1, 9, 8, 6, 14, 10, 2, 12, 3, 4, 7, 13}};
    #define CULM_TURN(value, by) ((value) >> (by) | (value) << (32 - (by)))
    /* One quarter of a round, on four rows of the state and all lanes. */
    #define CULM_MIX(a, b, c, d, x, y) \\
        a += b + x; d = CULM_TURN(d ^ a, 16); \\
        c += d; b = CULM_TURN(b ^ c, 12); \\
        a += b + y; d = CULM_TURN(d ^ a, 8); \\
        c += d; b = CULM_TURN(b ^ c, 7);
    #if defined(__GNUC__)
    typedef uint32_t culm_row __attribute__((vector_size(32), aligned(4), may_alias));
    static CYTHON_INLINE __attribute__((always_inline)) void culm_blake3_body(
        uint32_t chain[8][8], const uint32_t m[16][8], const uint32_t size[8],
        const uint32_t flags[8], const uint32_t live[8]
    ) {
        culm_row v[16];
        #define CULM_ROW(words) (*(const culm_row *)(words))
        for (int row = 0; row < 8; row++) v[row] = CULM_ROW(chain[row]);
        for (int row = 0; row < 4; row++) v[8 + row] = (culm_row){0} + culm_blake3_begin[row];
        v[12] = v[13] = (culm_row){0};
        v[14] = CULM_ROW(size);
        v[15] = CULM_ROW(flags);
        for (int round = 0; round < 7; round++) {
            const uint8_t *w = culm_blake3_words[round];
            CULM_MIX(v[0], v[4], v[8], v[12], CULM_ROW(m[w[0]]), CULM_ROW(m[w[1]]))
            CULM_MIX(v[1], v[5], v[9], v[13], CULM_ROW(m[w[2]]), CULM_ROW(m[w[3]]))
            CULM_MIX(v[2], v[6], v[10], v[14], CULM_ROW(m[w[4]]), CULM_ROW(m[w[5]]))
            CULM_MIX(v[3], v[7], v[11], v[15], CULM_ROW(m[w[6]]), CULM_ROW(m[w[7]]))
            CULM_MIX(v[0], v[5], v[10], v[15], CULM_ROW(m[w[8]]), CULM_ROW(m[w[9]]))
            CULM_MIX(v[1], v[6], v[11], v[12], CULM_ROW(m[w[10]]), CULM_ROW(m[w[11]]))
            CULM_MIX(v[2], v[7], v[8], v[13], CULM_ROW(m[w[12]]), CULM_ROW(m[w[13]]))
            CULM_MIX(v[3], v[4], v[9], v[14], CULM_ROW(m[w[14]]), CULM_ROW(m[w[15]]))
        }
        for (int row = 0; row < 8; row++) {
            const culm_row old = CULM_ROW(chain[row]);
            *(culm_row *)chain[row] = old ^ ((old ^ v[row] ^ v[row + 8]) & CULM_ROW(live));
        }
    }
    static void culm_blake3_plain(
        uint32_t chain[8][8], const uint32_t m[16][8], const uint32_t size[8],
        const uint32_t flags[8], const uint32_t live[8]
    ) { culm_blake3_body(chain, m, size, flags, live); }
    #if defined(__x86_64__)
    __attribute__((target("avx2"))) static void culm_blake3_avx2(
        uint32_t chain[8][8], const uint32_t m[16][8], const uint32_t size[8],
        const uint32_t flags[8], const uint32_t live[8]
    ) { culm_blake3_body(chain, m, size, flags, live); }
    #define CULM_HAS_AVX2 __builtin_cpu_supports("avx2")
    #else
    #define CULM_HAS_AVX2 0
    #define culm_blake3_avx2 culm_blake3_plain
    #endif
    static int culm_blake3_plainly = 0;
    static void culm_blake3_compress(
        uint32_t chain[8][8], const uint32_t m[16][8], const uint32_t size[8],
        const uint32_t flags[8], const uint32_t live[8]
    ) {
        if (CULM_HAS_AVX2 && !culm_blake3_plainly) culm_blake3_avx2(chain, m, size, flags, live);
        else culm_blake3_plain(chain, m, size, flags, live);
    }
    /* Larger ones are faster one by one, in the code that the blake3 package has for each
       processor; without vectors all of them are. */
    static Py_ssize_t culm_blake3_size_max(void) {
        return CULM_HAS_AVX2 && !culm_blake3_plainly ? 1024 : 400;
    }
    #else
    static int culm_blake3_plainly = 0;
    static void culm_blake3_compress(
        uint32_t chain[8][8], const uint32_t m[16][8], const uint32_t size[8],
        const uint32_t flags[8], const uint32_t live[8]
    ) { (void)chain; (void)m; (void)size; (void)flags; (void)live; }
    static Py_ssize_t culm_blake3_size_max(void) { return -1; }
    #endif
    """
    const uint32_t *BLAKE3_BEGIN "culm_blake3_begin"
    void blake3_compress "culm_blake3_compress"(
        uint32_t (*chain)[8], const uint32_t (*m)[8], const uint32_t *size, const uint32_t *flags,
        const uint32_t *live
    ) noexcept nogil
    Py_ssize_t blake3_size_max "culm_blake3_size_max"() noexcept nogil
    int blake3_plainly "culm_blake3_plainly"


cdef inline void store_32(uint8_t *p, uint32_t value) noexcept nogil:
    p[0], p[1] = <uint8_t>value, <uint8_t>(value >> 8)
    p[2], p[3] = <uint8_t>(value >> 16), <uint8_t>(value >> 24)


cdef void blake3_side_by_side(
    const uint8_t **messages, const Py_ssize_t *sizes, uint8_t **targets
) noexcept nogil:
    """Write the digests of eight messages, of at most `blake3_size_max` bytes, to their targets."""
    cdef uint32_t[8][8] chain
    cdef uint32_t[16][8] words
    cdef uint32_t[8] size, flags, live
    cdef uint8_t[BLOCK_SIZE] padded
    cdef const uint8_t *block
    cdef Py_ssize_t left, most = 1, at = 0
    cdef int lane, row
    for row in range(8):
        for lane in range(LANES):
            chain[row][lane] = BLAKE3_BEGIN[row]
    for lane in range(LANES):
        most = max(most, sizes[lane])
    while at < most:
        for lane in range(LANES):
            left = sizes[lane] - at
            live[lane] = 0xFFFFFFFF if left > 0 or at == 0 else 0
            if left >= BLOCK_SIZE:
                block = messages[lane] + at
            else:
                memset(padded, 0, BLOCK_SIZE)
                if left > 0:
                    memcpy(padded, messages[lane] + at, left)
                block = padded
            for row in range(16):
                words[row][lane] = load_32(block + 4 * row)
            size[lane] = <uint32_t>(max(0, min(left, BLOCK_SIZE)))
            flags[lane] = (CHUNK_START if at == 0 else 0) | (
                CHUNK_END | ROOT if left <= BLOCK_SIZE else 0
            )
        blake3_compress(chain, words, size, flags, live)
        at += BLOCK_SIZE
    for lane in range(LANES):
        for row in range(8):
            store_32(targets[lane] + 4 * row, chain[row][lane])
