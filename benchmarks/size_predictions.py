"""What `rljob size` predicts of a job, beside what the job then takes: steps a second, memory, network, the stored bytes.

    python -m benchmarks.size_predictions [--jobs cartpole-ppo cartpole-apex pong-vtrace] [--seconds 60]
    python -m benchmarks.size_predictions --jobs pong-central --set spec.inference.replicas=1

Each job is calibrated for ``--calibration-seconds`` and then trains as it is written (with ``--actors`` of them, where given)
for ``--seconds`` after it has settled, with ``compile: false``, as in a pod of the worker image; then its evaluator plays for
``JUDGING_SECONDS`` beside it. Memory is compared at the number of transitions that the replay then holds. One JSON line a
figure, with its relative error; and the machine with who else used it. On a machine that others use, steps a second of CPU say
more than those of time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from rljob.api import RLJob, load_manifest
from rljob.telemetry.process import cpu_seconds
from rljob.telemetry.sizing import Measured, parts, sizing
from rljob_operator.local.job_view import running_members
from rljob_operator.local.other_load import OtherLoad
from rljob_operator.local.spec_store import SpecStore

from benchmarks.common import machine, report
from tests.support.local_run import ENDLESS, LocalRun
from tests.support.paths import EXAMPLES
from tests.support.waiting import eventually

JOBS = ("cartpole-ppo", "cartpole-apex", "pong-vtrace")
SETTLING_SECONDS = 8.0
JUDGING_SECONDS = 20.0


def calibrated(file: Path, sets: list[str], seconds: float) -> tuple[Measured, str]:
    """The numbers of `rljob size`, and what it says of others on this machine."""
    command = [sys.executable, "-m", "rljob_operator", "size", str(file), "--json", "--seconds", str(seconds)]
    command += [word for item in sets for word in ("--set", item)]
    document = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return document["calibration"], document["busy"]


def measured(file: Path, job: RLJob, given: list[str], actors: int, seconds: float) -> dict[str, float]:
    """What the job takes: means over ``seconds``, memory at their end."""
    with tempfile.TemporaryDirectory(prefix="size-predictions-") as folder:
        sets = [
            *given,
            f"spec.actors.replicas={actors}",
            "spec.algorithm.compile=false",
        ]
        if job.spec.preset is not None:
            sets.append("spec.presetWithout=[evaluator.triggerReturn, successPolicy.targetReturn]")
        words = [word for item in (*sets, "spec.successPolicy.rawFrames=1000000000000") for word in ("--set", item)]
        running = LocalRun(file, Path(folder) / "run", *ENDLESS, *words)
        try:
            running.until_learning(updates=1)
            time.sleep(SETTLING_SECONDS)
            before, others = _moment(running, actors), OtherLoad(0.0)
            time.sleep(seconds)
            report("size_predictions_others", busy=others.words())
            after = _moment(running, actors)
            memory = {name: _resident(pid) for name, pid in running_members(running.run_dir).items()}
            store = running.status("replay-0")
            if job.spec.evaluator.enabled:
                SpecStore(running.run_dir).edit(lambda document: document["spec"]["evaluator"].update(enabled=True))
                eventually(lambda: running.status("evaluator").get("steps_total"), "the evaluator did not play")
                time.sleep(JUDGING_SECONDS)
                memory["evaluator"] = _resident(running_members(running.run_dir)["evaluator"])
        finally:
            running.close()
    passed = {name: after[name] - before[name] for name in after}
    return {
        "steps_per_second": passed["steps"] / passed["time"],
        "steps_per_cpu_second": passed["steps"] / passed["cpu"],
        "updates_per_second": passed["updates"] / passed["time"],
        "network_in_bytes": passed["bytes"] / passed["time"],
        "network_out_bytes": passed["weights"] / passed["time"],
        "learner_memory_bytes": memory["learner"][0],
        "actors_memory_bytes": memory["actor-0"][0],
        "replay_memory_bytes": memory["replay-0"][0] if store else 0.0,
        "inference_memory_bytes": sum(memory.get("inference-0", ())),
        "evaluator_memory_bytes": sum(memory.get("evaluator", ())),
        "stored_transitions": float(store.get("items", 0)),
        "replay_bytes": float(store.get("bytes", 0)),
    }


def _moment(running: LocalRun, actors: int) -> dict[str, float]:
    playing = [running.status(f"actor-{number}") for number in range(actors)]
    learner = running.status("learner")
    return {
        "cpu": sum(map(cpu_seconds, running_members(running.run_dir).values())),
        "time": time.monotonic(),
        "steps": sum(each["steps"] for each in playing),
        "bytes": sum(each["bytes_encoded"] for each in playing),
        "updates": learner["updates"],
        "weights": learner["weights"]["sent_bytes_total"],
    }


def _resident(pid: int) -> tuple[float, float]:
    """The resident memory of a process, and of those below it."""
    process = psutil.Process(pid)
    return float(process.memory_info().rss), float(
        sum(each.memory_info().rss for each in process.children(recursive=True))
    )


def predicted(file: Path, given: list[str], numbers: Measured, actors: int, stored: float) -> dict[str, float]:
    """The same figures as `rljob size` computes them, for so many actors and what was stored."""
    sets = [*given, f"spec.actors.replicas={actors}"]
    if stored:  # what the replay held is compared, which may be less than what a chunk for each environment asks for
        sets.append(f"spec.replay.capacity={int(stored)}")
    job = load_manifest(file, sets)
    found = sizing(job, numbers)
    per_step = found["here_steps_per_second"] * numbers["updates_per_step"]
    roles = found["roles"]
    return {
        "steps_per_second": found["here_steps_per_second"],
        "steps_per_cpu_second": 1 / parts(numbers).cpu_seconds,
        "updates_per_second": per_step,
        "network_in_bytes": found["here_steps_per_second"] * numbers["step_bytes"],
        "network_out_bytes": per_step * numbers["weights_bytes_per_update"] * actors,
        "learner_memory_bytes": roles["learner"]["memory_bytes"],
        "actors_memory_bytes": roles["actors"]["memory_bytes"],
        "replay_memory_bytes": roles["replay"]["memory_bytes"] if "replay" in roles else 0.0,
        "inference_memory_bytes": roles["inference"]["memory_bytes"] if "inference" in roles else 0.0,
        "evaluator_memory_bytes": roles["evaluator"]["memory_bytes"] if "evaluator" in roles else 0.0,
        "replay_bytes": found["replay_bytes"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", nargs="+", default=list(JOBS))
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--actors", type=int, nargs="+", default=[0], help="0: as the manifest says")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--calibration-seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    report("size_predictions_machine", machine=machine())
    for name in arguments.jobs:
        file = EXAMPLES / f"{name}.yaml"
        job = load_manifest(file, arguments.sets)
        numbers, busy = calibrated(file, arguments.sets, arguments.calibration_seconds)
        report(
            "size_predictions_calibration",
            job=name,
            busy=busy,
            knee=sizing(job, numbers)["knee"],
            overlap=numbers["overlap"],
        )
        for asked in arguments.actors:
            actors: int = asked or job.spec.requested_actors
            took = measured(file, job, arguments.sets, actors, arguments.seconds)
            stored = took.pop("stored_transitions")
            said: dict[str, Any] = predicted(file, arguments.sets, numbers, actors, stored)
            for figure, value in took.items():
                if value or said[figure]:
                    error = said[figure] / value - 1 if value else None
                    report(
                        "size_predictions",
                        job=name,
                        actors=actors,
                        figure=figure,
                        predicted=said[figure],
                        measured=value,
                        error=error,
                    )


if __name__ == "__main__":
    main()
