"""What the parts of a job take on this machine, measured while the job itself trains here for a minute: with one actor, one
inference server where it has any, a replay that learning begins from soon, and an evaluator only after that minute, so that it
holds nothing up. Everything else is as in a run, processes and sockets among it.
"""

import asyncio
import contextlib
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil
from rljob.api import RLJob, parse_job
from rljob.api.load import written_job
from rljob.api.overrides import Override
from rljob.api.problems import ABSENT
from rljob.api.status_document import json_document
from rljob.child import Child
from rljob.envs.spec import EnvironmentSpec, handed_over
from rljob.errors import UsageError
from rljob.experience import transition_layout
from rljob.experience.columns import Rows
from rljob.telemetry.bottleneck import busy_share
from rljob.telemetry.flat_figures import mean_figures, stage_fractions
from rljob.telemetry.process import Threads, core_wait_seconds, cpu_seconds, thread_times
from rljob.telemetry.recorder import METRICS_FILE, read_records
from rljob.telemetry.sizing import computed, inference_servers, pipeline, with_a_core
from rljob.threads import usable_cores

from rljob_operator.local.experiment_runs import gone_on
from rljob_operator.local.job_view import metrics_urls, running_members
from rljob_operator.local.log_files import tail
from rljob_operator.local.other_load import OtherLoad
from rljob_operator.local.spec_store import SpecStore
from rljob_operator.polls.reach import Direct, NoAnswer

SETTLING_SECONDS: Final = 10.0
"""After the first update: caches fill, first chunks are looked at, and what processes take is no longer that of their start."""
LEAST_SECONDS: Final = 10.0
"""Shorter a measurement says little."""
_FILLS: Final = 20
"""The replay holds so many times what learning begins from: the whole capacity may be more than this machine has memory for."""
JUDGING_SECONDS: Final = 8.0
"""So long an evaluator is watched while it plays."""
_MOST_STEP_SECONDS: Final = 60.0
"""In which an evaluator takes a step, from the moment at which it is to be started."""
_NOT_OF_A_PRESET: Final = ("evaluator.triggerReturn", "successPolicy.targetReturn")
"""A null in a manifest leaves what its preset says; an evaluator plays at once, and ends nothing."""
_ROLES: Final = ("actor", "learner", "replay", "inference")
_PEAK: Final = "import re, {}; print(re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read())[1])"
"""Prints the most memory that a process had which imports these, in KiB. A parent's wait would be told of its own as well."""


def calibrate(written: Mapping[str, Any], seconds: float, say: Callable[[str], None]) -> tuple[dict[str, float], str]:
    """Train the job ``written`` for at most ``seconds`` and answer what its parts took (`rljob.telemetry.sizing.NUMBERS`), and
    who else took this machine's cores meanwhile, in words, empty where none did.

    Raises ManifestError, or UsageError where the run fails or has not learned long enough within that time.
    """
    job = parse_job(written)
    short = written_job(written, _overrides(job))
    parse_job(short)
    served = inference_servers(job) > 0
    with tempfile.TemporaryDirectory(prefix="rljob-size-") as temporary:
        folder = Path(temporary) / "run"
        SpecStore(folder).create(short)
        with (Path(temporary) / "output").open("wb") as output:
            run = gone_on(folder, 1, output)
        try:
            say(f"calibrating for up to {seconds:.0f} s: the job trains here with one actor")
            figures, others = _watched(run, folder, seconds, served)
            told = {name: _status(folder, name) for name in ("actor-0", "learner")}
            memory = {name: _resident_bytes(pid) for name, pid in running_members(folder).items()}
            if job.spec.evaluator.enabled:
                say("and its evaluator plays")
                figures |= _judging(run, folder)
                memory["evaluator"] = _resident_bytes(running_members(folder)["evaluator"])
            if sum(memory.get("replay-0", ())[1:]):
                memory["redis-start"] = _redis_start_bytes()
            environment = handed_over(folder, job.spec.environment)
        except (NoAnswer, ValueError, KeyError) as problem:
            raise UsageError(f"a member did not answer while the job was calibrated: {problem}") from None
        finally:
            run.leave()  # which asks it to end in good order, as would the end of this process; ...
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.wait(SETTLING_SECONDS)
            run.terminate()  # ... and this, to end at once: nothing of it is kept
            run.wait()
    assert environment is not None, "a run that trains has handed it over"
    return measured(job, environment, figures, told, memory), others


