# The same names with the same meaning; tests compare the signatures.
from culm.kernels.pure_fingerprint import ITEM_SIZE_MAX as ITEM_SIZE_MAX
from culm.kernels.pure_fingerprint import LTHASH as LTHASH
from culm.kernels.pure_fingerprint import SUM as SUM
from culm.kernels.pure_fingerprint import XOR as XOR
from culm.kernels.pure_fingerprint import combine as combine
from culm.kernels.pure_fingerprint import lift as lift
from culm.kernels.pure_fingerprint import lift_cut as lift_cut
from culm.kernels.pure_fingerprint import lift_many as lift_many
from culm.kernels.pure_fingerprint import neutral as neutral
from culm.kernels.pure_fingerprint import subtract as subtract
from culm.kernels.pure_fingerprint import xxh3_128 as xxh3_128
