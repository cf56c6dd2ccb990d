"""Replay on one core: inserts, sampling, the learner's mirror, in process and through a socket.

One JSON line a result, medians over rounds. Chunks are built from real Pong frames (random play, the job's own
preprocessing) and arrive as wire buffers, LZ4 frames included; inserting therefore includes decoding, checking, storing
and the initial priorities.

    python -m benchmarks.replay_throughput [--seconds 3]
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
from rljob.api import EnvironmentParameters
from rljob.envs import make_vector_environment
from rljob.experience import Segment, transition_layout
from rljob.experience.ring import SegmentRing, Slots, transition_arrays
from rljob.ingest.table import read_segment
from rljob.observation import frames
from rljob.replay.config import ReplayConfig
from rljob.replay.limiter import LimiterConfig, SamplesPerInsertLimiter
from rljob.replay.selectors import Prioritized
from rljob.replay.service import ReplayService
from rljob.replay.table import Capacity, ReplayTable
from rljob.wire import Client, CreditWindow, Message, RawMessage, decode_header, encode
from rljob.wire.schema import drawn_column, drawn_of

from benchmarks.common import machine, report

LENGTH, STACK, N_STEP, BATCH = 50, 4, 3, 512
LAYOUT = transition_layout(LENGTH, frames((84, 84), np.uint8, STACK), N_STEP)


def pong_chunks(count: int) -> list[Segment]:
    """Chunks of random play in Pong, 8 environments; the small columns are drawn at random."""
    rng = np.random.default_rng(1)
    environment = make_vector_environment("ALE/Pong-v5", EnvironmentParameters(), 8, seed=1)
    observation = environment.reset()
    frames: list[list[Any]] = [[] for _ in range(8)]
    chunks: list[Segment] = []
    rows = STACK - 1 + LENGTH + N_STEP
    at = np.arange(LENGTH, dtype=np.uint16) + STACK - 1
    while len(chunks) < count:
        for index in range(8):
            frames[index].append(observation[index, -1].copy())
            if len(frames[index]) == rows:
                columns = {
                    "frames": np.stack(frames[index]),
                    "observation": at,
                    "next_observation": at + np.uint16(N_STEP),
                    "action": rng.integers(0, 6, LENGTH).astype(np.int32),
                    "n_step_return": rng.choice([0.0, 1.0, -1.0], LENGTH, p=[0.94, 0.03, 0.03]).astype(np.float32),
                    "discount": np.full(LENGTH, 0.97, np.float32),
                    "priority": rng.gamma(0.5, 0.2, LENGTH).astype(np.float32) + np.float32(1e-3),
                    "flags": np.zeros(LENGTH, np.uint8),
                }
                chunks.append(Segment(LAYOUT, "actor-0", "a", len(chunks), index, 1, 1, LENGTH, columns))
                frames[index] = frames[index][-(STACK - 1 + N_STEP) :]
        observation = environment.step(rng.integers(0, 6, 8)).observation
    environment.close()
    return chunks[:count]


def on_the_wire(chunks: list[Segment]) -> list[list[bytes]]:
    """What a socket would deliver."""
    return [[bytes(p) for p in encode(c.to_message(), compress=LAYOUT.compressed_columns)] for c in chunks]


def table(capacity: int) -> ReplayTable:
    size = Capacity(capacity)
    slots = Slots(LAYOUT, size.chunks(LAYOUT))
    limiter = SamplesPerInsertLimiter(LimiterConfig(0.0, 1, 0.0, LENGTH, BATCH))
    return ReplayTable(slots, Prioritized(slots.capacity_steps, 0.6), limiter, size)


def rate(work: Callable[[], int], seconds: float, rounds: int = 5) -> float:
    """Median over rounds of units of work a second; the first round is warm-up."""
    rates = []
    for _ in range(rounds + 1):
        start, units = time.perf_counter(), 0
        while time.perf_counter() - start < seconds / rounds:
            units += work()
        rates.append(units / (time.perf_counter() - start))
    return statistics.median(rates[1:])


def inserts(wire: list[list[bytes]], capacity: int, seconds: float) -> float:
    """Transitions a second into a shard's table."""
    target, position = table(capacity), 0

    def work() -> int:
        nonlocal position
        arrivals: list[tuple[Segment, RawMessage]] = []
        for _ in range(16):
            raw = decode_header(wire[position % len(wire)])
            raw.verify()
            arrivals.append((read_segment(raw, LAYOUT, with_frames=False), raw))
            position += 1
        target.insert(arrivals)
        return sum(chunk.steps for chunk, _ in arrivals)

    return rate(work, seconds)


