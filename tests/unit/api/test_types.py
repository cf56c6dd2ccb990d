"""Values: what becomes of quantities, decimals and defaults; and that every field is described.

The memory estimate against the same sum done by hand, and the text of a refusal.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel, ValidationError
from rljob.api import (
    ApeXDQNParameters,
    EnvironmentParameters,
    ImpalaParameters,
    RLJob,
    load_manifest,
    memory_estimate,
    nearest,
    quantity,
)
from rljob.api.fields import description_of, unwrapped
from rljob.api.job import RLJobSpec
from rljob.api.replay import ReplayParameters
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
    for changes, found in (
        ("{}", ("a:b", kwargs, 9)),
        ("", ("a:b", kwargs, 9)),
        ("{id: a:c}", ("a:c", kwargs, 9)),
        ("{kwargs: {size: null}}", ("a:b", {"size": None}, 9)),
        ("{kwargs: {}, maxEpisodeSteps: 100}", ("a:b", {}, 100)),
    ):
        assert judged(changes) == (*found, [0, 1])
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
    rates = (parameters.learning_rate, parameters.learning_rate_final)
    assert (parameters.gamma, parameters.n_step, parameters.batch_size, *rates) == (0.99, 3, 512, 1e-4, 1e-4)
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


def resolved(*overrides: str) -> ReplayParameters:
    return load_manifest(BASE, overrides).spec.required_replay.resolved()


def test_replay_numbers() -> None:
    replay = resolved("spec.replay.capacityBytes=1Gi", "spec.replay.shards=2")
    assert (replay.capacity, replay.capacity_bytes, replay.shards, replay.error_buffer) == (200_000, 2**30, 2, 6 * 800)
    assert resolved("spec.replay.rateLimiter.errorBuffer=6e3").error_buffer == 6000
    unlimited = resolved("spec.replay.rateLimiter.samplesPerInsert=0", "spec.replay.rateLimiter.errorBuffer=0")
    assert unlimited.samples_per_insert == 0, "no limit needs no error buffer"


def test_nearest() -> None:
    known = ["nStep", "gamma", "batchSize"]
    assert (nearest("n_step", known), nearest("Gama", known)) == ("nStep", "gamma")
    assert (nearest("zzz", known), nearest("", known), nearest("x", [])) == (None, None, None)


def _models(model: type[BaseModel], seen: set[type[BaseModel]]) -> Iterator[type[BaseModel]]:
    if model in seen:
        return
    seen.add(model)
    yield model
    pending = [field.annotation for field in model.model_fields.values()]
    while pending:
        annotation = pending.pop()
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from _models(annotation, seen)
        pending += get_args(annotation)


def test_every_section_and_every_field_is_described() -> None:
    """For `rljob explain`; what is special to the CRD is in `test_crd`."""
    for model in [*_models(RLJob, set()), EnvironmentParameters]:
        assert model.__doc__
        for name in model.model_fields:
            assert description_of(model, name), f"{model.__name__}.{name}"


def test_parameters_are_of_the_named_algorithm() -> None:
    parameters = load_manifest(IMPALA).spec.algorithm.parameters
    assert (type(parameters), parameters.unroll_length) == (ImpalaParameters, 20)


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
    """Else writing one field of a section would change the others."""
    _, owner, name, model = section
    default = owner.model_fields[name].get_default(call_default_factory=True)
    if isinstance(default, BaseModel):
        assert default == model()


MIB = 2**20
PPO = ["spec.algorithm={type: PPO, batchSize: 64, unrollLength: 20}", "spec.actors.replicas=2"]
PROCESSES = (900 + 450 + 500 + 150 + 60) * MIB


def test_the_sum_by_hand() -> None:
    """50 steps + 3 of left context + 3 of right context = 56 frames a chunk, uncompressed once, a quarter of that twice."""
    estimate = memory_estimate(load_manifest(BASE), frame_bytes=42 * 42)
    frames = 56 / 50 * 1764
    expected = 200_000 * (frames + 64) + 2 * 200_000 * (frames / 4 + 64) + PROCESSES
    assert (estimate.total_bytes, estimate.problem(estimate.total_bytes)) == (pytest.approx(expected, abs=10), "")


def test_bytes_limit_the_capacity() -> None:
    job = load_manifest(BASE, ["spec.replay.capacityBytes=100Mi"])
    assert memory_estimate(job, frame_bytes=7056).lines[0][1] == pytest.approx(100 * MIB, rel=1e-3)


def problem_of(available: int, base: Path = BASE, *overrides: str) -> str:
    return memory_estimate(load_manifest(base, overrides), frame_bytes=7056).problem(available)


QUEUED = (IMPALA, f"{QUEUE}.maxPolicyLagUpdates=10000")


@pytest.mark.parametrize(
    ("job", "field", "asked", "gigabytes", "arithmetic"),
    [
        ((BASE,), "spec.replay.capacity", 10_000_000, 16,
         "10,000,000 transitions * (56 frames / 50 steps * 7,056 B + 64 B)"),
        (QUEUED, f"{QUEUE}.capacity", 100_000, 4, "100,000 unrolls * (24 frames * 7,056 B + 20 steps * 64 B)"),
        ((IMPALA, *PPO), "spec.algorithm.batchSize", 4096, 4, "unrolls"),
    ],
    ids=["a replay", "a queue", "an iteration"],
)  # fmt: skip
def test_a_refusal_shows_the_arithmetic_and_a_number_that_fits(
    job: tuple[Any, ...], field: str, asked: int, gigabytes: int, arithmetic: str
) -> None:
    text = problem_of(gigabytes << 30, *job, f"{field}={asked}")
    assert text.startswith(f"{field}: got {asked}; allowed on this machine: about ")
    assert [each for each in (arithmetic, f"{gigabytes * 1024:,} MiB available") if each not in text] == []
    fits = text.split("about ")[1].split()[0].replace(",", "")
    assert 16 < int(fits) < asked
    assert not problem_of(gigabytes << 30, *job, f"{field}={fits}")


def test_a_machine_that_is_too_small_for_anything() -> None:
    assert "not even rateLimiter.minSize (8,000) would fit" in problem_of(1 << 30)
    iteration = problem_of(2 << 30, IMPALA, *PPO, "spec.algorithm.batchSize=4096")
    assert "not even one of each environment (16) would fit" in iteration


@pytest.mark.parametrize(("overrides", "unrolls", "batch", "actors"), [([], 64 + 8, 32, 1), (PPO, 64 + 16, 64, 2)])
def test_a_queue_and_iterations_by_hand(overrides: list[str], unrolls: int, batch: int, actors: int) -> None:
    """20 steps + a stack of 4 = 24 frames an unroll; 64 wait, one for each environment travels, 2 batches of stacks of 4."""
    estimate = memory_estimate(load_manifest(IMPALA, overrides), frame_bytes=7056)
    processes = (900 + actors * 450 + 500) * MIB
    assert estimate.total_bytes == unrolls * (24 * 7056 + 20 * 64) + 2 * batch * 21 * 4 * 7056 + processes