def _overrides(job: RLJob) -> list[Override]:
    """What is different from the job as it would run."""
    spec = job.spec
    wanted: dict[str, Any] = {
        "presetWithout": [*spec.preset_without, *_NOT_OF_A_PRESET] if spec.preset is not None else [],
        **{"suspend": False, "activeDeadlineSeconds": ABSENT, "tracking": ABSENT},
        **{"evaluator.enabled": False, "evaluator.triggerReturn": ABSENT, "evaluator.resources.requests.cpu": 1},
        **{"successPolicy.targetReturn": ABSENT, "successPolicy.metric": ABSENT, "successPolicy.rawFrames": 10**12},
        **{f"earlyStopping.{rule}": ABSENT for rule in ("plateau", "trainingReturn", "valueLoss")},
        **{"autoscaling.mode": "Disabled", "actors.replicas": 1, "learner.processes": 1},
    }
    if "cpu" in spec.evaluator.resources.limits:
        wanted["evaluator.resources.limits.cpu"] = 1  # it has a process for each of its cores
    if inference_servers(job):
        wanted["inference.replicas"] = 1
    if spec.algorithm.type != "Custom" and spec.algorithm.parameters.compile is None:
        # A pod of the worker image has no compiler.
        wanted["algorithm.compile"] = False
    if spec.replay is not None:
        replay, parameters = spec.replay.resolved(), spec.algorithm.parameters
        chunks = getattr(parameters, "chunk_length", 1) * spec.actors.envs_per_actor
        least = min(replay.min_size, max(getattr(parameters, "batch_size", 1), 2 * chunks))
        wanted |= {
            "replay.rateLimiter.minSize": least,
            "replay.rateLimiter.errorBuffer": replay.error_buffer,
            "replay.capacity": min(replay.capacity, max(_FILLS * least, chunks)),
            "replay.shards": 1,
        }
    return [*wanted.items()]


def _watched(run: Child, folder: Path, seconds: float, served: bool) -> tuple[dict[str, float], str]:
    """The mean figures of the run while it trained and had settled, ``seconds`` from now; and the load of others meanwhile.
    ``served``: with those of an inference server of its own, which a learner does not record."""
    deadline, learning = time.monotonic() + seconds, math.inf
    while time.monotonic() < min(deadline - LEAST_SECONDS, learning + SETTLING_SECONDS):
        _check_running(run, folder)
        if learning == math.inf and (points := _points(folder)) and points[-1].get("updates"):
            learning = time.monotonic()
        time.sleep(0.2)
    before, others = _points(folder), OtherLoad(0.0)
    if time.monotonic() < learning + SETTLING_SECONDS:
        raise UsageError(
            f"after {seconds - LEAST_SECONDS:.0f} s the job had not learned for {SETTLING_SECONDS:.0f} s, so nothing can "
            "be measured; give it more --seconds, or numbers of another machine with --calibration"
        )
    serving = _reading(folder, "inference-0") if served else None
    time.sleep(max(0.0, deadline - time.monotonic()))
    figures = mean_figures(_points(folder)[len(before) :], before[-1]["elapsed_seconds"])
    if serving is not None:
        figures |= _between(serving, _reading(folder, "inference-0"), "inference")
    return figures, others.words()


