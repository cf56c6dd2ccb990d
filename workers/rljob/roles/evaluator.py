"""The evaluator role: plays whole games with the newest weights, beside the training.

It is the judge of ``targetReturn``, so it shares with training only the network: the environments are plain Gymnasium ones
and the weights are what the learner hands out for evaluation.
"""

import contextlib
import dataclasses
import logging
import math
import threading
import time
from collections.abc import Sequence
from statistics import fmean
from typing import Any, Final

import torch
from rljob.api.episode_metrics import in_words
from rljob.api.learner_status import EvaluationUnderWay, Verdict
from rljob.checkpoints.saved_policy import PolicyIdentity
from rljob.envs import describe_both, environment_of
from rljob.envs.base import seed_of
from rljob.envs.meter import kept
from rljob.evaluation.players import NoGameEnds, Players
from rljob.evaluation.score import Played, tally
from rljob.evaluation.verdicts import LEAST_GAMES, Verdicts, proven
from rljob.roles.options import RoleOptions, serve
from rljob.telemetry.clock import StageClock
from rljob.telemetry.process import PROCESS
from rljob.weights.client import WeightClient
from rljob.weights.flat import Evaluation, Weights
from rljob.wire.security import load_keys

log = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 0.2
_TELL_SECONDS: Final = 1.0
"""Time between two messages about the games so far."""
_OUTSIDE: Final = (
    "a game returned %g, outside the bounds of a return [%g, %g] (evaluator.returnBounds): they are ignored from now on, and "
    "early verdicts assume returns that are about normal"
)


class _Stopped(Exception):
    """The process was asked to end in the middle of a game."""


def run_evaluator(options: RoleOptions, stop: threading.Event) -> None:
    """Evaluate until ``stop`` is set. Raises EnvironmentProblem when the job's environment cannot be made, KeepsFailing when it
    fails more often than the job allows."""
    torch.set_num_threads(1)
    job = options.job.spec
    parameters, environment = job.algorithm.parameters, job.environment.parameters
    spec, judged = environment_of(options.run_dir, job.environment), job.judged_environment
    if judged != job.environment:
        describe_both(job.environment, judged)
    policy = PolicyIdentity(job.algorithm.name, spec, parameters, environment, judged)
    players = Players(policy.judged, job.evaluator.resources.cores(), job.evaluator.episodes)
    security = load_keys(options.keys, "evaluator").client("learner") if options.keys else None
    client = WeightClient(options.weights, options.notice, security, evaluation=True)
    client.shapes = players.shapes
    evaluator = Evaluator(options, players, client, stop)
    try:
        evaluator.run()
    finally:
        evaluator.close()


