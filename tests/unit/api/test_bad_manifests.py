"""Every rule of the manifest, broken once: the problem names the place, shows the value and says what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest
from rljob.api import ApeXDQNParameters, ManifestError, load_manifest

from tests.unit.api.bad_manifests import APEX, BASE, CASES


@pytest.mark.parametrize(
    ("base", "overrides", "path", "words"), CASES, ids=[f"{case[0].stem} {' '.join(case[1])[:70]}" for case in CASES]
)
def test_a_broken_rule_is_named(base: Path, overrides: list[str], path: str, words: list[str]) -> None:
    with pytest.raises(ManifestError) as caught:
        load_manifest(base, overrides)
    problems = {problem.path: str(problem) for problem in caught.value.problems}
    assert path in problems, str(caught.value)
    for word in words:
        assert word in problems[path]
    assert len(problems) == 1, "one mistake makes one problem:\n" + str(caught.value)


def test_the_base_is_right() -> None:
    job = load_manifest(BASE)
    assert job.spec.algorithm.parameters_as(ApeXDQNParameters).batch_size == 128


def test_every_problem_at_once() -> None:
    """Structure, numbers, names, and rules between fields, in one answer."""
    overrides = [
        "spec.actors.replicas=-1",
        "spec.nonsense=1",
        f"{APEX}.gamma=2",
        f"{APEX}.learningRateFinal=0.5",
        "spec.replay.rateLimiter.errorBuffer=1",
        "spec.checkpoint.storage={}",
        "spec.environment.id=",
    ]
    with pytest.raises(ManifestError) as caught:
        load_manifest(BASE, overrides)
    assert {problem.path for problem in caught.value.problems} == {
        "spec.actors.replicas",
        "spec.nonsense",
        f"{APEX}.gamma",
        f"{APEX}.learningRateFinal",
        "spec.replay.rateLimiter.errorBuffer",
        "spec.checkpoint.storage",
        "spec",
    }
    assert str(caught.value).count("\n") == 6
