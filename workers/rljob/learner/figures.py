"""The loop's running figures: how far the training has come, means and rates since the last record, and policy lag; and the
evaluator's verdicts, of which the newest are kept for the status, and the best one is known."""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rljob.api.learner_status import LearnerStatus, Verdict
from rljob.ingest.shard_status import ShardStatus
from rljob.learner.shard_totals import actors, episode_metrics, limited, mean_length_steps, mean_return, stage_totals
from rljob.telemetry.process import PROCESS

LAG_BOUNDS = (10, 20, 50, 100, 200, 400, 1000, 4000)
"""Upper bounds of the policy-lag histogram, in updates."""

LAG_BATCHES = 32
"""Mean and quantiles of the policy lag are taken over so many batches, the newest."""


class Figures:
    """Collects numbers from the loop's thread; ``section`` gives their part of the status.

    ``names``: of the numbers that an update reports.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._bounds = np.asarray(LAG_BOUNDS)
        self._lag_counts = np.zeros(len(LAG_BOUNDS) + 1, np.int64)
        self._lag_sum = 0.0
        self._lags: deque[NDArray[np.int64]] = deque(maxlen=LAG_BATCHES)
        self._recent_lag: tuple[float | None, float | None, float | None] = (None, None, None)
        self._sums = np.zeros(len(self._names))
        self._count = 0
        self._means: dict[str, float] = {}
        self._rates: dict[str, float] = {}
        self._before: tuple[float, dict[str, float]] | None = None

    def lag(self, updates: NDArray[np.int64], policy_version: NDArray[np.int64]) -> None:
        """Note how many updates old the weights behind a batch were. Random actors (version 0) have no lag."""
        updates = updates[policy_version > 0]
        if not len(updates):
            return
        self._lags.append(updates)
        self._lag_sum += float(updates.sum())
        self._lag_counts += np.bincount(np.searchsorted(self._bounds, updates), minlength=len(self._lag_counts))

    def learned(self, numbers: NDArray[np.float32]) -> None:
        """Note what one update reports, in the order of the names."""
        self._sums += numbers
        self._count += 1

    def window(
        self,
        now: float,
        stages: Mapping[str, float],
        updates: int,
        steps: int,
        raw_frames: int,
        shards: Sequence[ShardStatus],
        produced: float = 0.0,
        consumed: float = 0.0,
    ) -> None:
        """End a window: turn what was collected since the last call into means and rates.

        ``produced`` and ``consumed`` are totals: what all actors made (transitions or unrolls), and what the learner has learned
        from, counted as often as it did.
        """
        if self._count:
            self._means = dict(zip(self._names, (self._sums / self._count).tolist(), strict=True))
            self._sums[:], self._count = 0.0, 0
        if self._lags:
            recent = np.concatenate(self._lags)
            median, high = np.percentile(recent, (50, 95))
            self._recent_lag = float(recent.mean()), float(median), float(high)
        acting = stage_totals(actor.stages for actor in actors(shards))
        totals = {
            "wait": stages.get("wait", 0.0),
            "updates": float(updates),
            "steps": float(steps),
            "raw_frames": float(raw_frames),
            "actor_blocked": acting.get("blocked", 0.0),
            "actor_all": sum(acting.values()),
            "produced": produced,
            "consumed": consumed,
        }
        if self._before is not None:
            then, before = self._before
            seconds = max(now - then, 1e-9)
            spent = {name: max(0.0, value - before[name]) for name, value in totals.items()}
            self._rates = {
                "learner_wait_fraction": min(1.0, spent["wait"] / seconds),
                "updates_per_second": spent["updates"] / seconds,
                "steps_per_second": spent["steps"] / seconds,
                "raw_frames_per_second": spent["raw_frames"] / seconds,
                "consumption_per_second": spent["consumed"] / seconds,
            }
            if before["produced"] > 0:  # else the shards report for the first time, and all they hold would seem new
                self._rates["production_per_second"] = spent["produced"] / seconds
            if spent["actor_all"] > 0:
                self._rates["actors_blocked_fraction"] = min(1.0, spent["actor_blocked"] / spent["actor_all"])
        self._before = (now, totals)

    def section(
        self,
        shards: Sequence[ShardStatus],
        stages: Mapping[str, float],
        gpu_stages: Mapping[str, float] | None = None,
        evaluator: Mapping[str, float] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """The fields of the status that these figures and the shards' statuses make up. ``stages``: seconds of the loop;
        ``gpu_stages``: of the device, where it has a clock of its own. ``evaluator``: what its process takes, while it plays."""
        acting = actors(shards)
        mean, games = mean_return(shards)
        reported, reporting_games = episode_metrics(shards)
        lag, median_lag, high_lag = self._recent_lag
        inserted, sampled = (
            sum(shard.inserted_total for shard in shards),
            sum(shard.sampled_total for shard in shards),
        )
        others = {
            "replay": stage_totals(shard.process for shard in shards),
            "evaluator": dict(evaluator),
            "actor": stage_totals(actor.process for actor in acting),
        }
        # Before there is a window to measure them over, shares of time are unknown: 0 would say that no role waits.
        rates: dict[str, float | None] = {"learner_wait_fraction": None, "actors_blocked_fraction": None}
        rates |= dict.fromkeys(("updates_per_second", "steps_per_second", "raw_frames_per_second"), 0.0)
        return {
            "episodes_total": sum(shard.episodes_total for shard in shards),
            "mean_return": mean,
            "games": games,
            "mean_length_steps": mean_length_steps(shards),
            "episode": reported,
            "episode_games": reporting_games,
            "queue_depth_batches": limited(shard.queue_depth_batches for shard in shards),
            "queue_bound_batches": limited(shard.queue_bound_batches for shard in shards),
            "samples_per_insert": sampled / inserted if inserted else None,
            "policy_lag_updates": lag,
            "policy_lag_updates_p50": median_lag,
            "policy_lag_updates_p95": high_lag,
            "policy_lag_histogram": {
                "bounds": list(LAG_BOUNDS),
                "counts": self._lag_counts.tolist(),
                "sum": self._lag_sum,
            },
            "update_figures": self._means,
            **rates,
            **self._rates,
            "actors": tuple(acting),
            "stages": {
                "learner": dict(stages),
                **({"gpu": dict(gpu_stages)} if gpu_stages else {}),
                "replay": stage_totals(shard.stages for shard in shards),
                "actor": stage_totals(actor.stages for actor in acting),
            },
            "rss_bytes": int(PROCESS.now()["rss_bytes"]),
            "processes": {
                "learner": PROCESS.now(),
                **{role: figures for role, figures in others.items() if figures},
            },
        }


@dataclass(slots=True)
class Counters:
    """The counts of one job, over all lives of its learner; the updates are counted by the updater.

    Attributes:
        epoch: the life of the learner; what belongs to an older one is void.
        version: of the weights that were published last; 0 before any.
        samples: transitions learned from, repeats included.
        steps, raw_frames: played by all actors.
        skipped_updates: those of this life whose loss was not finite.
        left_out_batches: those of this life that running statistics have left out, with a number that was not finite.
    """

    epoch: int = 1
    version: int = 0
    samples: int = 0
    steps: int = 0
    raw_frames: int = 0
    skipped_updates: int = 0
    left_out_batches: int = 0

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Go on from a checkpoint's; versions that were published since are not given out again."""
        self.version = max(self.version, int(stored["version"]))
        self.samples, self.steps, self.raw_frames = (int(stored[name]) for name in ("samples", "steps", "raw_frames"))

    def played(self, steps: int, raw_frames: int) -> None:
        """Set the actors' counts; they never fall below those of a checkpoint."""
        self.steps, self.raw_frames = max(self.steps, steps), max(self.raw_frames, raw_frames)

    def document(self, updates: int) -> dict[str, int]:
        """As checkpoints and evaluators get them."""
        return {
            "updates": updates,
            "samples": self.samples,
            "steps": self.steps,
            "raw_frames": self.raw_frames,
            "version": self.version,
            "epoch": self.epoch,
        }