def mirrored(wire: list[list[bytes]], ring: SegmentRing, seconds: float) -> float:
    """Transitions a second into a learner's mirror."""
    position = 0

    def work() -> int:
        nonlocal position
        chunk = read_segment(decode_header(wire[position % len(wire)]), LAYOUT)
        ring.insert(position % ring.capacity, 1 + position // ring.capacity, chunk)
        position += 1
        return chunk.steps

    return rate(work, seconds)


def filled(wire: list[list[bytes]], capacity: int) -> ReplayTable:
    target = table(capacity)
    raws = [decode_header(parts) for parts in wire]
    chunks = [read_segment(raw, LAYOUT, with_frames=False) for raw in raws]
    for start in range(0, capacity // LENGTH, len(wire)):
        take = min(len(wire), capacity // LENGTH - start)
        target.insert(list(zip(chunks[:take], raws[:take], strict=True)))
    return target


def sampling(target: ReplayTable, seconds: float, mirror: SegmentRing | None = None) -> float:
    """Batches a second, drawn and given new priorities; with ``mirror`` gathered, too."""
    rng = np.random.default_rng(2)
    buffers = transition_arrays(LAYOUT, BATCH)

    def work() -> int:
        drawn = target.sample(BATCH, rng)
        if mirror is not None:
            mirror.gather(drawn["slot"], buffers)
        drawn["value"] = rng.gamma(0.5, 0.2, BATCH)
        target.update_priorities(drawn)
        return 1

    return rate(work, seconds)


def chi_square(target: ReplayTable, batches: int = 400) -> float:
    """Pearson's statistic over degrees of freedom for sampled frequencies in 256 bins of slots; 1 is expected, less
    when sampling is stratified."""
    rng = np.random.default_rng(3)
    leaves = target.selector.tree.leaves[: target.slots.capacity_steps]
    edges = np.linspace(0, len(leaves), 257).astype(int)
    share = np.add.reduceat(leaves, edges[:-1]) / leaves.sum()
    counts = np.zeros(256)
    for _ in range(batches):
        counts += np.histogram(target.sample(BATCH, rng)["slot"], bins=edges)[0]
    expected = share * counts.sum()
    use = expected > 0
    return float((((counts - expected) ** 2)[use] / expected[use]).sum() / (use.sum() - 1))


def through_a_socket(wire: list[list[bytes]], capacity: int, seconds: float) -> dict[str, float]:
    """A whole service on its thread, an actor and a learner on this one (two cores, one interpreter lock)."""
    service = ReplayService(
        ReplayConfig(
            run="benchmark", layout=LAYOUT, capacity=Capacity(capacity), limiter=LimiterConfig(0.0, 1, 0.0, LENGTH, BATCH),
            ingest=f"ipc:///tmp/rljob-{uuid.uuid4().hex[:8]}", sample=f"ipc:///tmp/rljob-{uuid.uuid4().hex[:8]}",
            credits=32,
        )
    )  # fmt: skip
    stop = threading.Event()
    thread = threading.Thread(target=service.run, args=(stop,))
    thread.start()
    actor, learner = Client(service.ingest_endpoint), Client(service.sample_endpoint)
    try:
        inserted = _send_chunks(actor, wire, seconds)
        batches = _draw(learner, seconds)
    finally:
        stop.set()
        thread.join()
        actor.close()
        learner.close()
    return {"inserted_transitions_per_second": inserted, "batches_per_second": batches}


def _send_chunks(client: Client, wire: list[list[bytes]], seconds: float) -> float:
    window: CreditWindow[int] = CreditWindow()
    while not client.send(Message("hello", {"actor": "actor-0", "inc": "a", "envs": 8}, {})):
        time.sleep(0.01)
    position, started, acknowledged = 0, 0.0, 0
    prepared = [decode_header(parts) for parts in wire]
    while not started or time.perf_counter() - started < seconds:
        while window.unsent < 32:
            window.add(position, position)
            position += 1
        while (due := window.next()) is not None:
            if not client.send(prepared[due[0] % len(wire)].rekind("chunk", {"seq": due[0]})):
                break
            window.sent(due[0])
        message = client.receive(1.0)
        if message is None:
            continue
        fields: Any = message.fields
        if message.kind == "welcome":
            window.welcome(fields["seq"], fields["credits"])
            started = time.perf_counter()
        elif message.kind == "ack":
            acknowledged += window.acknowledge(fields["seq"], fields["credits"])
        elif message.kind == "credit":
            window.grant(fields["credits"])
    return acknowledged * LENGTH / (time.perf_counter() - started)


def _draw(client: Client, seconds: float) -> float:
    while not client.send(Message("subscribe", {"inc": "l"}, {})):
        time.sleep(0.01)
    draws = {"draws": np.full((1, 2), BATCH, np.uint32)}
    for request in range(4):
        client.send(Message("sample", {"req": request}, draws))
    rng = np.random.default_rng(4)
    started, batches, request = 0.0, 0, 4
    while not started or time.perf_counter() - started < seconds:
        message = client.receive(1.0)
        if message is None or message.kind != "batch":
            continue
        started = started or time.perf_counter()
        batches += int(message.fields["parts"])
        drawn = drawn_of(message.columns["rows"]).copy()
        drawn["value"] = rng.gamma(0.5, 0.2, len(drawn))
        client.send(Message("sample", {"req": request}, draws | {"rows": drawn_column(drawn)}))
        request += 1
    return batches / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=3.0, help="time for each figure")
    parser.add_argument("--capacity", type=int, default=100_000, help="transitions in the table")
    options = parser.parse_args()
    seconds, capacity = options.seconds, options.capacity
    report("machine", **machine())
    wire = on_the_wire(pong_chunks(400))
    per_transition = sum(len(p) for parts in wire for p in parts) / (len(wire) * LENGTH)
    report("replay_wire_bytes", bytes_per_transition=per_transition)
    report("replay_insert", transitions_per_second=inserts(wire, capacity, seconds), capacity=capacity)
    target = filled(wire, capacity)
    mirror = SegmentRing(LAYOUT, target.slots.capacity)
    report("replay_mirror", transitions_per_second=mirrored(wire, mirror, seconds), capacity=capacity)
    report("replay_sample_update", batches_per_second=sampling(target, seconds), batch=BATCH, capacity=capacity)
    with_gather = sampling(target, seconds, mirror)
    report("replay_sample_gather_update", batches_per_second=with_gather, batch=BATCH, capacity=capacity)
    report("replay_sample_frequencies", chi_square_per_degree=chi_square(target))
    report("replay_socket", **through_a_socket(wire, capacity, seconds))


if __name__ == "__main__":
    main()
