# The same names with the same meaning; tests compare the signatures.
from culm.kernels.pure_varu64 import NON_CANONICAL as NON_CANONICAL
from culm.kernels.pure_varu64 import TRUNCATED as TRUNCATED
from culm.kernels.pure_varu64 import decode as decode
from culm.kernels.pure_varu64 import decode_array as decode_array
from culm.kernels.pure_varu64 import decode_many as decode_many
from culm.kernels.pure_varu64 import decoder as decoder
from culm.kernels.pure_varu64 import encode as encode
from culm.kernels.pure_varu64 import encode_many as encode_many
from culm.kernels.pure_varu64 import size as size
