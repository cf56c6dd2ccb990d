"""``rljob profile`` before it has begun; what it does beside a run is in ``tests/integration/operator/test_profile.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rljob_operator.verbs.local_jobs import LocalJob
from rljob_operator.verbs.profile import profile


def test_ctrl_c_before_a_folder_is_made_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*given: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalJob, "ask", ask)
    (tmp_path / "job.yaml").write_text("kind: RLJob")
    with pytest.raises(KeyboardInterrupt):
        profile(str(tmp_path))
    assert not (tmp_path / "profiles").exists()
