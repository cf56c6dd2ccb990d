"""Places of this project."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "manifests" / "examples"
PLUGINS = ROOT / "examples" / "plugins"
"""Algorithms and networks as users write them, and jobs that name them by their files."""
ENVIRONMENTS = ROOT / "examples" / "environments"
"""Environments as users connect them, and jobs that name them by their files."""
MANIFESTS = sorted([*EXAMPLES.glob("*.yaml"), *PLUGINS.glob("*.yaml"), *ENVIRONMENTS.glob("*.yaml")])
"""Every job that is shipped as an example."""
SUPPORT = ROOT / "tests" / "support"
IMPORTABLE = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
"""For the environment of a process that imports games from ``tests.support`` or ``benchmarks``."""
SLOWED = {"PYTHONPATH": os.pathsep.join([str(SUPPORT / "slowed"), IMPORTABLE["PYTHONPATH"]])}
"""The same, of a run whose learner or replay service is made slow (``tests.support.slowed``)."""
