# Loads, stores, and bytes made in place, for several kernels.  Included as text, because inline
# functions of one compiled module cannot be had from another one.
#
# Loads are of single bytes put together with shifts: right on every byte order and
# alignment, and compilers make one instruction (plus a byte swap) of each, nearly always.

from cpython.ref cimport Py_DECREF, PyObject
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "Python.h":
    PyObject *new_bytes "PyBytes_FromStringAndSize"(const char *data, Py_ssize_t size) except NULL
    int resize_bytes "_PyBytes_Resize"(PyObject **data, Py_ssize_t size) except -1
    char *bytes_data "PyBytes_AS_STRING"(PyObject *data)

cdef extern from *:
    """
    #include <string.h>
    #if defined(_MSC_VER) && !defined(__clang__)
    #include <intrin.h>
    static CYTHON_INLINE int culm_high_bit(uint64_t value) {
        unsigned long index;
        if (value >> 32) {
            _BitScanReverse(&index, (unsigned long)(value >> 32));
            return (int)index + 32;
        }
        _BitScanReverse(&index, (unsigned long)value);
        return (int)index;
    }
    static CYTHON_INLINE int culm_low_bit(uint64_t value) {
        unsigned long index;
        if ((uint32_t)value) {
            _BitScanForward(&index, (unsigned long)value);
            return (int)index;
        }
        _BitScanForward(&index, (unsigned long)(value >> 32));
        return (int)index + 32;
    }
    #else
    static CYTHON_INLINE int culm_high_bit(uint64_t value) { return 63 - __builtin_clzll(value); }
    static CYTHON_INLINE int culm_low_bit(uint64_t value) { return __builtin_ctzll(value); }
    #endif

    static CYTHON_INLINE uint32_t culm_load_32(const uint8_t *p) {
        return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    }
    static CYTHON_INLINE uint64_t culm_load_64(const uint8_t *p) {
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        /* Said outright: in a long row of loads compilers do not see it in the bytes below. */
        uint64_t value;
        memcpy(&value, p, 8);
        return value;
    #else
        return (uint64_t)culm_load_32(p) | (uint64_t)culm_load_32(p + 4) << 32;
    #endif
    }
    static CYTHON_INLINE uint64_t culm_load_64_be(const uint8_t *p) {
        return (uint64_t)p[0] << 56 | (uint64_t)p[1] << 48 | (uint64_t)p[2] << 40
            | (uint64_t)p[3] << 32 | (uint64_t)p[4] << 24 | (uint64_t)p[5] << 16
            | (uint64_t)p[6] << 8 | (uint64_t)p[7];
    }
    static CYTHON_INLINE void culm_store_64_be(uint8_t *p, uint64_t value) {
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        /* Said outright: next to other stores compilers do not see it in the bytes below. */
        value = __builtin_bswap64(value);
        memcpy(p, &value, 8);
    #else
        p[0] = (uint8_t)(value >> 56); p[1] = (uint8_t)(value >> 48);
        p[2] = (uint8_t)(value >> 40); p[3] = (uint8_t)(value >> 32);
        p[4] = (uint8_t)(value >> 24); p[5] = (uint8_t)(value >> 16);
        p[6] = (uint8_t)(value >> 8);  p[7] = (uint8_t)value;
    #endif
    }
    """
    # Index of the highest and of the lowest bit that is set; value is not zero.
    int high_bit "culm_high_bit"(uint64_t value) noexcept nogil
    int low_bit "culm_low_bit"(uint64_t value) noexcept nogil
    # Little-endian loads.
    uint32_t load_32 "culm_load_32"(const uint8_t *p) noexcept nogil
    uint64_t load_64 "culm_load_64"(const uint8_t *p) noexcept nogil
    # Big-endian load and store.
    uint64_t load_64_be "culm_load_64_be"(const uint8_t *p) noexcept nogil
    void store_64_be "culm_store_64_be"(uint8_t *p, uint64_t value) noexcept nogil


cdef inline int octets_of(uint64_t value) noexcept nogil:
    """How many bytes the big-endian form of `value` takes, at least one."""
    return (high_bit(value | 1) >> 3) + 1


cdef inline uint64_t load_be(const uint8_t *p, int octets) noexcept nogil:
    """The number in 1..8 big-endian bytes, of which no more are read."""
    cdef uint64_t value = 0
    cdef int index
    for index in range(octets):
        value = value << 8 | p[index]
    return value


cdef inline object shrink(PyObject *data, Py_ssize_t size):
    """Cut new bytes to `size`; the reference to `data` goes over to the result."""
    resize_bytes(&data, size)
    result = <object>data
    Py_DECREF(result)
    return result
