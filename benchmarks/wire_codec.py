"""What the wire format costs, on chunks of real Pong: bytes a transition, encode and decode times, and a round trip.

Frames are 84x84 grey from ALE's Pong under a random policy (frame skip 4, max-pooled), 50 steps and 6 context frames a
chunk. Times are the median over repetitions and chunks; MB/s are of raw (uncompressed) column bytes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import ale_py
import gymnasium
import numpy as np
from gymnasium.wrappers import AtariPreprocessing
from rljob.wire import (
    Client,
    ClientSecurity,
    Message,
    Server,
    ServerSecurity,
    decode,
    decode_header,
    encode,
    generate_keys,
)

from benchmarks.common import machine, report

SMALL_COLUMNS = ("obs_at", "boot_at", "action", "ret", "disc", "prio", "flags")


def pong_chunks(count: int, steps: int, seed: int) -> list[Message]:
    """Consecutive chunks of one game of Pong; u8[steps + 6, 84, 84] frames each."""
    gymnasium.register_envs(ale_py)
    environment = AtariPreprocessing(gymnasium.make("ALE/Pong-v5", frameskip=1), screen_size=84)
    generator = np.random.default_rng(seed)
    frame, _ = environment.reset(seed=seed)
    frames, rewards = [frame], [0.0]
    while len(frames) < count * steps + 6:
        frame, reward, terminated, truncated, _ = environment.step(int(generator.integers(6)))
        if terminated or truncated:
            frame, _ = environment.reset()
        frames.append(frame)
        rewards.append(float(reward))
    stream = np.stack(frames)
    return [
        Message(
            "chunk",
            {"epoch": 1, "actor": "pong-actor-0", "inc": "0" * 32, "seq": i, "env": 3, "pv": 12_345, "steps": steps},
            {
                "frames": stream[i * steps : i * steps + steps + 6],
                "obs_at": np.arange(3, steps + 3, dtype=np.uint16),
                "boot_at": np.arange(6, steps + 6, dtype=np.uint16),
                "action": generator.integers(0, 6, steps).astype(np.int32),
                "ret": np.array(rewards[i * steps : (i + 1) * steps], np.float32),
                "disc": np.full(steps, 0.99**3, np.float32),
                "prio": generator.random(steps).astype(np.float32),
                "flags": np.zeros(steps, np.uint8),
            },
        )
        for i in range(count)
    ]


def median_seconds(call: Callable[[], object], repetitions: int) -> float:
    """The median time of one call."""
    times = []
    for _ in range(repetitions):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def codec(chunks: list[Message], compress: tuple[str, ...], repetitions: int) -> dict[str, float]:
    """Sizes and times of encoding and decoding, the median over the chunks."""
    figures: dict[str, list[float]] = {}
    for chunk in chunks:
        parts = encode(chunk, compress=compress)
        raw_bytes = sum(column.nbytes for column in chunk.columns.values())
        encode_seconds = median_seconds(partial(encode, chunk, compress=compress), repetitions)
        decode_seconds = median_seconds(partial(decode, parts), repetitions)
        for name, value in {
            "header_bytes": len(parts[0]),
            "message_bytes": sum(map(len, parts)),
            "bytes_per_transition": sum(map(len, parts)) / chunk.columns["action"].size,
            "encode_us": encode_seconds * 1e6,
            "encode_mb_per_second": raw_bytes / encode_seconds / 1e6,
            "decode_us": decode_seconds * 1e6,
            "decode_mb_per_second": raw_bytes / decode_seconds / 1e6,
            "header_and_small_columns_us": median_seconds(partial(small_columns, parts), repetitions) * 1e6,
            "rekind_us": median_seconds(
                partial(decode_header(parts).rekind, "mirror", {"slot": 1, "gen": 2}), repetitions
            )
            * 1e6,
        }.items():
            figures.setdefault(name, []).append(value)
    return {name: statistics.median(values) for name, values in figures.items()}


def small_columns(parts: list[bytes | memoryview]) -> None:
    """What the replay service does with an accepted chunk: everything but decompressing the frames."""
    raw = decode_header(parts)
    raw.verify()
    for name in SMALL_COLUMNS:
        raw.column(name)


def over_a_socket(endpoint: str, secure: bool, chunk: Message, seconds: float) -> dict[str, float]:
    """Chunks a second from one client through one server in the same thread, eight on the way."""
    own, client_keys = generate_keys(), generate_keys()
    parts = encode(chunk, compress=("frames",))
    server_security = ServerSecurity(own, frozenset({client_keys.public})) if secure else None
    client_security = ClientSecurity(client_keys, own.public) if secure else None
    with Server(endpoint, server_security) as server, Client(server.endpoint, client_security) as client:
        while not client.send(parts):
            time.sleep(0.001)
        received, sent = 0, 1
        started = time.perf_counter()
        while time.perf_counter() - started < seconds:
            while sent - received < 8 and client.send(parts):
                sent += 1
            server.wait(1.0)
            while server.receive_raw() is not None:
                received += 1
        elapsed = time.perf_counter() - started
    transitions = received * chunk.columns["action"].size
    return {"chunks_per_second": received / elapsed, "transitions_per_second": transitions / elapsed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=20, help="chunks of Pong to average over (default 20)")
    parser.add_argument("--steps", type=int, default=50, help="steps a chunk (default 50)")
    parser.add_argument("--repetitions", type=int, default=50, help="calls a chunk and figure (default 50)")
    parser.add_argument("--seconds", type=float, default=1.0, help="duration of each socket measurement (default 1)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the game and the policy (default 1)")
    arguments = parser.parse_args()
    report("wire_machine", **machine())
    chunks = pong_chunks(arguments.chunks, arguments.steps, arguments.seed)
    for compress in ((), ("frames",), ("frames", *SMALL_COLUMNS)):
        report("wire_codec", lz4_columns=len(compress), **codec(chunks, compress, arguments.repetitions))
    for endpoint, secure in (("inproc://bench", False), ("tcp://127.0.0.1:*", False), ("tcp://127.0.0.1:*", True)):
        figures = over_a_socket(endpoint, secure, chunks[0], arguments.seconds)
        report("wire_socket", transport=endpoint.split(":")[0], curve=secure, **figures)


if __name__ == "__main__":
    main()
