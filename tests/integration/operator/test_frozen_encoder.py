"""`rljob run` behind a frozen encoder: features travel as unrolls and as chunks, are learned from, scored and played with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import rljob
from rljob.policy.export import export

from tests.support.local_run import LocalRun
from tests.support.paths import EXAMPLES
from tests.support.untrained import untrained

pytestmark = [pytest.mark.timeout(400), pytest.mark.long]

PICTURES = "spec.environment.id=tests.support.toys:Pictures"


@pytest.mark.parametrize("job", ["cartpole-ppo", "cartpole-apex"])
def test_features_are_recorded_learned_from_and_judged(
    job: str, local_run: Callable[..., LocalRun], tmp_path: Path
) -> None:
    of_pixels = rljob.load_policy(untrained(tmp_path / "pixels", "cartpole-ppo.yaml", PICTURES))
    file = tmp_path / "encoder.safetensors"
    shutil.copy(export(of_pixels, "safetensors", tmp_path).file, file)
    sets = [PICTURES, f"spec.environment.encoder.file={file}", "spec.evaluator={episodes: 2, intervalSeconds: 1}"]
    sets += ["spec.successPolicy={rawFrames: 1000000}", "spec.checkpoint.intervalSeconds=1"]
    run = local_run(*(word for each in sets for word in ("--set", each)), job=EXAMPLES / f"{job}.yaml")
    run.until_learning(2)
    run.until((run.run_dir / "checkpoints" / "best" / "manifest.json").exists, 120, "a judged policy")
    run.interrupt()
    policy = rljob.load_policy(run.run_dir)
    observation, _ = policy.environment().reset(seed=1)
    assert (observation.dtype, observation.shape) == (np.float16, policy.observation_shape)
    assert policy.act(observation[None]).shape == (1,)
    file.write_bytes(file.read_bytes()[:-4] + b"\x00\x00\x80\x3f")  # one weight is another
    code, printed = run.verb("run", str(run.run_dir / "job.yaml"), "--run-dir", str(run.run_dir), "--resume")
    assert code == 1
    assert "was learned behind the encoder with sha256" in printed
    assert json.loads((run.run_dir / "outcome.json").read_text())["reason"] == "FailurePolicyRule"
