# The same names with the same meaning; tests compare the signatures.
from culm.kernels.pure_symbols import SYMBOLS_MAX as SYMBOLS_MAX
from culm.kernels.pure_symbols import Difference as Difference
from culm.kernels.pure_symbols import Ids as Ids
from culm.kernels.pure_symbols import Symbols as Symbols
