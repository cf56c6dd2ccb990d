"""What the learner says of itself: the document as others know it, and that what is wrong in one is missing, never zero."""

import itertools
import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from rljob.api.learner_status import (
    RECORDED_NAMES,
    ActorStatus,
    CheckpointStatement,
    EvaluationUnderWay,
    LearnerStatus,
    QueueSummary,
    ReplaySummary,
    Verdict,
)
from rljob.telemetry.catalogue import LEARNER

ALWAYS = {
    "role", "state", "epoch", "updates", "samples", "steps", "steps_total", "raw_frames_total", "ready_batches",
    "skipped_updates", "left_out_batches", "recompiles", "resubscriptions", "learning_rate", "episodes_total", "mean_return",
    "games", "mean_length_steps", "episode", "episode_games", "queue_depth_batches", "queue_bound_batches", "samples_per_insert",
    "policy_lag_updates",
    "policy_lag_updates_p50", "policy_lag_updates_p95", "policy_lag_histogram", "loss", "learner_wait_fraction",
    "actors_blocked_fraction", "updates_per_second", "steps_per_second", "raw_frames_per_second", "actors", "stages",
    "rss_bytes", "processes", "standstill", "given_up", "weights", "evaluations", "evaluating", "checkpoint", "compiled",
    "captured", "refused_handshakes_total", "gpu", "device", "batch_size", "precision", "compute_seconds", "mirror", "rewards",
    "environment", "started_unix",
}  # fmt: skip
WHERE_KNOWN = {
    "consumption_per_second", "production_per_second", "replay", "queue", "lag_limit_updates", "rejected_total",
    "inference", "device_name", "device_memory_bytes", "driver", "untracked",
}  # fmt: skip
OF_THE_ALGORITHMS = {
    "advantage_std",
    "clip_share",
    "critic_loss",
    "entropy",
    "explained_variance",
    "gradient_norm",
    "log_std",
    "loss_scale",
    "policy_kl",
    "policy_loss",
    "q_taken",
    "temperature",
    "value",
    "value_loss",
}
ACTORS = (ActorStatus(name="actor-0", policy_version=7, stages={"env": 1.0}), ActorStatus(name="actor-1"))
STATUS = LearnerStatus(
    state="Training",
    epoch=2,
    updates=10,
    raw_frames_total=4000,
    mean_return=-20.5,
    learner_wait_fraction=0.25,
    actors_blocked_fraction=0.5,
    consumption_per_second=100.0,
    production_per_second=120.0,
    queue_depth_batches=3.0,
    queue_bound_batches=64.0,
    policy_lag_updates_p95=30.0,
    lag_limit_updates=600.0,
    actors=ACTORS,
    stages={"learner": {"update": 2.0}},
    replay=ReplaySummary(items=5, capacity=10, nbytes=4096, fill=0.5, durable=True, state="serving", durability="On"),
    queue=QueueSummary(received=3, learned=2, dropped={"stale": 1}),
    rejected_total={"invalid": 1},
    evaluations=(Verdict(version=3, mean=1.5, standard_error=0.1, episodes=20, seed=7),),
    evaluating=EvaluationUnderWay(version=4, games=1, episodes=20),
    checkpoint=CheckpointStatement(step=10, path="/run/10", state="Valid", written_unix=5.0, interval_seconds=300.0),
    untracked={"MLflow": "it is away"},
    gpu={"utilization": 0.5},
    inference={"state": "Serving"},
    device="cuda",
    device_name="H100",
    device_memory_bytes=1 << 36,
    driver="570",
    standstill="both sides wait",
)
FIGURES = (
    "raw_frames_total",
    "learner_wait_fraction",
    "actors_blocked_fraction",
    "consumption_per_second",
    "production_per_second",
    "queue_depth_batches",
    "queue_bound_batches",
    "policy_lag_updates_p95",
    "mean_return",
)


def read(document: dict[str, Any]) -> LearnerStatus:
    """As a controller reads it at 5 s; Python's JSON has words for numbers that are none."""
    return LearnerStatus.answered(json.dumps(document), 5.0)


def document(**changes: Any) -> dict[str, Any]:
    return STATUS.to_document() | changes


def test_the_document_has_the_names_that_others_read() -> None:
    whole = STATUS.to_document()
    assert (set(LearnerStatus().to_document()), set(whole)) == (ALWAYS, ALWAYS | WHERE_KNOWN)
    assert whole["replay"]["bytes"] == 4096
    own = {each.path for each in LEARNER if each.path.partition("/")[0] not in ALWAYS | WHERE_KNOWN}
    assert own == OF_THE_ALGORITHMS
    assert ALWAYS | WHERE_KNOWN | {"loss", "gradient_norm", "kind"} <= RECORDED_NAMES, "no algorithm may take them"


