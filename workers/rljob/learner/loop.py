"""The learner's loop: wait for a batch, update, hand back what was learned, publish; and on the side evaluate, record, save.

The loop knows no algorithm by name and reads nothing from the device. What happens at intervals (figures, checkpoints,
verdicts) is done between two updates, driven by the clock, so that a learner without data still answers and saves.
"""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from rljob.api.learner_status import LearnerStatus
from rljob.api.live import live_names
from rljob.checkpoints import store as checkpoint
from rljob.checkpoints.files import read_manifest
from rljob.checkpoints.names import CheckpointProblem, StorageProblem
from rljob.checkpoints.restore_from import FORK, STARTED_FROM
from rljob.checkpoints.saved_policy import PolicyIdentity
from rljob.learner import state
from rljob.learner.course import Course
from rljob.learner.device import DeviceStageClock, Gpu
from rljob.learner.figures import Counters, Figures, Verdicts
from rljob.learner.optim.on_device import Arrived, Readback
from rljob.learner.optim.updater import AnyUpdater
from rljob.learner.saver import Saver
from rljob.learner.shard_totals import return_to_go_by, steps_and_raw_frames
from rljob.learner.sources import BatchSource, InStep, LoopConfig, NonFiniteLoss, Superseded
from rljob.loading import short
from rljob.telemetry import timeline
from rljob.telemetry.clock import StageClock
from rljob.weights.flat import VersionLog
from rljob.weights.server import WeightServer
from rljob.wire import refused_handshakes_total

log = logging.getLogger(__name__)

STAGES = ("wait", "h2d", "update", "publish", "checkpoint", "evaluation", "other")
STANDS_STILL_SECONDS = 0.1
"""Between two checks whether the games of an evaluation, for which training stands still, have ended."""
CENTRING_TRANSITIONS = 2048
EVALUATION_WEIGHTS_SECONDS = 1.0