def _judging(run: Child, folder: Path) -> dict[str, float]:
    """The figures of an evaluator that plays from now on. Raises UsageError where it does not."""
    SpecStore(folder).edit(lambda document: document["spec"]["evaluator"].update(enabled=True))
    _await_steps(run, folder, 0)
    before = _reading(folder, "evaluator")
    time.sleep(JUDGING_SECONDS)
    _await_steps(run, folder, before.steps)
    after = _reading(folder, "evaluator")
    return _between(before, after, "evaluator") | {
        "judged_steps_per_second": (after.steps - before.steps) / (after.at - before.at)
    }


def _await_steps(run: Child, folder: Path, steps: int) -> None:
    """Wait until the evaluator has played more than so many steps. Raises UsageError where it does not."""
    deadline = time.monotonic() + _MOST_STEP_SECONDS
    while _status(folder, "evaluator").get("steps_total", 0) <= steps:
        _check_running(run, folder)
        if time.monotonic() > deadline:
            raise UsageError(
                f"the evaluator has not played a step within {_MOST_STEP_SECONDS:.0f} s, so it can't be measured; "
                "calibrate without it: --set spec.evaluator.enabled=false"
            )
        time.sleep(0.2)


def _check_running(run: Child, folder: Path) -> None:
    """Raises UsageError where the run has ended."""
    if run.poll() is not None:
        raise UsageError(f"the job ended while it was calibrated: {'; '.join(tail(folder.with_name('output'), 3))}")


@dataclass(frozen=True, slots=True)
class _Reading:
    """A member at a moment: seconds in each stage, steps of games that it judged, and what its threads have computed."""

    at: float
    stages: Mapping[str, float]
    steps: int
    cpu_seconds: float
    threads: Threads


def _status(folder: Path, name: str) -> dict[str, Any]:
    """What a member says; nothing while it has announced no address. Raises NoAnswer, or ValueError for no document."""
    urls = metrics_urls(folder, [name])
    return json_document(asyncio.run(Direct(LEAST_SECONDS).read(urls[name], "status"))) if urls else {}


def _reading(folder: Path, name: str) -> _Reading:
    status, pid = _status(folder, name), running_members(folder)[name]
    return _Reading(
        time.monotonic(), status["stages"], status.get("steps_total", 0), cpu_seconds(pid), thread_times(pid)
    )


def _between(before: _Reading, after: _Reading, role: str) -> dict[str, float]:
    """The figures of a role's one member between two moments, as a learner records them."""
    elapsed = after.at - before.at
    shares = stage_fractions({role: after.stages}, {role: before.stages}).get(role, {})
    return {
        **{f"stage/{role}/{stage}": share for stage, share in shares.items()},
        f"processes/{role}/cpu_cores": (after.cpu_seconds - before.cpu_seconds) / elapsed,
        f"processes/{role}/core_wait_cores": core_wait_seconds(before.threads, after.threads) / elapsed,
    }


def _points(folder: Path) -> list[dict[str, Any]]:
    """The learner's records of figures so far."""
    file = folder / METRICS_FILE
    return [record for record in read_records(file) if "kind" not in record] if file.exists() else []


def _resident_bytes(pid: int) -> tuple[float, float]:
    """The resident memory of a process, and of those below it."""
    process = psutil.Process(pid)
    own, *below = (float(each.memory_info().rss) for each in (process, *process.children(recursive=True)))
    return own, sum(below)


def _redis_start_bytes() -> tuple[float, float]:
    """The resident memory of what becomes the Redis beside a shard in a pod, and of its probe (``rljob.replay.redis_server``),
    which is in the same container while the server starts."""
    starts, probes = (
        1024.0
        * int(subprocess.run([sys.executable, "-P", "-c", _PEAK.format(each)], capture_output=True, check=True).stdout)
        for each in ("rljob.replay.embedded_redis", "rljob.replay.redis_server")
    )
    return starts, probes


