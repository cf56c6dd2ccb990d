"""``checkpoint.include``: whether a shard keeps its experience."""

from __future__ import annotations

from pathlib import Path

import pytest
from rljob.roles.options import RoleOptions
from rljob.roles.replay import run_replay

from tests.support import role_threads
from tests.support.threads import running
from tests.support.waiting import eventually


@pytest.mark.parametrize(("include", "kept"), [(["Learner", "Replay"], True), (["Learner"], False)])
def test_experience_is_kept_only_where_include_names_the_replay(tmp_path: Path, include: list[str], kept: bool) -> None:
    job = role_threads.cartpole(checkpoint={"include": include})
    announced = tmp_path / "announced.json"
    options = RoleOptions(
        job=job,
        run_dir=tmp_path,
        name="replay-0",
        replay_ingest=(f"ipc://{tmp_path}/i",),
        replay_sample=(f"ipc://{tmp_path}/s",),
        announce=announced,
    )
    with running(lambda stop: run_replay(options, stop)):
        eventually(announced.exists)
    assert (tmp_path / "redis" / "replay-0").exists() is kept
