"""The memory estimate against the same sum done by hand, and the text of a refusal."""

from pathlib import Path

import pytest
from rljob.api import load_manifest, memory_estimate

BASE = Path(__file__).parent / "base.yaml"
IMPALA = Path(__file__).parent / "impala.yaml"
QUEUE = "spec.algorithm.impala.unrollQueue"
MIB = 2**20
PROCESSES = (900 + 450 + 500 + 150 + 60) * MIB


def test_the_sum_by_hand() -> None:
    """50 steps + 3 of left context + 3 of right context = 56 frames a chunk, uncompressed once, a quarter of that twice."""
    estimate = memory_estimate(load_manifest(BASE), frame_bytes=42 * 42)
    frames = 56 / 50 * 1764
    expected = 200_000 * (frames + 64) + 2 * 200_000 * (frames / 4 + 64) + PROCESSES
    assert (estimate.total_bytes, estimate.problem(estimate.total_bytes)) == (pytest.approx(expected, abs=10), "")


def test_bytes_limit_the_capacity() -> None:
    job = load_manifest(BASE, ["spec.replay.capacityBytes=100Mi"])
    assert memory_estimate(job, frame_bytes=7056).lines[0].size_bytes == pytest.approx(100 * MIB, rel=1e-3)


def problem_of(available: int, base: Path = BASE, *overrides: str) -> str:
    return memory_estimate(load_manifest(base, overrides), frame_bytes=7056).problem(available)


def test_a_refusal_shows_the_arithmetic_and_a_capacity_that_fits() -> None:
    text = problem_of(16 << 30, BASE, "spec.replay.capacity=10000000")
    assert text.startswith("spec.replay.capacity: got 10000000; allowed on this machine: about 1,")
    words = ("10,000,000 transitions * (56 frames / 50 steps * 7,056 B + 64 B)", "16,384 MiB available")
    assert [each for each in words if each not in text] == []
    fits = text.split("about ")[1].split(" transitions")[0].replace(",", "")
    assert not problem_of(16 << 30, BASE, f"spec.replay.capacity={fits}")


def test_a_machine_that_is_too_small_for_anything() -> None:
    assert "not even rateLimiter.minSize (8,000) would fit" in problem_of(1 << 30)


PPO = ["spec.algorithm={type: PPO, batchSize: 64, unrollLength: 20}", "spec.actors.replicas=2"]


@pytest.mark.parametrize(("overrides", "unrolls", "batch", "actors"), [([], 64 + 8, 32, 1), (PPO, 64 + 16, 64, 2)])
def test_a_queue_and_iterations_by_hand(overrides: list[str], unrolls: int, batch: int, actors: int) -> None:
    """20 steps + a stack of 4 = 24 frames an unroll; 64 wait, one for each environment travels, 2 batches of stacks of 4."""
    estimate = memory_estimate(load_manifest(IMPALA, overrides), frame_bytes=7056)
    processes = (900 + actors * 450 + 500) * MIB
    assert estimate.total_bytes == unrolls * (24 * 7056 + 20 * 64) + 2 * batch * 21 * 4 * 7056 + processes


def test_a_queue_that_does_not_fit() -> None:
    text = problem_of(4 << 30, IMPALA, f"{QUEUE}.capacity=100000", f"{QUEUE}.maxPolicyLagUpdates=10000")
    assert text.startswith(f"{QUEUE}.capacity: got 100000; allowed on this machine: about 1")
    assert "100,000 unrolls * (24 frames * 7,056 B + 20 steps * 64 B)" in text


PPO = ["spec.algorithm={type: PPO, batchSize: 64, unrollLength: 20}", "spec.actors.replicas=2"]


def test_an_iteration_that_does_not_fit_and_one_that_does() -> None:
    size = "spec.algorithm.batchSize"
    text = problem_of(4 << 30, IMPALA, *PPO, f"{size}=4096")
    assert text.startswith(f"{size}: got 4096; allowed on this machine: about ")
    fits = int(text.split("about ")[1].split(" unrolls")[0].replace(",", ""))
    assert 16 < fits < 4096
    assert not problem_of(4 << 30, IMPALA, *PPO, f"{size}={fits}")
    assert "not even one of each environment (16) would fit" in problem_of(2 << 30, IMPALA, *PPO, f"{size}=4096")
