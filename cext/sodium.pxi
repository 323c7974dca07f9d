# Functions of the libsodium that PyNaCl brings, called without the interpreter.  PyNaCl's own
# module tells their addresses and types, on every platform; where it does not, or says something
# else than is expected, they stay NULL, and PyNaCl and hashlib are called in their place.

from libc.stdint cimport uint8_t, uintptr_t

ctypedef int (*OpenSigned)(
    uint8_t *, unsigned long long *, const uint8_t *, unsigned long long, const uint8_t *
) noexcept nogil
ctypedef int (*HashBlake2b)(
    uint8_t *, size_t, const uint8_t *, unsigned long long, const uint8_t *, size_t,
    const uint8_t *, const uint8_t *
) noexcept nogil

cdef OpenSigned open_signed = NULL
cdef HashBlake2b hash_blake2b = NULL


def _address(str name, str type):
    """Where a function of libsodium is; 0 if that is not known, or it is of another type."""
    try:
        from nacl import _sodium, bindings  # importing the bindings initializes the library

        found = _sodium.ffi.addressof(_sodium.lib, name)
        if _sodium.ffi.typeof(found).cname != type:
            return 0
        return int(_sodium.ffi.cast("uintptr_t", found)) if bindings else 0
    except Exception:
        return 0


open_signed = <OpenSigned><uintptr_t>_address(
    "crypto_sign_open",
    "int(*)(unsigned char *, unsigned long long *, unsigned char *, unsigned long long,"
    " unsigned char *)",
)
hash_blake2b = <HashBlake2b><uintptr_t>_address(
    "crypto_generichash_blake2b_salt_personal",
    "int(*)(unsigned char *, size_t, unsigned char *, unsigned long long, unsigned char *, size_t,"
    " unsigned char *, unsigned char *)",
)
