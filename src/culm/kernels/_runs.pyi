# The same names with the same meaning; tests compare the signatures.
from culm.kernels.pure_runs import choose as choose
from culm.kernels.pure_runs import read as read
from culm.kernels.pure_runs import stored_size as stored_size
