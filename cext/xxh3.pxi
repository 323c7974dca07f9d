# XXH3 with 128 bits of result, seed 0 and the secret of the specification: doc/xxhash_spec.md
# of Cyan4973/xxHash, "XXH3 Algorithm Description".  Needs octets.pxi.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef extern from *:
    """
    #if defined(_MSC_VER) && defined(_M_X64) && !defined(__clang__)
    #include <intrin.h>
    static CYTHON_INLINE uint64_t culm_multiply(uint64_t a, uint64_t b, uint64_t *high) {
        return _umul128(a, b, high);
    }
    #elif defined(__SIZEOF_INT128__)
    static CYTHON_INLINE uint64_t culm_multiply(uint64_t a, uint64_t b, uint64_t *high) {
        __extension__ unsigned __int128 product = (unsigned __int128)a * b;
        *high = (uint64_t)(product >> 64);
        return (uint64_t)product;
    }
    #else
    static CYTHON_INLINE uint64_t culm_multiply(uint64_t a, uint64_t b, uint64_t *high) {
        uint64_t low = (a & 0xffffffffu) * (b & 0xffffffffu);
        uint64_t left = (a >> 32) * (b & 0xffffffffu);
        uint64_t right = (a & 0xffffffffu) * (b >> 32);
        uint64_t middle = (low >> 32) + (left & 0xffffffffu) + right;
        *high = (a >> 32) * (b >> 32) + (left >> 32) + (middle >> 32);
        return middle << 32 | (low & 0xffffffffu);
    }
    #endif

    static const uint8_t culm_xxh3_secret[192] = {
        0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad,
        0x1c, 0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3,
        0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc,
        0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6,
        0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65,
        0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19,
        0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9,
        0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31,
        0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb,
        0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb, 0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0,
        0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16, 0xbe, 0x58, 0x7d,
        0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f,
        0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e};
    """
    # The low half of the product; the high one goes to `high`.
    uint64_t multiply "culm_multiply"(uint64_t a, uint64_t b, uint64_t *high) noexcept nogil
    const uint8_t *SECRET "culm_xxh3_secret"

# Of long items: adds `stripes` stripes of 64 bytes to the eight lanes, the key moving on by 8 bytes
# with each.  It takes the vectors that every x86-64 and every 64-bit ARM has, for compilers do not
# find by themselves that the product of a lane's two halves is one instruction there.
cdef extern from *:
    """
    #if defined(__SSE2__) || (defined(_MSC_VER) && defined(_M_X64))
    #include <emmintrin.h>
    #define CULM_LANES_IN_PAIRS
    typedef __m128i culm_pair;
    #define culm_load_pair(p) _mm_loadu_si128((const __m128i *)(p))
    #define culm_store_pair(p, pair) _mm_storeu_si128((__m128i *)(p), pair)
    static CYTHON_INLINE culm_pair culm_mix(culm_pair sum, culm_pair data, culm_pair key) {
        const culm_pair keyed = _mm_xor_si128(data, key);
        const culm_pair product = _mm_mul_epu32(keyed, _mm_srli_epi64(keyed, 32));
        return _mm_add_epi64(_mm_add_epi64(sum, _mm_shuffle_epi32(data, 0x4e)), product);
    }
    #elif defined(__aarch64__) && defined(__ARM_NEON) && !defined(__AARCH64EB__)
    #include <arm_neon.h>
    #define CULM_LANES_IN_PAIRS
    typedef uint64x2_t culm_pair;
    #define culm_load_pair(p) vreinterpretq_u64_u8(vld1q_u8((const uint8_t *)(p)))
    #define culm_store_pair(p, pair) vst1q_u8((uint8_t *)(p), vreinterpretq_u8_u64(pair))
    static CYTHON_INLINE culm_pair culm_mix(culm_pair sum, culm_pair data, culm_pair key) {
        const culm_pair keyed = veorq_u64(data, key);
        sum = vaddq_u64(sum, vextq_u64(data, data, 1));
        return vmlal_u32(sum, vmovn_u64(keyed), vshrn_n_u64(keyed, 32));
    }
    #endif

    static CYTHON_INLINE void culm_accumulate(
        uint64_t *lanes, const uint8_t *p, const uint8_t *key, ptrdiff_t stripes
    ) {
    #ifdef CULM_LANES_IN_PAIRS
        culm_pair sums[4];
        for (int at = 0; at < 4; at++) sums[at] = culm_load_pair(lanes + 2 * at);
        for (; stripes > 0; stripes--, p += 64, key += 8)
            for (int at = 0; at < 4; at++)
                sums[at] = culm_mix(
                    sums[at], culm_load_pair(p + 16 * at), culm_load_pair(key + 16 * at));
        for (int at = 0; at < 4; at++) culm_store_pair(lanes + 2 * at, sums[at]);
    #else
        for (; stripes > 0; stripes--, p += 64, key += 8)
            for (int lane = 0; lane < 8; lane++) {
                const uint64_t value = culm_load_64(p + 8 * lane);
                const uint64_t keyed = value ^ culm_load_64(key + 8 * lane);
                lanes[lane] += (keyed & 0xffffffffu) * (keyed >> 32);
                lanes[lane ^ 1] += value;
            }
    #endif
    }
    """
    void accumulate "culm_accumulate"(
        uint64_t *lanes, const uint8_t *p, const uint8_t *key, Py_ssize_t stripes
    ) noexcept nogil

