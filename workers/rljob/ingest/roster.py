"""The actors of this shard, what they last reported about themselves, and the games they finished."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from rljob.ingest.shard_status import ActorStatus, Episode
from rljob.wire import MalformedMessage, Message, unpacked

EPISODES_SHOWN = 256
_INCARNATIONS_REMEMBERED = 1024
MOST_ACTORS = 2048
"""Known at a time: a status document with all of them, each at its longest, still fits a message."""
_MOST_COUNTED = 1 << 48
"""By one life of an actor: the totals of thousands of them still fit into 64 bits."""
_HIGHEST_RETURN = 1e15
"""Highest return of one game, and with a minus the lowest: a sum over thousands of them is still finite."""
_GONE = ("Lost", "Finished")
ACTOR_STAGES = ("env", "infer", "encode", "send", "blocked")


_HANDOVER_SECONDS = 3.0


@dataclass(slots=True)
class ActorRecord:
    """What one actor says of its current incarnation in its last heartbeat, of ``reported_at``. One that has its home elsewhere
    is only ``seen_at`` since, and has told its steps and frames. ``counted``: False where these were already counted before
    this service started."""

    status: ActorStatus
    seen_at: float
    reported_at: float
    counted: bool = True

    def as_status(self, now: float) -> ActorStatus:
        """The entry in the service's status."""
        return replace(self.status, age_seconds=max(0.0, now - self.reported_at))


@dataclass(frozen=True, slots=True)
class Counted:
    """The run's totals at one moment, and how much of each life of an actor, by (name, incarnation), is in them.

    A roster that goes on from it counts each of those lives on from there, and every other one from nothing.
    """

    steps: int = 0
    raw_frames: int = 0
    lives: Mapping[tuple[str, str], tuple[int, int]] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return {"steps": self.steps, "raw_frames": self.raw_frames, "lives": [[*k, *v] for k, v in self.lives.items()]}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """What ``document`` wrote."""
        lives = {(str(name), str(inc)): (int(steps), int(raw)) for name, inc, steps, raw in document["lives"]}
        return cls(int(document["steps"]), int(document["raw_frames"]), lives)


