"""What `rljob run` says of a job before its first process starts."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rljob.api.presets.merging import NO_ALGORITHM
from rljob_operator.verbs import run


@pytest.mark.parametrize(
    ("spec", "said"),
    [({}, True), ({"algorithm": {"type": "PPO"}}, False), ({"preset": "PPOVector"}, False)],
)
def test_which_algorithm_was_chosen_where_none_is_named(
    spec: dict[str, Any], said: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Idle:
        def prepare(self) -> None: ...

        def close(self) -> None: ...

    monkeypatch.setattr(run, "Launcher", Idle)
    monkeypatch.setattr(run.preflight, "check", lambda job, new: (None, {}))
    monkeypatch.setattr(run, "hand_over", lambda folder, environment, found: None)
    monkeypatch.setattr(run, "_control", lambda *arguments: 0)
    written = {
        "apiVersion": "rljob.dev/v1alpha1",
        "kind": "RLJob",
        "metadata": {"name": "by-its-id"},
        "spec": {"environment": {"id": "CartPole-v1"}, **spec},
    }
    console = Console(file=io.StringIO(), width=400)
    assert run.start(written, tmp_path / "run", max_seconds=None, max_actors=None, console=console) == 0
    assert isinstance(console.file, io.StringIO)
    assert (NO_ALGORITHM in console.file.getvalue().splitlines()) is said
