"""What was said of a job's pods holds for the job that it was said of, and a check that broke off has said nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from rljob_operator.kube.apiserver.errors import ApiError, Invalid, QuotaExceeded, Unavailable
from rljob_operator.kube.job.preflight import AGAIN_SECONDS, Preflight
from rljob_operator.kube.job.stored import StoredJob, read


class Answers:
    """Gives each check the next of ``answers``; None passes."""

    def __init__(self, *answers: ApiError | None) -> None:
        self._answers = list(answers)

    async def try_one_of_each(self, stored: StoredJob, members: list[str]) -> None:
        answer = self._answers.pop(0)
        if answer is not None:
            raise answer

    @property
    def left(self) -> int:
        return len(self._answers)


def stored(generation: int = 1, **spec: Any) -> StoredJob:
    about = {"name": "job", "namespace": "team", "uid": "u", "generation": generation, "resourceVersion": "1"}
    checkpoint = {"onSuspend": "Skip"}
    full = {"preset": "CartPoleIMPALA", "checkpoint": checkpoint, **spec}
    return read({"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": about, "spec": full}, None)


@pytest.mark.parametrize("problem", [Invalid, QuotaExceeded])
def test_a_suspended_job_is_held_by_no_earlier_refusal(problem: type[ApiError]) -> None:
    preflight, answers = Preflight(), Answers(problem("no"), None)
    asyncio.run(preflight.check(stored(1), answers, 0.0))
    assert preflight.refusal or preflight.admission

    asyncio.run(preflight.check(stored(2, suspend=True), answers, 1.0))

    assert preflight.refusal is None
    assert preflight.admission is None
    assert preflight.sooner(None, AGAIN_SECONDS + 5.0) is None  # nothing is due
    asyncio.run(preflight.check(stored(3), answers, 2.0))
    assert answers.left == 0


def test_a_check_that_broke_off_is_made_again() -> None:
    preflight, answers = Preflight(), Answers(Unavailable("away"), Invalid("no"))
    with pytest.raises(Unavailable):
        asyncio.run(preflight.check(stored(), answers, 0.0))

    asyncio.run(preflight.check(stored(), answers, 1.0))

    assert preflight.refusal is not None
