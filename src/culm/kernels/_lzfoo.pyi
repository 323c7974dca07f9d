# The same names with the same meaning; tests compare the signatures.
from culm.kernels.pure_lzfoo import BAD_LENGTH as BAD_LENGTH
from culm.kernels.pure_lzfoo import FAR_OFFSET as FAR_OFFSET
from culm.kernels.pure_lzfoo import TRAILING as TRAILING
from culm.kernels.pure_lzfoo import WINDOW_MAX as WINDOW_MAX
from culm.kernels.pure_lzfoo import ZERO_OFFSET as ZERO_OFFSET
from culm.kernels.pure_lzfoo import Compressor as Compressor
from culm.kernels.pure_lzfoo import Decompressor as Decompressor
