"""What an evaluator tells the learner: its verdicts, and how far the games of the next one have come."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rljob.weights.flat import Weights, WeightsProblem
from rljob.wire import MalformedMessage, Message
from rljob.wire.named_numbers import packed, unpacked

_EMPTY = np.zeros(0, np.uint8)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """An evaluator's verdict on one version. ``returns`` float32[n], ``lengths`` int32[n] (steps), per game that it is by.

    ``seed``: of the games; the same weights play the same ones with it again. ``finished`` is false where the evaluator gave up
    because the target was out of reach. ``weights`` are the ones judged, or None where the evaluator did not send them.
    ``metrics``: what the environment itself reports, by name.
    """

    version: int
    mean: float
    standard_error: float
    seconds: float
    finished: bool
    returns: NDArray[np.float32]
    lengths: NDArray[np.int32]
    weights: Weights | None = None
    seed: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def rank(self) -> tuple[bool, float]:
        """The order of evaluations: one that was played to its end ranks above one that was given up, and among equals the mean
        decides. So a run that never came near its target has a best policy, too."""
        return self.finished, self.mean

    def to_message(self) -> Message:
        weights, (names, metrics) = self.weights, packed([self.metrics])
        return Message(
            "evaluation",
            {
                "version": self.version,
                "mean": float(self.mean),
                "stderr": float(self.standard_error),
                "n": len(self.returns),
                "seed": int(self.seed),
                "seconds": float(self.seconds),
                "finished": bool(self.finished),
                **names,
            },
            {
                **metrics,
                "returns": np.asarray(self.returns, np.float32),
                "lengths": np.asarray(self.lengths, np.int32),
                "buffer": weights.buffer if weights else _EMPTY,
                "manifest": weights.manifest if weights else _EMPTY,
            },
        )

    @classmethod
    def from_message(cls, message: Message, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Evaluation:
        """Read a verdict. ``shapes`` are those of the network being trained, where they are known.

        Raises MalformedMessage for what the schema allows and is nevertheless no verdict: no games, returns and means that are
        not finite, and weights that no policy could be made of (`Weights.check`).
        """
        fields, columns = message.fields, message.columns
        version = int(fields["version"])
        weights = (
            Weights(version, 0, uint8_column(message, "buffer"), uint8_column(message, "manifest"))
            if columns["buffer"].size
            else None
        )
        evaluation = cls(
            version=version,
            mean=float(fields["mean"]),
            standard_error=float(fields["stderr"]),
            seconds=float(fields["seconds"]),
            finished=bool(fields["finished"]),
            returns=columns["returns"].astype(np.float32),
            lengths=columns["lengths"].astype(np.int32),
            weights=weights,
            seed=int(fields["seed"]),
            metrics=unpacked(message, 1)[0],
        )
        evaluation._check(shapes)
        return evaluation

    def _check(self, shapes: Mapping[str, tuple[int, ...]] | None) -> None:
        returns, lengths = self.returns, self.lengths
        if not len(returns) or not np.isfinite(returns).all() or int(lengths.min()) < 0:
            raise MalformedMessage(
                "contents", "a game's return is not finite, its length is negative, or there is no game"
            )
        if not math.isfinite(self.mean):
            raise MalformedMessage("contents", f"the mean is {self.mean}")
        # A single game has no standard error, and the evaluator sends NaN.
        if self.standard_error < 0 or math.isinf(self.standard_error) or not 0 <= self.seconds < math.inf:
            raise MalformedMessage(
                "contents", f"standard error {self.standard_error} or seconds {self.seconds} are no figures"
            )
        if self.weights is not None:
            try:
                self.weights.check(shapes)
            except WeightsProblem as problem:
                raise MalformedMessage("contents", str(problem)) from None


@dataclass(frozen=True, slots=True)
class Evaluating:
    """How far an evaluation has come: ``games`` of ``episodes`` have ended, with the mean return ``mean`` (None before one has).
    No estimate: games that end soon come first. ``alone``: training is to stand still meanwhile. ``process``: what the
    evaluator's process takes."""

    version: int
    games: int
    episodes: int
    mean: float | None
    alone: bool = False
    process: Mapping[str, float] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """As status documents show it."""
        return dataclasses.asdict(self)

    def to_message(self) -> Message:
        mean = float("nan") if self.mean is None else float(self.mean)
        fields = {"version": self.version, "games": self.games, "episodes": self.episodes, "mean": mean}
        names, process = packed([self.process])
        return Message("evaluating", {**fields, "alone": self.alone, **names}, process)

    @classmethod
    def from_message(cls, message: Message) -> Evaluating:
        fields = message.fields
        mean = float(fields["mean"])
        games, episodes = int(fields["games"]), int(fields["episodes"])
        if math.isinf(mean) or not 0 <= games <= episodes:
            raise MalformedMessage("contents", f"{games} of {episodes} games with a mean of {mean} are no evaluation")
        return cls(
            int(fields["version"]),
            games,
            episodes,
            None if math.isnan(mean) else mean,
            bool(fields["alone"]),
            unpacked(message, 1)[0],
        )


def uint8_column(message: Message, column: str) -> NDArray[np.uint8]:
    """The bytes of a column."""
    return message.columns[column].astype(np.uint8, copy=False)
