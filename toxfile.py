"""Lets tox find every interpreter that pyenv keeps, and names another one for the gate.

virtualenv takes the versions that pyenv has active, and a machine for development rarely
has all of them active.  On a machine without pyenv this does nothing.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tox.config.sets import ConfigSet
from tox.plugin import impl
from tox.session.state import State


@impl
def tox_add_core_config(core_conf: ConfigSet, state: State) -> None:
    """Append pyenv's interpreters to the search path, where they come last; name 3.13 or ours."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = [str(path) for path in sorted(root.glob("versions/3.1[1-9].*/bin"))]
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), *found])
    # Not by pyenv's shims, which are there for versions that are not active, too.
    kept = shutil.which("python3.13", path=os.pathsep.join(found))
    another = kept or shutil.which("python3.13") or sys.executable
    os.environ.setdefault("CULM_ANOTHER_PYTHON", another)