class Learner:
    """One life of the learner. The parts are built and closed by the caller; ``run`` uses them from the caller's thread.

    ``status()`` may be called from any thread.
    """

    def __init__(
        self,
        config: LoopConfig,
        identity: PolicyIdentity,
        course: Course,
        updater: AnyUpdater,
        source: BatchSource | InStep,
        server: WeightServer,
        saver: Saver,
        record: Callable[[LearnerStatus], None],
        surroundings: dict[str, Any],
        versions: VersionLog | None = None,
        gpu: Gpu | None = None,
        clock: StageClock | None = None,
        epoch: int = 1,
    ) -> None:
        self._config, self._identity, self._course = config, identity, course
        self._updater, self._source, self._server, self._saver = updater, source, server, saver
        self._record, self._surroundings = record, surroundings
        self._readback = Readback(updater.device)
        self.clock = clock or StageClock(STAGES)
        self._gpu = gpu or Gpu(updater.device)
        self.figures = Figures(updater.figures)
        self._versions = versions or VersionLog(config.publish_interval)
        self.verdicts = Verdicts(bool(config.started_from))
        self.state = "Starting"
        self.counters = Counters(epoch=epoch)
        self._played = 0, 0
        """Steps and raw frames of all actors when the newest batch was put together. What decays, or is due, goes by them."""
        self._mean_return: float | None = None
        self._checkpoint_wanted = self._checkpoint_answered = self._next_evaluation_weights = 0.0
        self._on_turn: Callable[[], None] = lambda: None
        self._in_step = source if isinstance(source, InStep) else None
        self._leads = self._in_step is None or self._in_step.leads
        """Of several processes one publishes, saves, and follows the job's user."""
        if self._in_step is not None:
            self._in_step.on_news = self._share
        now = time.monotonic()
        self._next_record, self._next_checkpoint = now, now + config.checkpoint_interval_seconds

    # ------------------------------------------------------------------------------------------------ beginning and end

    def resume(self, found: checkpoint.Checkpoint) -> None:
        """Go on from a checkpoint, in the present epoch, and publish its weights to actors that wait for some."""
        counters, epoch = found.manifest["counters"], self.counters.epoch
        state.restore(self._updater, found, int(counters["updates"]))
        self.counters.restore(counters)
        self.counters.epoch = epoch
        self._played = self.counters.steps, self.counters.raw_frames
        best: object = None
        with contextlib.suppress(CheckpointProblem, StorageProblem):  # then no verdict is known to be better
            best = read_manifest(self._config.checkpoint_directory / checkpoint.BEST).get("verdict")
        self.verdicts.restore(found.manifest.get("evaluations") or [], best)
        self._saver.resumed(found, self._updater.updates)
        self._checkpoint_answered = float(found.manifest.get("requested_unix") or 0.0)
        self._checkpoint_wanted = self._checkpoint_wanted or self._checkpoint_answered
        self._course.resumed(str(found.manifest.get(FORK) or ""))
        log.info("resumed from %s: update %d, epoch %d", found.path.name, self._updater.updates, self.counters.epoch)
        self._go_on_with_others()

    def _go_on_with_others(self) -> None:
        """The weights were replaced: forget what is under way of those before, and publish these to actors that wait for some."""
        self._readback.drain()
        self._versions.begin(self._updater.updates)
        self._next_evaluation_weights = 0.0
        if self.counters.version > 0:
            self._publish()

    def start_from(self, found: checkpoint.Checkpoint) -> None:
        """Begin a new run with the networks and the optimiser of another one, without its counters and verdicts."""
        state.start_from(self._updater, found)
        log.info("starting from %s; updates, steps and frames are counted from 0", found.path)
        self._publish()

    def _share(self) -> None:
        """All processes of this learner go on from what the first one is now; all call it at the same time."""
        assert self._in_step is not None, "there are several"
        content = b""
        if self._leads:
            manifest = {"counters": self.counters.document(self._updater.updates), "live": self._course.live}
            content = state.packed(self._updater, manifest)
        lead, *_ = self._in_step.ranks.gather(content)
        if self._leads:
            return
        found = state.unpacked(lead)
        counters, spec = found.manifest["counters"], self._course.with_live(found.manifest["live"])
        self._updater.follow(spec.algorithm.parameters)
        self._source.follow(spec)
        state.restore(self._updater, found, int(counters["updates"]))
        self.counters.restore(counters)
        self.counters.epoch = int(counters["epoch"])
        self._readback.drain()
        self._versions.begin(self._updater.updates)
        if self.counters.version:
            self._versions.note(self.counters.version, self._updater.updates)
            self._source.published(self.counters.epoch)

    # ------------------------------------------------------------------------------------------------------- the loop

    def run(self, stop: threading.Event, on_turn: Callable[[], None] = lambda: None) -> None:
        """Train until ``stop`` is set, then save. ``on_turn`` is called every few hundred milliseconds at least, as a sign of
        life. Raises NonFiniteLoss where the job's policy says so, Superseded once a later epoch is heard of; neither saves."""
        self._on_turn = on_turn
        self.state = "WaitingForUnrolls" if self._source.needs_weights_first else "WaitingForReplay"
        if self._in_step is not None:
            self._in_step.idle(0.0)  # by which all have the weights of the first one
        try:
            ready = self._prepare(stop)
            if ready is not None:
                self.state = "Training"
                self._follow()
                self._learn(ready)
            while not stop.is_set():
                self._turn()
        finally:
            self.clock.stop()
        self.state = "Finishing"
        self._take_in(self._readback.rest())
        self.clock.enter("checkpoint")
        if self._updater.updates > 0 and self._leads:
            self._save(wait=True)
        self.clock.stop()
        self._record(self.status())

    def _turn(self) -> None:
        self._follow()
        evaluating = self._server.evaluating
        budget = self._course.budget
        # The last update is this one, whenever a controller looks.
        over = budget is not None and self._leads and self._played[1] >= budget
        if over or (evaluating is not None and evaluating.alone):
            # The cores belong to its games. Actors stand still, too, once no more experience is taken from them.
            self.state = "Training" if over else "Evaluating"
            self._look_around()
            self.clock.enter("evaluation")
            self._source.idle(STANDS_STILL_SECONDS)
            return
        self.state = "Training"
        ready = self._next()
        if ready is not None:
            self._learn(ready)

    def _follow(self) -> None:
        """Change what the job's schedule, or its user, asks for by now: between two batches."""
        if not self._leads:
            return
        change = self._course.turn(self._played[1], may_fork=not self._saver.busy)
        if change is None:
            return
        if self._in_step is not None:
            self._in_step.news = True
        if change.found is not None:
            try:
                state.start_from(self._updater, change.found)
            except CheckpointProblem as problem:
                self._course.refuse(str(problem))
                return
        params = change.spec.algorithm.parameters
        self._updater.follow(params)
        self._identity = replace(self._identity, params=params)
        self._source.follow(change.spec)
        self._course.took(change, self._updater.updates, self.counters.raw_frames)
        if change.found is not None:
            self.counters.epoch = self._saver.claim_next()
            self._check_epoch()
            self._go_on_with_others()
            self._next_checkpoint = 0.0  # until it is saved, a learner that starts again forks again

    def _learn(self, ready: Any) -> None:
        self.clock.enter("h2d")
        batch = ready.wait()
        learners = 1 if self._in_step is None else self._in_step.learners
        self.counters.samples += self._config.batch_size * learners
        self.figures.lag(self._versions.ages(ready.policy_version), ready.policy_version)
        epoch, interval = self.counters.epoch, self._config.publish_interval
        self.clock.enter("update")
        if (recording := timeline.recording) is not None:
            for origin in ready.origins:
                recording.flow("f", origin)
        normalizer, due = self._updater.normalizer, not interval
        if normalizer is not None:
            normalizer.take(batch)
        for priorities, figures in self._updater.updates_from(batch, self._played[0]):
            self._versions.updates = self._updater.updates
            self._take_in(self._readback.push((ready, self._updater.updates), priorities, figures))
            if self.counters.epoch != epoch:
                break  # gone back to a checkpoint: the rest of this batch belongs to weights that were given up
            if interval and self._updater.updates % interval == 0:
                if normalizer is None:
                    self._publish()
                else:
                    due = True  # all updates from a batch see one normaliser, so that it waits for the last of them
            self._on_turn()
            self.clock.enter("update")
        self._follow()  # before actors play with weights that a fork gives up
        if due and self.counters.epoch == epoch:
            if normalizer is not None:
                normalizer.apply(self._updater.networks().values())
            self._publish()
            if normalizer is not None:  # publishing has waited for the device anyhow
                self.counters.left_out_batches = int(normalizer.left_out)
        self._source.give_back(ready)
        self.clock.enter("other")

    def _next(self) -> Any:
        self._look_around()
        self.clock.enter("wait")
        if self._in_step is not None and self._leads:
            self._in_step.counts = self.counters.steps, self.counters.raw_frames
        ready: Any = self._source.next(0.2)
        if self._in_step is not None and not self._leads:
            self.counters.steps, self.counters.raw_frames = self._in_step.counts
        if ready is not None:
            self._played = max(self._played, ready.played if self._in_step is None else self._in_step.counts)
            self.counters.played(*self._played)
        self.clock.enter("other")
        return ready

    def _look_around(self) -> None:
        self._on_turn()
        self._check_epoch()
        self._take_in(self._readback.arrived())
        self._housekeeping()

    def _check_epoch(self) -> None:
        if not self._leads:
            return  # its epoch is that of the first, which it hears of later than others may
        heard = max(self._saver.heard_epoch, self._server.heard_epoch, self._source.heard_epoch)
        if heard > self.counters.epoch:
            raise Superseded(
                f"a learner of epoch {heard} has begun after this one, of epoch {self.counters.epoch}, which ends here: "
                "one learner trains a job, and two jobs need two places in checkpoint.storage (subPath, prefix)"
            )

    def _prepare(self, stop: threading.Event) -> Any:
        """Wait for the first data; measure the mean frame where the input is centred, or a batch where it is normalised; publish
        the first version. The first batch to learn from, or None where ``stop`` came first."""
        begins, centred, normalizer = self.counters.version == 0, self._config.centred, self._updater.normalizer
        wanted = 0 if not begins else CENTRING_TRANSITIONS if centred else int(normalizer is not None)
        if self._source.needs_weights_first and begins and not wanted:
            self._updater.copy_online()
            self._publish()
        total, seen = torch.zeros((), dtype=torch.float64, device=self._updater.device), 0
        while not stop.is_set():
            ready = self._next()
            if ready is None:
                continue
            if seen < wanted:  # actors without weights give every transition the same priority: a uniform draw
                self.state = "WarmingUp"
                if normalizer is not None:
                    normalizer.take(ready.wait())
                if centred:
                    newest = ready.newest_frames().double()
                    total, seen = total + newest.sum(dim=0), seen + len(newest)
                else:
                    seen = wanted
                if seen >= wanted and self._source.needs_weights_first:
                    self._begin(total / seen)
                self._source.pass_over(ready)
                continue
            if self.counters.version == 0:
                self._begin(total / max(seen, 1))
            return ready
        return None

    def _begin(self, mean: torch.Tensor) -> None:
        """Publish the first version, with its running statistics, and with its ``mean`` frame where the input is centred."""
        if self._updater.normalizer is not None:
            self._updater.normalizer.apply([self._updater.online])
        if self._config.centred:
            self._updater.online.centre(mean.float())
        self._updater.copy_online()
        self._publish()

    def _take_in(self, arrived: Iterable[Arrived]) -> None:
        for (ready, update), priorities, figures in arrived:
            self._learned(ready, update, priorities, figures)

    def _learned(self, ready: Any, update: int, priorities: np.ndarray, figures: np.ndarray) -> None:
        self._source.learned(ready, priorities)
        loss, norm = float(figures[0]), float(figures[1])
        if math.isfinite(loss) and math.isfinite(norm):
            self.figures.learned(figures)
            return
        if self._updater.overflowed(figures):
            self.counters.skipped_updates += 1
            return
        self.counters.skipped_updates += 1
        what = f"update {update}: the loss is {loss} and its gradient's norm {norm}"
        if ":" in self._identity.algorithm:  # the user's own, which is where the user will look
            what += f"; finite numbers were expected of {short(self._identity.algorithm)}, function loss"
        if self._config.on_non_finite == "Ignore":
            log.warning("%s; the update was skipped (onNonFiniteLoss: Ignore)", what)
            return
        if self._config.on_non_finite == "RestoreAndContinue":
            self._saver.finish()
            found = checkpoint.latest_valid(self._config.checkpoint_directory)
            if found is not None:
                log.warning("%s; going back to %s (onNonFiniteLoss: RestoreAndContinue)", what, found.path.name)
                self.counters.epoch = self._saver.claim_next()
                self._check_epoch()
                self.resume(found)
                return
            what += ", and there is no checkpoint to restore"
        raise NonFiniteLoss(
            f"{what}; lower learningRate or gradientClipNorm, or set spec.earlyStopping.onNonFiniteLoss"
        )

    def _publish(self) -> None:
        self.clock.enter("publish")
        self.counters.version += 1
        now = time.monotonic()
        evaluation_weights = None
        if self._updater.evaluation is not None and now >= self._next_evaluation_weights:
            evaluation_weights = (
                self._updater.evaluation
            )  # an evaluation takes seconds; a copy a second is fresh enough for it
            self._next_evaluation_weights = now + EVALUATION_WEIGHTS_SECONDS
        params = self._identity.params
        meta = {
            **self.counters.document(self._updater.updates),
            "mean_return": self._mean_return,  # an evaluator may wait for a return worth judging
            "live": {name: getattr(params, name) for name in sorted(live_names(type(params)))},
        }
        if self._leads:
            self._server.publish(
                self._updater.acting, self.counters.version, self.counters.epoch, meta, evaluation_weights
            )
        self._versions.note(self.counters.version, self._updater.updates)
        self._source.published(self.counters.epoch)

    def _housekeeping(self) -> None:
        now = time.monotonic()
        self._save_if_due(now)
        if now < self._next_record:
            return
        self._next_record = now + self._config.record_seconds
        shards = self._source.statuses()
        if shards and self._leads:
            # Counted by the replay service over the whole run; never less than what a checkpoint knew.
            steps, raw_frames = steps_and_raw_frames(shards)
            self.counters.played(steps, raw_frames)
            self._mean_return = return_to_go_by(shards)
        for evaluation in self._server.evaluations():
            if self.verdicts.add(evaluation.verdict) and evaluation.weights is not None:
                self._save_best(evaluation.weights.state())
        self.figures.window(
            now,
            self.clock.seconds(),
            self._updater.updates,
            self.counters.steps,
            self.counters.raw_frames,
            shards,
            self._source.produced,
            self._source.consumed,
        )
        self._record(self.status())

    def _save_if_due(self, now: float) -> None:
        wanted = self._checkpoint_wanted
        asked = wanted != self._checkpoint_answered
        if (
            not self._leads
            or not (asked or now >= self._next_checkpoint)
            or self._updater.updates == 0
            or self._saver.busy
        ):
            return
        self.clock.enter("checkpoint")
        self._save(wait=False)
        self._checkpoint_answered = wanted
        self._next_checkpoint = now + self._config.checkpoint_interval_seconds
        self.clock.enter("other")

    def request_checkpoint(self, requested_unix: float) -> None:
        """Write a checkpoint soon, unless this very request was answered. From any thread; harmless to repeat.

        The time names the request and is compared with no clock here, which may differ from the clock of the process that asks.
        """
        self._checkpoint_wanted = requested_unix

    # ------------------------------------------------------------------------------------------- what others get to see

    def status(self) -> LearnerStatus:
        """What the learner says of itself now."""
        evaluating = self._server.evaluating
        return LearnerStatus(
            state=self.state,
            epoch=self.counters.epoch,
            updates=self._updater.updates,
            samples=self.counters.samples,
            steps=self.counters.steps,
            steps_total=self.counters.steps,
            raw_frames_total=self.counters.raw_frames,
            ready_batches=self._source.ready_batches,
            skipped_updates=self.counters.skipped_updates,
            left_out_batches=self.counters.left_out_batches,
            recompiles=self._updater.recompiles,
            resubscriptions=self._source.resubscriptions,
            following=self._course.following,
            scheduled=self._course.scheduled or None,
            fork=self._course.fork,
            learning_rate=self._updater.learning_rate.at(self._played[0]),
            **self.figures.section(
                self._source.statuses(),
                self.clock.seconds(),
                self.clock.device_seconds() if isinstance(self.clock, DeviceStageClock) else {},
                {} if evaluating is None else evaluating.process,
            ),
            **self._source.section(),
            weights=self._server.status(),
            evaluations=self.verdicts.newest,
            evaluating=evaluating,
            checkpoint=replace(self._saver.status, interval_seconds=self._config.checkpoint_interval_seconds),
            compiled=self._updater.compiled,
            captured=self._updater.replayed,
            refused_handshakes_total=refused_handshakes_total(),
            gpu={
                **self._gpu.figures(),
                **({"stages_of_wall": self.clock.of_wall()} if isinstance(self.clock, DeviceStageClock) else {}),
            },
            **self._surroundings,
        )

    def _manifest(self) -> dict[str, Any]:
        return {
            **self._identity.document(),
            "counters": self.counters.document(self._updater.updates),
            "counted": self._source.counted,
            "evaluations": self.verdicts.documents(),
            "torch": torch.__version__,
            "written_unix": time.time(),
            "requested_unix": self._checkpoint_wanted,  # the newest request that it answers, 0 before any
            STARTED_FROM: self._config.started_from,
            FORK: self._course.forked,
        }

    def _save(self, *, wait: bool) -> None:
        self._saver.save(self._updater.updates, state.capture(self._updater), self._manifest(), wait=wait)

    def _save_best(self, policy: dict[str, torch.Tensor]) -> None:
        tensors = {f"policy.{name}": tensor for name, tensor in policy.items()} | state.statistics(self._updater)
        self._saver.save_best(tensors, {**self._manifest(), "verdict": self.verdicts.documents()[-1]})