cdef enum:
    SECRET_SIZE = 192
    SECRET_SIZE_MIN = 136
    STRIPE_SIZE = 64
    STRIPES_PER_BLOCK = (SECRET_SIZE - STRIPE_SIZE) // 8

cdef extern from *:
    """
    #define CULM_P32_1 0x9E3779B1ull
    #define CULM_P32_2 0x85EBCA77ull
    #define CULM_P32_3 0xC2B2AE3Dull
    #define CULM_P64_1 0x9E3779B185EBCA87ull
    #define CULM_P64_2 0xC2B2AE3D27D4EB4Full
    #define CULM_P64_3 0x165667B19E3779F9ull
    #define CULM_P64_4 0x85EBCA77C2B2AE63ull
    #define CULM_P64_5 0x27D4EB2F165667C5ull
    #define CULM_MIX_1 0x165667919E3779F9ull
    #define CULM_MIX_2 0x9FB21C651E98DF25ull
    """
    const uint64_t P32_1 "CULM_P32_1", P32_2 "CULM_P32_2", P32_3 "CULM_P32_3"
    const uint64_t P64_1 "CULM_P64_1", P64_2 "CULM_P64_2", P64_3 "CULM_P64_3"
    const uint64_t P64_4 "CULM_P64_4", P64_5 "CULM_P64_5"
    const uint64_t MIX_1 "CULM_MIX_1", MIX_2 "CULM_MIX_2"

cdef struct Hash:
    uint64_t low
    uint64_t high


cdef inline uint64_t swap_64(uint64_t value) noexcept nogil:
    cdef uint8_t[8] octets
    store_64_be(octets, value)
    return load_64(octets)


cdef inline uint64_t secret_pair(int at) noexcept nogil:
    return load_64(SECRET + at) ^ load_64(SECRET + at + 8)


cdef inline uint64_t avalanche(uint64_t value) noexcept nogil:
    value = (value ^ value >> 37) * MIX_1
    return value ^ value >> 32


cdef inline uint64_t avalanche_xxh64(uint64_t value) noexcept nogil:
    value = (value ^ value >> 33) * P64_2
    value = (value ^ value >> 29) * P64_3
    return value ^ value >> 32


cdef inline uint64_t fold(uint64_t a, uint64_t b) noexcept nogil:
    cdef uint64_t high = 0
    cdef uint64_t low = multiply(a, b, &high)
    return low ^ high


cdef inline uint64_t mix_16(const uint8_t *p, int at) noexcept nogil:
    return fold(load_64(p) ^ load_64(SECRET + at), load_64(p + 8) ^ load_64(SECRET + at + 8))


cdef inline void mix_32(
    Hash *sums, const uint8_t *first, const uint8_t *second, int at
) noexcept nogil:
    sums.low += mix_16(first, at)
    sums.low ^= load_64(second) + load_64(second + 8)
    sums.high += mix_16(second, at + 16)
    sums.high ^= load_64(first) + load_64(first + 8)


cdef inline Hash hash_up_to_8(const uint8_t *p, Py_ssize_t size) noexcept nogil:
    cdef Hash hash
    cdef uint32_t low, high
    cdef uint64_t keyed
    if size == 0:
        hash.low = avalanche_xxh64(secret_pair(64))
        hash.high = avalanche_xxh64(secret_pair(80))
    elif size < 4:
        low = <uint32_t>p[0] << 16 | <uint32_t>p[size >> 1] << 24 | p[size - 1]
        low |= <uint32_t>size << 8
        high = <uint32_t>(swap_64(low) >> 32)
        high = high << 13 | high >> 19
        hash.low = avalanche_xxh64(low ^ <uint64_t>(load_32(SECRET) ^ load_32(SECRET + 4)))
        hash.high = avalanche_xxh64(high ^ <uint64_t>(load_32(SECRET + 8) ^ load_32(SECRET + 12)))
    else:
        keyed = load_32(p) | <uint64_t>load_32(p + size - 4) << 32
        keyed ^= secret_pair(16)
        hash.low = multiply(keyed, P64_1 + (<uint64_t>size << 2), &hash.high)
        hash.high += hash.low << 1
        hash.low ^= hash.high >> 3
        hash.low = (hash.low ^ hash.low >> 35) * MIX_2
        hash.low ^= hash.low >> 28
        hash.high = avalanche(hash.high)
    return hash


