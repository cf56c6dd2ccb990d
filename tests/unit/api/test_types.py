"""Values: what becomes of quantities, decimals and defaults; and that every field is described."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError
from rljob.api import (
    ApeXDQNParameters,
    EnvironmentParameters,
    ImpalaParameters,
    RLJob,
    load_manifest,
    nearest,
    quantity,
)
from rljob.api.fields import description_of, unwrapped
from rljob.api.job import RLJobSpec
from rljob.api.types import decimal_text

BASE = Path(__file__).parent / "base.yaml"
IMPALA = Path(__file__).parent / "impala.yaml"
QUEUE = "spec.algorithm.impala.unrollQueue"


def test_what_is_judged_in_is_the_environment_of_training_with_what_differs() -> None:
    environment = "spec.environment={id: a:b, kwargs: {size: 3, colour: red}, actions: [0, 1], maxEpisodeSteps: 9}"

    def judged(changes: str) -> tuple[str, dict[str, object], int | None, list[int]]:
        found = load_manifest(BASE, [environment, f"spec.evaluator.environment={changes}"]).spec.judged_environment
        return found.id, found.kwargs, found.max_episode_steps, found.actions

    kwargs = {"size": 3, "colour": "red"}
    assert judged("{}") == judged("") == ("a:b", kwargs, 9, [0, 1])
    assert judged("{id: a:c}") == ("a:c", kwargs, 9, [0, 1])
    assert judged("{kwargs: {size: null}}") == ("a:b", {"size": None}, 9, [0, 1])
    assert judged("{kwargs: {}, maxEpisodeSteps: 100}") == ("a:b", {}, 100, [0, 1])
    assert load_manifest(BASE).spec.judged_environment == load_manifest(BASE).spec.environment


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0), ("2", 2), ("500m", 0.5), ("1k", 1e3), ("4Gi", 4 * 2**30), ("1.5Mi", 1.5 * 2**20), ("2G", 2e9),
        ("1e3", 1e3), ("1E3", 1e3), ("1E", 1e18), ("2Ei", 2 * 2**60), (".5", 0.5), ("100n", 1e-7),
    ],
)  # fmt: skip
def test_quantities(text: str, number: float) -> None:
    assert quantity(text) == pytest.approx(number)


@pytest.mark.parametrize("text", ["", "4GB", "-1", "1 Gi", "Gi", "1K", "nan", "inf", "1e999", "0x10"])
def test_no_quantities(text: str) -> None:
    with pytest.raises(ValueError, match="Kubernetes quantity"):
        quantity(text)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_decimals_survive_their_text(number: float) -> None:
    assert float(decimal_text(number)) == number


def test_defaults_are_the_documented_ones() -> None:
    parameters = ApeXDQNParameters()
    assert (parameters.gamma, parameters.n_step, parameters.batch_size, parameters.learning_rate) == (
        0.99,
        3,
        512,
        1e-4,
    )
    assert parameters.learning_rate_final == parameters.learning_rate
    environment = EnvironmentParameters()
    assert (environment.atari.frame_size, environment.frame_stack, environment.actions, environment.input_scale) == (
        84,
        4,
        "Clipped",
        None,
    )


def test_parameters_are_frozen_and_checked_when_changed() -> None:
    parameters = ApeXDQNParameters()
    with pytest.raises(ValidationError):
        parameters.gamma = 0.5  # type: ignore[misc]
    assert parameters.updated(n_step=5).n_step == 5
    with pytest.raises(ValidationError, match="integer from 1 to 100"):
        parameters.updated(n_step=0)


def test_replay_numbers() -> None:
    replay = load_manifest(
        BASE, ["spec.replay.capacityBytes=1Gi", "spec.replay.shards=2"]
    ).spec.required_replay.resolved()
    assert (replay.capacity, replay.capacity_bytes, replay.shards) == (200_000, 2**30, 2)
    assert replay.error_buffer == 6 * 800
    assert (
        load_manifest(BASE, ["spec.replay.rateLimiter.errorBuffer=6e3"]).spec.required_replay.resolved().error_buffer
        == 6000
    )


def test_no_limit_needs_no_error_buffer() -> None:
    job = load_manifest(BASE, ["spec.replay.rateLimiter.samplesPerInsert=0", "spec.replay.rateLimiter.errorBuffer=0"])
    assert job.spec.required_replay.resolved().samples_per_insert == 0


@given(
    ratio=st.floats(0.01, 100),
    chunk=st.integers(1, 1000),
    batch=st.integers(1, 4096),
    order=st.lists(st.booleans(), max_size=300),
)
def test_no_deadlock_at_the_smallest_error_buffer(ratio: float, chunk: int, batch: int, order: list[bool]) -> None:
    """Play the limiter with whole chunks and batches, at the smallest buffer that is accepted: one side can always go on."""
    buffer = max(2 * max(1.0, ratio) * chunk, batch)
    drift = 0.0
    for insert_first in order:
        may_insert, may_sample = drift + ratio * chunk <= buffer, drift - batch >= -buffer
        assert may_insert or may_sample
        drift += ratio * chunk if (insert_first and may_insert) or not may_sample else -batch


def test_nearest() -> None:
    known = ["nStep", "gamma", "batchSize"]
    assert nearest("n_step", known) == "nStep"
    assert nearest("Gama", known) == "gamma"
    assert nearest("zzz", known) is None
    assert nearest("", known) is None
    assert nearest("x", []) is None


def _models(model: type[BaseModel], seen: set[type[BaseModel]]) -> Iterator[type[BaseModel]]:
    if model in seen:
        return
    seen.add(model)
    yield model
    for field in model.model_fields.values():
        pending = [field.annotation]
        while pending:
            annotation = pending.pop()
            if isinstance(annotation, type) and issubclass(annotation, BaseModel):
                yield from _models(annotation, seen)
            pending += get_args(annotation)


def test_every_section_and_every_field_is_described() -> None:
    """For `rljob explain`; what is special to the CRD is in `test_crd`."""
    for model in [*_models(RLJob, set()), ApeXDQNParameters, ImpalaParameters, EnvironmentParameters]:
        assert model.__doc__
        for name in model.model_fields:
            assert description_of(model, name), f"{model.__name__}.{name}"


def test_the_api_is_light_to_import() -> None:
    code = "import sys, rljob.api; print([m for m in ('torch', 'zmq', 'numpy', 'gymnasium') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_impala_takes_its_own_scaling_defaults() -> None:
    job = load_manifest(IMPALA, [f"{QUEUE}.maxPolicyLagUpdates=100", "spec.autoscaling={mode: Internal}"])
    assert job.spec.autoscaling.guards.max_policy_lag_updates == 80
    assert load_manifest(BASE).spec.autoscaling.guards.max_policy_lag_updates == 400


def test_parameters_are_of_the_named_algorithm() -> None:
    algorithm = load_manifest(IMPALA).spec.algorithm
    assert algorithm.parameters_as(ImpalaParameters).unroll_length == 20
    with pytest.raises(TypeError, match="the algorithm is IMPALA"):
        algorithm.parameters_as(ApeXDQNParameters)


def sections(model: type[BaseModel], path: str = "spec") -> Iterator[tuple[str, type[BaseModel], str, type[BaseModel]]]:
    """(path, model, field, type) of every section of a job that is a model of its own."""
    for name, field in model.model_fields.items():
        annotation, _ = unwrapped(field.annotation, [])
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            here = f"{path}.{field.alias or name}"
            yield here, model, name, annotation
            yield from sections(annotation, here)


@pytest.mark.parametrize("section", list(sections(RLJobSpec)), ids=lambda section: section[0])
def test_a_section_given_in_part_has_the_defaults_of_one_left_out(
    section: tuple[str, type[BaseModel], str, type[BaseModel]],
) -> None:
    """Else writing one field of a section would change the others, as it once did with behavior.scaleDown."""
    _, owner, name, model = section
    default = owner.model_fields[name].get_default(call_default_factory=True)
    if isinstance(default, BaseModel):
        assert default == model()
