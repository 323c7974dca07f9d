# The same names with the same meaning; tests compare the signatures.
from culm.kernels.pure_tree import BLOCK as BLOCK
from culm.kernels.pure_tree import WIDTH as WIDTH
from culm.kernels.pure_tree import Exchange as Exchange
from culm.kernels.pure_tree import Frozen as Frozen
from culm.kernels.pure_tree import Snapshot as Snapshot
from culm.kernels.pure_tree import Tree as Tree
from culm.kernels.pure_tree import View as View
from culm.kernels.pure_tree import sort as sort