KEPT = 1000


class Verdicts:
    """Verdicts in the order they arrived; the oldest go when there are more than a thousand. ``trained_before``: the run began
    from another one's weights, so that its first ones are trained, too."""

    def __init__(self, trained_before: bool = False) -> None:
        self._trained_before = trained_before
        self.newest: tuple[Verdict, ...] = ()
        self._best: tuple[bool, float] | None = None

    def add(self, verdict: Verdict) -> bool:
        """Note a verdict; True when it is the best so far (see `Verdict.rank`) of weights that were trained: a short run is
        scored and played by what it has learned. One that was sent twice is noted once."""
        if any((each.version, each.mean) == (verdict.version, verdict.mean) for each in self.newest[-20:]):
            return False
        self.newest = (*self.newest[-KEPT + 1 :], replace(verdict, time=time.time()))
        is_best = self._is_trained(verdict) and (self._best is None or verdict.rank > self._best)
        if is_best:
            self._best = verdict.rank
        return is_best

    def _is_trained(self, verdict: Verdict) -> bool:
        return verdict.updates > 0 or self._trained_before

    def documents(self) -> list[dict[str, Any]]:
        """The verdicts as a checkpoint keeps them."""
        return [each.to_document() for each in self.newest]

    def restore(self, documents: object, best: object = None) -> None:
        """Go on from those of a checkpoint, keeping any that are newer. ``best``: of the policy that is kept as the best,
        which may have been judged after that checkpoint."""
        restored = _read(documents)
        known = {each.time for each in restored}
        self.newest = (*restored, *(each for each in self.newest if each.time not in known))
        kept = _read([best] if best else [])
        self._best = max((each.rank for each in (*self.newest, *kept) if self._is_trained(each)), default=None)


def _read(documents: object) -> tuple[Verdict, ...]:
    return LearnerStatus.lenient({"evaluations": documents}).evaluations