def test_what_an_update_reports_stands_beside_the_other_figures_and_in_the_place_of_none() -> None:
    said = replace(STATUS, update_figures={"loss": 0.5, "entropy": 1.25, "updates": 99.0}).to_document()
    assert (said["loss"], said["entropy"], said["updates"]) == (0.5, 1.25, 10)


def test_what_is_written_is_read_again() -> None:
    assert read(document()) == replace(STATUS, taken_seconds=5.0)


def test_a_status_of_another_version_is_read() -> None:
    said = document(colour={"of": ["the", "learner"]}, steps_total=None)
    del said["compiled"], said["evaluations"][0]["seed"], said["actors"][1]["slot"], said["replay"]["state"]
    said["actors"][0]["mood"] = said["checkpoint"]["mood"] = "good"
    found = read(said)
    assert (found.compiled, found.evaluations[0].seed, found.actors) == (None, None, ACTORS)
    assert found.replay == replace(STATUS.replay, state="")  # type: ignore[type-var]
    assert found.checkpoint == STATUS.checkpoint


@pytest.mark.parametrize("content", ["", "not json", "[]", "3", "null", b"\xff\xfe", "{", "[" * 100_000, "{}"])
def test_what_is_no_status_at_all(content: bytes | str) -> None:
    with pytest.raises(ValueError, match="its status"):
        LearnerStatus.answered(content, 0.0)


@pytest.mark.parametrize(
    ("name", "bad", "said"),
    [
        *(("updates", bad, "no count of updates") for bad in (-1, "10", True, [], 10**400, 1e300, None)),
        *(("mean_return", bad, "no JSON") for bad in (math.nan, math.inf)),
    ],
)
def test_without_believable_updates_or_json_there_is_nothing_to_judge(name: str, bad: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read(document(**{name: bad}))


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        *itertools.product(FIGURES, ["0.5", False, {}, 10**400, 1e300, -1e300]),
        ("learner_wait_fraction", 1.01),
        *itertools.product(["replay", "queue", "evaluating", "checkpoint"], ["none", [], 7]),
    ],
)
def test_a_bad_figure_or_part_is_missing_and_the_others_stay(name: str, bad: Any) -> None:
    assert read(document(**{name: bad})) == replace(STATUS, taken_seconds=5.0, **{name: None})


def test_of_a_part_only_what_is_wrong_is_missing() -> None:
    found = read(
        document(replay={"items": "many", "state": "filling"}, queue={"learned": 4, "dropped": {"stale": "x"}})
    )
    assert (found.replay, found.queue) == (ReplaySummary(state="filling"), QueueSummary(learned=4))


def test_rows_that_are_not_as_they_should_be_are_left_out() -> None:
    verdicts = [{"mean": None}, 7, {"mean": "high"}, {"mean": 2}, {"mean": 3, "finished": False}, {"finished": True}]
    actors = [None, {"name": "actor-0", "policy_version": "x"}, {"name": "actor-1", "policy_version": 9}]
    found = read(document(evaluations=verdicts, actors=actors))
    assert [(each.mean, each.finished) for each in found.evaluations] == [(2.0, True), (3.0, False)]
    assert [(each.name, each.policy_version) for each in found.actors] == [("actor-1", 9)]
    none = read(document(evaluations="none", actors={"0": 1}))
    assert (none.evaluations, none.actors) == ((), ())


def test_texts_have_a_length() -> None:
    assert len(read(document(standstill="x" * 10**6)).standstill) == 2000


def test_for_decisions_what_views_alone_show_is_left_out() -> None:
    kept = STATUS.for_decisions()
    assert [(each.name, each.policy_version, each.stages) for each in kept.actors] == [
        ("actor-0", 7, {}),
        ("actor-1", 0, {}),
    ]
    assert (kept.gpu, kept.inference) == ({}, None)
    assert replace(kept, actors=ACTORS, gpu=STATUS.gpu, inference=STATUS.inference) == STATUS


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from(sorted(ALWAYS | WHERE_KNOWN)), JSON))
def test_whatever_comes_is_a_status_in_range_or_a_refusal(changes: dict[str, Any]) -> None:
    try:
        found = LearnerStatus.answered(json.dumps(document(**changes)), 0.0)
    except ValueError:
        return
    for name in FIGURES:
        value = getattr(found, name)
        assert value is None or (-1e15 if name == "mean_return" else 0) <= value <= 1e15
    assert all(math.isfinite(each.mean) for each in found.evaluations)
    assert LearnerStatus.answered(json.dumps(found.to_document()), 0.0) == found
