"""`rljob run` of an environment with a nested Dict and a Tuple of choices, from its id alone to the target."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.support.local_run import LocalRun
from tests.support.paths import IMPORTABLE, ROOT

pytestmark = [pytest.mark.timeout(540), pytest.mark.long]


def test_it_trains_to_its_target(local_run: Callable[..., LocalRun]) -> None:
    run = local_run(job=ROOT / "tests" / "support" / "matching.yaml", environment=IMPORTABLE)
    assert run.finish(480) == 0, run.output + run.logs()
    outcome = json.loads((run.run_dir / "outcome.json").read_text())
    assert (outcome["state"], outcome["reason"]) == ("Complete", "TargetReturnReached")
    report = (run.run_dir / "report.html").read_text()
    assert "observation board.mode: index int64 [] of 3" in report
