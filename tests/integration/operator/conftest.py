"""Runs for the tests of this folder, ended whatever happens."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.local_run import LocalRun
from tests.support.paths import EXAMPLES

CARTPOLE = EXAMPLES / "cartpole-apex.yaml"


@pytest.fixture
def local_run(tmp_path: Path) -> Iterator[Callable[..., LocalRun]]:
    """Starts `rljob run` with options, by default on CartPole in a folder of the test."""
    runs: list[LocalRun] = []

    def start(
        *options: str,
        run_dir: Path | None = None,
        job: Path = CARTPOLE,
        environment: dict[str, str] | None = None,
        prelude: str = "",
    ) -> LocalRun:
        name = f"-{len(runs)}" if runs else ""
        folder = run_dir or tmp_path / "run"
        runs.append(LocalRun(job, folder, *options, environment=environment, output=name, prelude=prelude))
        return runs[-1]

    yield start
    for run in runs:
        run.close()
