"""The files that docs/plugins.md tells its reader to write, as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.paths import ROOT

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def write_example(folder: Path) -> Path:
    """``soft_q.py`` and ``soft_q.yaml`` in ``folder``; answers the manifest."""
    blocks = _BLOCK.findall((ROOT / "docs" / "plugins.md").read_text())
    code = next(text for kind, text in blocks if kind == "python")
    manifest = next(text for kind, text in blocks if kind == "yaml")
    (folder / "soft_q.py").write_text(code)
    (folder / "soft_q.yaml").write_text(manifest)
    return folder / "soft_q.yaml"
