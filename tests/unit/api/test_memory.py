"""The memory estimate against the same sum done by hand, and the text of a refusal."""

from __future__ import annotations

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
    assert estimate.total_bytes == pytest.approx(expected, abs=10)
    assert estimate.problem(estimate.total_bytes) == ""


def test_bytes_limit_the_capacity() -> None:
    job = load_manifest(BASE, ["spec.replay.capacityBytes=100Mi"])
    assert memory_estimate(job, frame_bytes=7056).lines[0].size_bytes == pytest.approx(100 * MIB, rel=1e-3)


def test_a_refusal_shows_the_arithmetic_and_a_capacity_that_fits() -> None:
    job = load_manifest(BASE, ["spec.replay.capacity=10000000"])
    text = memory_estimate(job, frame_bytes=7056).problem(16 << 30)
    assert text.startswith("spec.replay.capacity: got 10000000; allowed on this machine: about 1,")
    assert "10,000,000 transitions * (56 frames / 50 steps * 7,056 B + 64 B)" in text
    assert "16,384 MiB available" in text
    fits = int(text.split("about ")[1].split(" transitions")[0].replace(",", ""))
    assert not memory_estimate(load_manifest(BASE, [f"spec.replay.capacity={fits}"]), frame_bytes=7056).problem(
        16 << 30
    )


def test_a_machine_that_is_too_small_for_anything() -> None:
    text = memory_estimate(load_manifest(BASE), frame_bytes=7056).problem(1 << 30)
    assert "not even rateLimiter.minSize (8,000) would fit" in text


def test_a_queue_by_hand() -> None:
    """20 steps + a stack of 4 = 24 frames an unroll; 64 wait, 8 travel, 2 batches of 32 * 21 stacks of 4 frames."""
    estimate = memory_estimate(load_manifest(IMPALA), frame_bytes=7056)
    unroll = 24 * 7056 + 20 * 64
    processes = (900 + 450 + 500) * MIB
    assert estimate.total_bytes == (64 + 8) * unroll + 2 * 32 * 21 * 4 * 7056 + processes


def test_a_queue_that_does_not_fit() -> None:
    job = load_manifest(IMPALA, [f"{QUEUE}.capacity=100000", f"{QUEUE}.maxPolicyLagUpdates=10000"])
    text = memory_estimate(job, frame_bytes=7056).problem(4 << 30)
    assert text.startswith(f"{QUEUE}.capacity: got 100000; allowed on this machine: about 1")
    assert "100,000 unrolls * (24 frames * 7,056 B + 20 steps * 64 B)" in text


PPO = ["spec.algorithm={type: PPO, ppo: {batchSize: 64, unrollLength: 20}}", "spec.actors.replicas=2"]


def test_iterations_by_hand() -> None:
    """One of 64 unrolls waits, one for each of 2 * 8 environments travels, 2 batches of 64 * 21 stacks of 4 frames."""
    estimate = memory_estimate(load_manifest(IMPALA, PPO), frame_bytes=7056)
    unroll = 24 * 7056 + 20 * 64
    processes = (900 + 2 * 450 + 500) * MIB
    assert estimate.total_bytes == (64 + 16) * unroll + 2 * 64 * 21 * 4 * 7056 + processes


def test_an_iteration_that_does_not_fit_and_one_that_does() -> None:
    job = load_manifest(IMPALA, [*PPO, "spec.algorithm.ppo.batchSize=4096"])
    available = 4 << 30
    text = memory_estimate(job, frame_bytes=7056).problem(available)
    assert text.startswith("spec.algorithm.ppo.batchSize: got 4096; allowed on this machine: about ")
    fits = int(text.split("about ")[1].split(" unrolls")[0].replace(",", ""))
    assert 16 < fits < 4096
    smaller = load_manifest(IMPALA, [*PPO, f"spec.algorithm.ppo.batchSize={fits}"])
    assert not memory_estimate(smaller, frame_bytes=7056).problem(available)
    assert "not even one of each environment (16) would fit" in memory_estimate(job, frame_bytes=7056).problem(2 << 30)
