"""``checkpoint.include``: whether a shard keeps its experience."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
import role_threads
from rljob.cli.options import RoleOptions
from rljob.replay.worker import run_replay


@pytest.mark.parametrize(("include", "kept"), [(["Learner", "Replay"], True), (["Learner"], False)])
def test_experience_is_kept_only_where_include_names_the_replay(tmp_path: Path, include: list[str], kept: bool) -> None:
    job = role_threads.cartpole(checkpoint={"include": include})
    announced, stop = tmp_path / "announced.json", threading.Event()
    options = RoleOptions(
        job=job,
        run_dir=tmp_path,
        name="replay-0",
        replay_ingest=(f"ipc://{tmp_path}/i",),
        replay_sample=(f"ipc://{tmp_path}/s",),
        announce=announced,
    )
    thread = threading.Thread(target=run_replay, args=(options, stop))
    thread.start()
    try:
        deadline = time.monotonic() + 60
        while not announced.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert announced.exists()
    finally:
        stop.set()
        thread.join(60)
    assert (tmp_path / "redis" / "replay-0").exists() is kept
