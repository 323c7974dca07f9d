# The same names with the same meaning; tests compare the signatures.
from culm.kernels.pure_hashing import BLAKE2B as BLAKE2B
from culm.kernels.pure_hashing import BLAKE3 as BLAKE3
from culm.kernels.pure_hashing import SHA256 as SHA256
from culm.kernels.pure_hashing import decode_entries as decode_entries
from culm.kernels.pure_hashing import hash_many as hash_many
from culm.kernels.pure_hashing import verify_many as verify_many
