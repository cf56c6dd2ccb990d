"""`rljob run --deterministic`: two real runs of a job end with the same weights, to the byte, whatever else the machine does."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rljob.checkpoints import store
from rljob.replay.embedded_redis import with_parent_death_signal

from tests.support.local_run import LocalRun

JOB = """
apiVersion: rljob.dev/v1alpha1
kind: RLJob
metadata: {{name: again}}
spec:
  environment: {{id: {environment}}}
  algorithm: {{type: {algorithm}, hiddenUnits: 32, learningRateFinal: 0, learningRateDecaySteps: {frames}, {parameters}}}
  evaluator: {{enabled: false}}
  successPolicy: {{rawFrames: {frames}}}
"""
PPO = JOB.format(environment="CartPole-v1", algorithm="PPO", frames=6000, parameters="unrollLength: 32, batchSize: 16")
SAC = JOB.format(environment="Pendulum-v1", algorithm="SAC", frames=900, parameters="batchSize: 32")
SAC += """  replay: {rateLimiter: {minSize: 300}, capacity: 10000}
  schedule: [{afterRawFrames: 600, set: {algorithm.gradientClipNorm: 1.0}}]
"""


@pytest.mark.long
@pytest.mark.parametrize(("job", "otherwise"), [(PPO, ("--set", "seed=7", "--deterministic")), (SAC, ())])
def test_two_runs_end_with_the_same_weights(
    local_run: Callable[..., LocalRun], tmp_path: Path, job: str, otherwise: tuple[str, ...]
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(job)

    def learned(name: str, *options: str) -> tuple[int, dict[str, bytes]]:
        run = local_run(*options, job=file, run_dir=tmp_path / name)
        assert run.finish(240) == 0, f"{run.output}{run.logs()}"
        found = store.latest_valid(run.run_dir / "checkpoints")
        assert found is not None
        tensors = {name: tensor.numpy().tobytes() for name, tensor in found.tensors.items()}
        return int(found.manifest["counters"]["updates"]), tensors

    first = learned("first", "--deterministic")
    busy = subprocess.Popen(with_parent_death_signal([sys.executable, "-c", "while True: pass"]))
    try:
        again = learned("again", "--deterministic")
    finally:
        busy.kill()
        busy.wait()
    assert again[0] == first[0] > 0, "the last update is the same"
    assert again[1] == first[1]
    assert learned("otherwise", *otherwise)[1] != first[1], "it is not the job alone that makes them equal"