cdef inline Hash hash_up_to_16(const uint8_t *p, Py_ssize_t size) noexcept nogil:
    cdef Hash mixed, hash
    cdef uint64_t low = load_64(p), high = load_64(p + size - 8)
    mixed.low = multiply(low ^ high ^ secret_pair(32), P64_1, &mixed.high)
    mixed.low += <uint64_t>(size - 1) << 54
    high ^= secret_pair(48)
    mixed.high += high + <uint64_t><uint32_t>high * (P32_2 - 1)
    mixed.low ^= swap_64(mixed.high)
    hash.low = multiply(mixed.low, P64_2, &hash.high)
    hash.high += mixed.high * P64_2
    hash.low = avalanche(hash.low)
    hash.high = avalanche(hash.high)
    return hash


cdef inline Hash finish_middle(const Hash *sums, Py_ssize_t size) noexcept nogil:
    cdef Hash hash
    hash.low = avalanche(sums.low + sums.high)
    hash.high = 0 - avalanche(
        sums.low * P64_1 + sums.high * P64_4 + <uint64_t>size * P64_2
    )
    return hash


cdef inline Hash hash_up_to_128(const uint8_t *p, Py_ssize_t size) noexcept nogil:
    cdef Hash sums
    sums.low = <uint64_t>size * P64_1
    sums.high = 0
    if size > 32:
        if size > 64:
            if size > 96:
                mix_32(&sums, p + 48, p + size - 64, 96)
            mix_32(&sums, p + 32, p + size - 48, 64)
        mix_32(&sums, p + 16, p + size - 32, 32)
    mix_32(&sums, p, p + size - 16, 0)
    return finish_middle(&sums, size)


cdef Hash hash_up_to_240(const uint8_t *p, Py_ssize_t size) noexcept nogil:
    cdef Hash sums
    cdef Py_ssize_t at
    sums.low = <uint64_t>size * P64_1
    sums.high = 0
    for at in range(0, 128, 32):
        mix_32(&sums, p + at, p + at + 16, <int>at)
    sums.low = avalanche(sums.low)
    sums.high = avalanche(sums.high)
    for at in range(128, size - 31, 32):
        mix_32(&sums, p + at, p + at + 16, <int>at - 125)
    # Back to front, and with the secret's last bytes but the very last 17.
    mix_32(&sums, p + size - 16, p + size - 32, SECRET_SIZE_MIN - 17 - 16)
    return finish_middle(&sums, size)


cdef inline uint64_t merge(const uint64_t *lanes, int at, uint64_t merged) noexcept nogil:
    cdef int lane
    for lane in range(0, 8, 2):
        merged += fold(
            lanes[lane] ^ load_64(SECRET + at + 8 * lane),
            lanes[lane + 1] ^ load_64(SECRET + at + 8 * lane + 8),
        )
    return avalanche(merged)


cdef Hash hash_long(const uint8_t *p, Py_ssize_t size) noexcept nogil:
    cdef uint64_t[8] lanes
    cdef Hash hash
    cdef const uint8_t *last = p + size - STRIPE_SIZE
    cdef Py_ssize_t stripes = (size - 1) // STRIPE_SIZE
    cdef int lane
    lanes[0], lanes[1], lanes[2], lanes[3] = P32_3, P64_1, P64_2, P64_3
    lanes[4], lanes[5], lanes[6], lanes[7] = P64_4, P32_2, P64_5, P32_1
    while stripes >= STRIPES_PER_BLOCK:
        accumulate(lanes, p, SECRET, STRIPES_PER_BLOCK)
        for lane in range(8):
            lanes[lane] ^= lanes[lane] >> 47
            lanes[lane] ^= load_64(SECRET + SECRET_SIZE - STRIPE_SIZE + 8 * lane)
            lanes[lane] *= P32_1
        p += STRIPES_PER_BLOCK * STRIPE_SIZE
        stripes -= STRIPES_PER_BLOCK
    accumulate(lanes, p, SECRET, stripes)
    accumulate(lanes, last, SECRET + SECRET_SIZE - STRIPE_SIZE - 7, 1)
    hash.low = merge(lanes, 11, <uint64_t>size * P64_1)
    hash.high = merge(lanes, SECRET_SIZE - STRIPE_SIZE - 11, ~(<uint64_t>size * P64_2))
    return hash


cdef inline Hash xxh3(const uint8_t *p, Py_ssize_t size) noexcept nogil:
    if size <= 8:
        return hash_up_to_8(p, size)
    if size <= 16:
        return hash_up_to_16(p, size)
    if size <= 128:
        return hash_up_to_128(p, size)
    if size <= 240:
        return hash_up_to_240(p, size)
    return hash_long(p, size)