class Evaluator:
    """The loop, and what its status page shows. Owns ``players`` and ``client``. ``run`` returns once ``stop`` is set."""

    def __init__(self, options: RoleOptions, players: Players, client: WeightClient, stop: threading.Event) -> None:
        job = options.job.spec
        self._name, self._stop, self._players, self._client = options.name, stop, players, client
        self._settings = job.evaluator
        self._seed = job.seed
        self._shares_cores = not options.on_cluster
        target = job.success_policy.target_return
        self._metric = job.success_policy.metric
        # A mean over several evaluations can be saved by a later one, a plateau counts whole evaluations, and so does a metric.
        alone = (
            target is not None and target.window_evaluations == 1 and not (job.early_stopping.plateau or self._metric)
        )
        self._target = target.value if target is not None and alone else None
        declared = self._settings.return_bounds
        self._bounds = players.bounds if declared is None else (declared[0], declared[1])
        self._verdicts = Verdicts()
        self._clock = StageClock(("wait", "play", "report"))
        self._episodes_total = 0
        self._evaluating: EvaluationUnderWay | None = None
        self._next_word = 0.0
        self._state = "Waiting"
        self._server = serve(options, "evaluator", self.status, self.ready)

    def run(self) -> None:
        """Wait for weights worth judging, judge them, tell the learner; again and again."""
        newest: Weights | None = None
        last_start = -float("inf")
        while not self._stop.is_set():
            self._server.beat()
            self._clock.enter("wait")
            self._state = "Waiting"
            newest = self._client.poll() or newest
            self._verdicts.deliver(self._client, time.monotonic())
            due = time.monotonic() - last_start >= self._settings.interval_seconds
            if newest is None or not due or not self._worth_judging(newest):
                self._stop.wait(_PAUSE_SECONDS)
                continue
            last_start, judged, newest = time.monotonic(), newest, None
            try:
                self._judge(judged)
                if self._shares_cores:
                    last_start = time.monotonic()  # the games took the cores from training, which has its turn now
            except _Stopped:
                break
            except NoGameEnds as problem:  # of later weights games may end
                log.warning("version %d is not judged: %s", judged.version, problem)
            self._client.outdate()  # a fetch begun before the games holds weights as old as they took

    def close(self) -> None:
        """Give up environments, sockets and the status page."""
        self._server.close()
        self._client.close()
        self._players.close()

    def ready(self) -> bool:
        """Whether weights have been judged or are being judged."""
        return self._state == "Playing" or self._verdicts.total > 0

    def status(self) -> dict[str, Any]:
        """The role's status document; read by the telemetry server's threads."""
        last, evaluating = self._verdicts.last, self._evaluating
        return {
            "role": "evaluator",
            "name": self._name,
            "state": self._state,
            "evaluations_total": self._verdicts.total,
            "episodes_total": self._episodes_total,
            "steps_total": self._players.steps_total,
            "environment_failures": self._players.failures_total,
            "evaluating": None if evaluating is None else evaluating.to_document(),
            "last": None if last is None else last.to_document(),
            "stages": self._clock.seconds(),
            "process": PROCESS.now(),
        }

    def _worth_judging(self, weights: Weights) -> bool:
        """Not before training itself looks as good as ``triggerReturn`` asks: evaluations cost time that actors could use."""
        trigger, training = self._settings.trigger_return, weights.meta.get("mean_return")
        return trigger is None or (training is not None and float(training) >= trigger)

    def _judge(self, weights: Weights) -> None:
        self._state = "Playing"
        self._clock.enter("play")
        began = time.monotonic()
        episodes, target = self._settings.episodes, self._target
        # Other games each time: a policy must not be chosen for its luck with one set of starts.
        seed = seed_of(self._seed, "verdict", self._verdicts.total)
        said = self._evaluating = EvaluationUnderWay(version=weights.version, games=0, episodes=episodes)
        low = -math.inf

        def decided(counted: Sequence[Played]) -> bool | None:
            nonlocal said, low
            returns = [game.points for game in counted]
            if self._bounds is not None and not self._bounds[0] <= returns[-1] <= self._bounds[1]:
                log.warning(_OUTSIDE, returns[-1], *self._bounds)
                self._bounds = None
            low, mean = proven(returns, episodes, self._bounds), fmean(returns)
            likely = target is not None and len(returns) >= LEAST_GAMES and mean >= target
            self._evaluating = said = dataclasses.replace(
                said,
                games=len(returns),
                mean=mean,
                at_least=low if math.isfinite(low) else None,
                # A verdict may end the run: training would only take the cores from it.
                alone=likely and self._shares_cores,
            )
            if target is None or not LEAST_GAMES <= len(returns) < episodes:
                return None
            if low >= target:
                return True
            return None if likely else False

        try:
            with contextlib.closing(self._players.play(weights, range(episodes), seed, self._between_steps)) as games:
                result = tally(games, decided)
        finally:
            self._evaluating = None
        self._episodes_total += len(result.returns)
        reported, counts = kept([result.metrics, result.metric_games], self._metric)
        self._clock.enter("report")
        verdict = Verdict(
            version=weights.version,
            **{name: weights.meta.get(name, 0) for name in ("updates", "raw_frames", "steps")},
            mean=result.mean,
            standard_error=result.standard_error if len(result.returns) > 1 else None,
            episodes=len(result.returns),
            mean_length_steps=fmean(result.lengths),
            seed=seed,
            seconds=time.monotonic() - began,
            finished=result.finished,
            bound=low if result.finished and len(result.returns) < episodes else None,
            metrics=reported,
            metric_games=counts,
        )
        self._verdicts.add(Evaluation(verdict, weights))
        self._verdicts.deliver(self._client, time.monotonic())
        log.info(
            "version %d: mean return %.2f +- %.2f%s%s over %d games%s in %.1f s, seed %d",
            weights.version,
            result.mean,
            result.standard_error,
            verdict.how_sure,
            "".join(f", {name} {mean}" for name, mean in in_words(reported, counts, verdict.episodes).items()),
            len(result.returns),
            "" if result.finished else f" of {episodes}, given up below {self._target:g},",
            verdict.seconds,
            seed,
        )
        if self._metric is not None and self._verdicts.total == 1 and (missing := self._metric.unreported(verdict)):
            log.warning("%s", missing)

    def _between_steps(self) -> None:
        if self._stop.is_set():
            raise _Stopped
        self._server.beat()
        now = time.monotonic()
        if self._evaluating is not None and now >= self._next_word:
            self._next_word = now + _TELL_SECONDS
            self._client.tell(dataclasses.replace(self._evaluating, process=PROCESS.now()))