class Roster:
    """Actors by name, and totals over all their incarnations that only ever grow.

    ``steps_total`` and ``raw_frames_total`` add up what heartbeats report, so that they survive every restart of an
    actor, and of this service when they are restored.
    """

    def __init__(self, shard: int = 0) -> None:
        self._shard = shard
        self.actors: dict[str, ActorRecord] = {}
        # Steps and raw frames already counted of incarnations that were replaced or dropped, newest last.
        self._counted: dict[tuple[str, str], tuple[int, int]] = {}
        self.steps_total = self.raw_frames_total = self.episodes_total = 0
        self.episodes: deque[Episode] = deque(maxlen=EPISODES_SHOWN)

    def counted(self) -> Counted:
        """What of whom is in the totals now."""
        present = {
            (each.status.name, each.status.incarnation): (each.status.steps, each.status.raw_frames)
            for each in self.actors.values()
            if each.counted
        }
        return Counted(self.steps_total, self.raw_frames_total, self._counted | present)

    def resume(self, counted: Counted) -> None:
        """Count on from there. For a roster that has heard of no actor yet."""
        self.steps_total, self.raw_frames_total = counted.steps, counted.raw_frames
        self._counted = dict(counted.lives)

    def joined(self, actor: str, incarnation: str, slot: int, now: float, *, known: bool) -> None:
        """An actor said hello; a new incarnation starts counting from nothing, one that was here before goes on.

        ``known``: the log has experience of this very incarnation. Where the roster has not, the service was
        restarted, and the restored totals hold most of the steps that the actor will report again.
        """
        record = self.actors.get(actor)
        if record is None or record.status.incarnation != incarnation:
            if record is not None:
                self._remember(record)
            before = self._counted.pop((actor, incarnation), None)
            steps, raw_frames = before or (0, 0)
            status = ActorStatus(
                name=actor, incarnation=incarnation, slot=slot, state="Starting", steps=steps, raw_frames=raw_frames
            )
            self.actors[actor] = ActorRecord(status, now, now, counted=before is not None or not known)
        else:
            record.status, record.seen_at = replace(record.status, slot=slot), now
        if len(self.actors) > MOST_ACTORS:  # names of actors that are gone, or names that a faulty client makes up
            self._remember(self.actors.pop(min(self.actors.values(), key=lambda each: each.seen_at).status.name))

    def heard(self, message: Message, now: float) -> None:
        """Take over a heartbeat. One from another incarnation than the one that joined is ignored.

        Raises ``MalformedMessage`` for invalid figures: they would make the whole status document unreadable.
        """
        fields: Mapping[str, Any] = message.fields
        stages, (process,) = message.columns["stages"], unpacked(message, 1)
        if not all(0 <= figure <= _MOST_COUNTED for figure in (fields["sps"], fields["blocked"], *stages.tolist())):
            raise MalformedMessage(
                "contents", "a rate or a time is negative, not finite or beyond all that an actor lives"
            )
        record = self.alive(message, now)
        if record is None:
            return
        record.reported_at = now
        record.status = replace(
            record.status,
            state=fields["state"],
            produced=fields["produced"],
            steps_per_second=fields["sps"],
            policy_version=fields["pv"],
            blocked_seconds=fields["blocked"],
            process=process,
            stages=dict(zip(ACTOR_STAGES, map(float, stages.tolist()), strict=False)),
        )

    def alive(self, message: Message, now: float) -> ActorRecord | None:
        """Count what an actor has done: every shard counts all actors. None for another incarnation than the one that joined.

        Raises ``MalformedMessage`` for impossible counts.
        """
        fields: Mapping[str, Any] = message.fields
        if max(fields["steps"], fields["raw"], fields.get("produced", 0)) > _MOST_COUNTED:
            raise MalformedMessage("contents", f"a count is above {_MOST_COUNTED}, which no actor lives to reach")
        record = self.actors.get(fields["actor"])
        if record is None or record.status.incarnation != fields["inc"]:
            return None
        if record.counted:
            self.steps_total += max(0, fields["steps"] - record.status.steps)
            self.raw_frames_total += max(0, fields["raw"] - record.status.raw_frames)
        record.counted, record.seen_at = True, now
        record.status = replace(record.status, steps=fields["steps"], raw_frames=fields["raw"])
        return record

    def statuses(self, now: float) -> tuple[ActorStatus, ...]:
        """The actors that have their home here. One that has gone to another shard stays until that has told of it."""
        return tuple(
            record.as_status(now)
            for record in self.actors.values()
            if record.seen_at - record.reported_at <= _HANDOVER_SECONDS
        )

    def left(self, actor: str, incarnation: str) -> None:
        """An actor said goodbye."""
        record = self.actors.get(actor)
        if record is not None and record.status.incarnation == incarnation:
            record.status = replace(record.status, state="Finished", steps_per_second=0.0)

    def lose(self, older_than_seconds: float, forget_after_seconds: float, now: float) -> None:
        """Mark actors that fell silent as ``Lost`` and drop those long gone."""
        for name, record in list(self.actors.items()):
            age = now - record.seen_at
            if age > forget_after_seconds:
                self._remember(self.actors.pop(name))
            elif age > older_than_seconds and record.status.state not in _GONE:
                record.status = replace(record.status, state="Lost", steps_per_second=0.0)

    def _remember(self, record: ActorRecord) -> None:
        if record.counted:
            status = record.status
            self._counted[status.name, status.incarnation] = status.steps, status.raw_frames
        # What was resumed may be more, while the actors that outlived the service have not all come back yet.
        while len(self._counted) > _INCARNATIONS_REMEMBERED + MOST_ACTORS:
            del self._counted[next(iter(self._counted))]

    def finished(self, message: Message, unix_seconds: float) -> list[Episode]:
        """Take over games heard of at that time; returns them as status entries. Raises ``MalformedMessage`` for impossible
        figures."""
        columns: Mapping[str, NDArray[Any]] = message.columns
        epsilons = columns["epsilon"]
        if not (
            (np.abs(columns["ret"]) <= _HIGHEST_RETURN).all()
            and ((epsilons >= 0) & (epsilons <= 1)).all()
            and all((columns[name] >= 0).all() for name in ("length", "raw", "pv"))
        ):
            raise MalformedMessage(
                "contents", "a return is no number to reckon with, an epsilon is outside [0, 1], or a count is negative"
            )
        entries, greedy_epsilon = [], self._greedier_half(epsilons.tolist())
        rows = zip(
            *(columns[name].tolist() for name in ("ret", "length", "raw", "epsilon", "cut", "pv")),
            unpacked(message, len(epsilons)),
            strict=True,
        )
        for game_return, length, raw_frames, epsilon, cut, version, reported in rows:
            self.episodes_total += 1
            entries.append(
                Episode(
                    id=self.episodes_total,
                    game_return=game_return,
                    length=length,
                    raw_frames=raw_frames,
                    epsilon=epsilon,
                    truncated=bool(cut),
                    policy_version=version,
                    greedy_half=epsilon <= greedy_epsilon,
                    actor=str(message.fields["actor"]),
                    time=unix_seconds,
                    shard=self._shard,
                    metrics=reported,
                )
            )
        self.episodes.extend(entries)
        return entries

    def _greedier_half(self, heard: Sequence[float]) -> float:
        """The largest epsilon of the greedier half of those that are there: those of the last games of actors that still play,
        and those just ``heard``. Of a ladder that has lost its actors the rungs that are left count."""
        playing = {name for name, record in self.actors.items() if record.status.state not in _GONE}
        here = sorted({*heard, *(each.epsilon for each in self.episodes if each.actor in playing)})
        return here[(len(here) - 1) // 2] if here else 0.0

    def restore_episodes(self, stored: Sequence[Mapping[str, str]]) -> None:
        """Games read back from Redis, oldest first. Left out are those that other shards heard of, which tell of them themselves,
        and entries that do not read as games."""
        for fields in stored:
            try:
                if int(fields["shard"]) != self._shard:
                    continue
                episode = Episode(
                    id=int(fields["id"]),
                    game_return=float(fields["return"]),
                    length=int(fields["length"]),
                    raw_frames=int(fields["raw_frames"]),
                    epsilon=float(fields["epsilon"]),
                    truncated=fields["truncated"] == "1",
                    policy_version=int(fields["policy_version"]),
                    greedy_half=fields["greedy_half"] == "1",
                    actor=fields["actor"],
                    time=float(fields["time"]),
                    shard=self._shard,
                )
            except (KeyError, ValueError):
                continue
            self.episodes.append(episode)


def episode_fields(episode: Episode) -> dict[str, Any]:
    """A finished game as the fields of a Redis stream entry, without what the environment reports of it: the next games bring
    that again."""
    return {
        name: int(value) if isinstance(value, bool) else value
        for name, value in episode.to_document().items()
        if name != "metrics"
    }
