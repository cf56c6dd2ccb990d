"""The counts an actor keeps of itself, and the two ways it reports them: heartbeats and its status document."""

import time
from typing import Any

import numpy as np

from rljob.acting import ActorIdentity
from rljob.acting.network import ActingNetwork
from rljob.actor.session import Compression
from rljob.actor.shards import MultiShard
from rljob.api.lifecycle import TargetMetric
from rljob.envs import RestartLimit
from rljob.inference.client import InferenceClient
from rljob.telemetry.clock import StageClock
from rljob.telemetry.process import PROCESS
from rljob.wire import Message, packed

STAGES = ("env", "infer", "encode", "send", "blocked")

_RATE_WINDOW_SECONDS = 5.0


class ActorFigures:
    """Written by the actor's loop only; ``status`` may be called from any thread.

    Conservation, for every incarnation: ``steps = produced + cut_steps + pending`` (in the builder) and
    ``produced = acknowledged + held``. What is still held at the end is unacknowledged: the shard may or may not have it.
    ``dropped`` counts, by reason, what was given up before that; at present nothing is.
    """

    def __init__(self, identity: ActorIdentity, waited_for: "TargetMetric | None" = None) -> None:
        self.identity, self.waited_for = identity, waited_for
        self.clock = StageClock(STAGES)
        self.sink: MultiShard | None = None
        self.compression = Compression()
        self.state = "Connecting"
        self.slot = -1
        self.steps = self.raw_frames = self.produced = self.cut_steps = self.policy_version = 0
        self.weights_loaded_at = self.inference_wait_seconds = self._rate = 0.0
        self.acting: ActingNetwork | None = None
        """Its own network."""
        self.inference: InferenceClient | None = None
        self.dropped: dict[str, int] = {}
        self.episodes_by_end = {"terminated": 0, "truncated": 0, "cut": 0}
        self.failures: RestartLimit | None = None
        self._rate_from = (time.monotonic(), 0)

    def heartbeat(self) -> Message:
        """The ``heartbeat`` message of this moment."""
        now = time.monotonic()
        since, steps = self._rate_from
        if now - since > 0:
            self._rate = (self.steps - steps) / (now - since)
        if now - since > _RATE_WINDOW_SECONDS:
            self._rate_from = (now, self.steps)
        seconds, (names, process) = self.clock.seconds(), packed([self._process()])
        return Message(
            "heartbeat",
            {
                "actor": self.identity.actor,
                "inc": self.identity.incarnation,
                "pv": self.policy_version,
                "state": self.state,
                "steps": self.steps,
                "raw": self.raw_frames,
                "produced": self.produced,
                "blocked": seconds["blocked"],
                "sps": self._rate,
                **names,
            },
            {**process, "stages": np.fromiter(seconds.values(), np.float64, len(seconds))},
        )

    def status(self) -> dict[str, Any]:
        """The ``/status`` document."""
        seconds = self.clock.seconds()
        age = time.monotonic() - self.weights_loaded_at if self.policy_version else None
        status: dict[str, Any] = {
            "role": "actor",
            "name": self.identity.actor,
            "incarnation": self.identity.incarnation,
            "state": self.state,
            "slot": self.slot,
            "steps": self.steps,
            "raw_frames": self.raw_frames,
            "produced": self.produced,
            "cut_steps": self.cut_steps,
            "dropped": dict(self.dropped),
            "episodes_by_end": dict(self.episodes_by_end),
            "environment_failures": self.failures.total if self.failures is not None else 0,
            "steps_per_second": self._rate,
            "policy_version": self.policy_version,
            "weight_age_seconds": age,
            "blocked_seconds": seconds["blocked"],
            "inference_wait_seconds": self.inference_wait_seconds,
            "process": self._process(),
            "columns_sent_as_differences": sorted(self.compression.deltas),
            "stages": seconds,
        }
        status |= self._computed()
        if self.inference is not None:
            status |= {
                "inference_requests": self.inference.requests,
                "inference_resent": self.inference.resent,
                "inference_refused": self.inference.refused,
            }
        sink = self.sink
        if sink is not None:
            status |= {
                "acknowledged": sink.total("acknowledged_transitions"),
                "held": sink.held_transitions,
                "chunks_sent": sink.total("chunks_sent") + sink.total("chunks_resent"),
                "chunks_acknowledged": sink.total("chunks_acknowledged"),
                "chunks_resent": sink.total("chunks_resent"),
                "refused": sink.refused(),
                "credits": sink.total("credits"),
                "unacknowledged_chunks": sink.unacknowledged,
                "durable": sink.durable,
                "eagain": sink.total("eagain"),
                "episodes_dropped": sink.episodes_dropped,
                "bytes_encoded": sink.total("bytes_encoded"),
            }
        return status

    def final(self) -> dict[str, Any]:
        """What became of every transition of this life; for the conservation law of a whole run."""
        sink = self.sink
        held = sink.held_transitions if sink else 0
        return {
            "name": self.identity.actor,
            "incarnation": self.identity.incarnation,
            "produced": self.produced,
            "acknowledged": sink.total("acknowledged_transitions") if sink else 0,
            "unacknowledged": held,
            "dropped": dict(self.dropped),
            "steps": self.steps,
            "cut_steps": self.cut_steps,
            "environment_failures": self.failures.total if self.failures is not None else 0,
            **self._computed(),
        }

    def _computed(self) -> dict[str, Any]:
        return {} if self.acting is None else self.acting.document()

    def _process(self) -> dict[str, float]:
        """What this process takes; and the mean size of what it sends, beside which the bytes in its sockets tell of the link."""
        sink = self.sink
        sent = (
            {} if sink is None else {"message_bytes": sink.total("bytes_encoded") / max(1, sink.total("chunks_sent"))}
        )
        return PROCESS.now() | sent
