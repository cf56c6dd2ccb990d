"""``checkpoint.include``: whether a shard keeps its experience."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest
from rljob.roles.options import RoleOptions
from rljob.roles.replay import run_replay

from tests.support import role_threads
from tests.support.threads import running
from tests.support.waiting import eventually


def announced(run_dir: Path) -> Path:
    """What the shard writes once it serves."""
    return run_dir / "announced.json"


def shard(run_dir: Path, include: list[str]) -> RoleOptions:
    return RoleOptions(
        job=role_threads.cartpole(checkpoint={"include": include}),
        run_dir=run_dir,
        name="replay-0",
        replay_ingest=(f"ipc://{run_dir}/i",),
        replay_sample=(f"ipc://{run_dir}/s",),
        announce=announced(run_dir),
    )


@pytest.mark.parametrize(("include", "kept"), [(["Learner", "Replay"], True), (["Learner"], False)])
def test_experience_is_kept_only_where_include_names_the_replay(tmp_path: Path, include: list[str], kept: bool) -> None:
    options = shard(tmp_path, include)
    with running(lambda stop: run_replay(options, stop)):
        eventually(announced(tmp_path).exists)
    assert (tmp_path / "redis" / "replay-0").exists() is kept


def test_a_private_server_is_not_told_the_name_that_another_one_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("USERNAME", "PASSWORD"):
        monkeypatch.setenv(f"RLJOB_REDIS_{name}", "of another server")

    def answered() -> bool:
        """Whether the server has let the shard ask for something."""
        url = json.loads(announced(tmp_path).read_text())["metrics_url"]
        with urllib.request.urlopen(f"{url}/status", timeout=5) as answer:
            status = json.load(answer)
        return bool(status["durable"]) and status["redis"]["used_memory_bytes"] is not None

    options = shard(tmp_path, ["Learner", "Replay"])
    with running(lambda stop: run_replay(options, stop)):
        eventually(announced(tmp_path).exists)
        eventually(answered)