def measured(
    job: RLJob,
    environment: EnvironmentSpec,
    figures: Mapping[str, float],
    told: Mapping[str, Mapping[str, Any]],
    memory: Mapping[str, tuple[float, float]],
) -> dict[str, float]:
    """The numbers, from the run's mean figures, what its actor and learner tell at the end, and resident bytes of each member
    and of what is below it. Raises UsageError where nothing was learned."""
    parts, updates = pipeline(figures), figures.get("updates_per_second", 0.0)
    if parts is None or not updates:
        raise UsageError("nothing was learned while the job was calibrated; give it more --seconds")
    rate, (actor, learner) = figures["steps_per_second"], (told["actor-0"], told["learner"])
    per_step = updates / rate
    if job.spec.replay is not None and (ratio := job.spec.replay.resolved().samples_per_insert):
        per_step = (
            ratio / job.spec.algorithm.parameters.batch_size
        )  # the limiter's band lets either side run ahead for a while
    acting = parts.actor_seconds / (1 - figures["stage/actor/blocked"])
    learning = parts.learner_seconds * rate / updates  # seconds of an update, with all that comes beside it
    work = {
        "actor": parts.actor_seconds,
        "learner": parts.learner_seconds,
        "replay": parts.shard_seconds(1),
        "inference": parts.serving_seconds,
    }
    judged = figures.get("judged_steps_per_second", 0.0)
    judging = with_a_core(figures, "evaluator", busy_share(figures, "evaluator")) / judged if judged else 0.0
    cores = {role: computed(figures, role) / (rate * work[role]) if work[role] else 0.0 for role in _ROLES}
    store, (replay, redis) = learner.get("replay") or {}, memory.get("replay-0", (0.0, 0.0))
    return {
        "cores": float(usable_cores()),
        "actor_seconds": parts.actor_seconds,
        "env_seconds": acting * figures["stage/actor/env"],
        "acting_seconds": acting * figures["stage/actor/infer"],
        "actor_cores": cores["actor"],
        "update_seconds": learning * figures["stage/learner/update"] / (1 - figures["stage/learner/wait"]),
        "updates_per_step": per_step,
        "learner_seconds": learning * per_step,
        "learner_cores": cores["learner"],
        "replay_seconds": parts.replay_seconds,
        "drawing_seconds": parts.drawing_seconds,
        "replay_cores": cores["replay"],
        "inference_seconds": parts.serving_seconds,
        "inference_cores": cores["inference"],
        "judging_seconds": judging,
        "overlap": parts.overlap,
        "step_bytes": actor["bytes_encoded"] / max(1, actor["produced"]),
        "weights_bytes_per_update": learner["weights"]["sent_bytes_total"] / learner["updates"],
        "stored_bytes": store.get("bytes", 0.0) / max(1.0, store.get("items", 0.0)),
        "mirror_bytes": _mirror_bytes(job, environment),
        "stored_transitions": store.get("items", 0.0),
        "actor_memory_bytes": sum(memory["actor-0"]),
        "learner_memory_bytes": sum(memory["learner"]),
        "replay_memory_bytes": replay,
        "redis_memory_bytes": redis,
        "redis_start_memory_bytes": memory.get("redis-start", (0.0, 0.0))[0],
        "redis_probe_memory_bytes": memory.get("redis-start", (0.0, 0.0))[1],
        "inference_memory_bytes": sum(memory.get("inference-0", ())),
        "evaluator_memory_bytes": sum(memory.get("evaluator", ())),
    }


def _mirror_bytes(job: RLJob, environment: EnvironmentSpec) -> float:
    """Bytes that the learner's mirror of the replay has for a transition: its frames, each once, and its other columns."""
    if job.spec.replay is None:
        return 0.0
    parameters: Any = job.spec.algorithm.parameters
    layout = transition_layout(parameters.chunk_length, environment.columns, parameters.n_step)
    frames = (layout.length + layout.stack - 1 + layout.n_step) / layout.length
    columns = (each.dtype.itemsize * math.prod(each.shape) for each in layout.columns if each.rows is Rows.STEPS)
    return float(frames * layout.row_bytes + sum(columns))
