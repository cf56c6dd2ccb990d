"""What users write themselves, in real runs: algorithms, networks and environments that are files beside a manifest."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.documents import write_environment, write_example, write_package
from tests.support.local_run import ENDLESS, LocalRun
from tests.support.paths import PLUGINS

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


def test_quantile_regression_trains_and_its_checkpoint_is_a_policy(local_run: Callable[..., LocalRun]) -> None:
    run = local_run(*ENDLESS, "--set", "spec.checkpoint.intervalSeconds=2", job=PLUGINS / "cartpole-qr-dqn.yaml")
    run.until_learning(100)
    run.until(lambda: run.status("actor-0").get("policy_version", 0) > 1, 60, "weights at the actor")
    spread = "quantile_spread"  # what its loss measures is reported, from the first record on
    status = run.until(lambda: (s := run.status("learner")).get(spread) is not None and s, 60, spread)
    assert status[spread] > 0.0
    assert status["batch_size"] == 128
    assert run.interrupt() == 130
    records = [json.loads(line) for line in (run.run_dir / "metrics.jsonl").read_text().splitlines()]
    assert any(spread in json.dumps(record) for record in records)
    run.answer("eval", str(run.run_dir), "--episodes", "2", said="over 2 episodes")


def test_td3_of_the_examples_learns_pendulum(local_run: Callable[..., LocalRun]) -> None:
    run = local_run("--set", "spec.evaluator.episodes=20", job=PLUGINS / "td3-pendulum.yaml")
    assert run.finish(500) == 0, run.output + run.logs()
    assert json.loads((run.run_dir / "outcome.json").read_text())["reason"] == "TargetReturnReached", run.output
    assert "best" in {path.name for path in (run.run_dir / "checkpoints").iterdir()}
    said = run.answer("eval", str(run.run_dir), "--episodes", "20", "--json")
    assert json.loads(said.splitlines()[-1])["mean"] > -260.0


@pytest.mark.parametrize("inference", ["Local", "Central"])
def test_a_residual_network_trains_on_pong(local_run: Callable[..., LocalRun], inference: str) -> None:
    small = ["networkParameters.channels=[4,8]", "unrollLength=16", "batchSize=4", "minibatches=1", "epochs=1"]
    small += ["impala.weightsRefreshSteps=1", "impala.unrollQueue.capacity="]
    changes = [f"spec.algorithm.{change}" for change in small]
    changes += [f"spec.actors.inference={inference}", "spec.actors.envsPerActor=4"]
    options = [word for change in changes for word in ("--set", change)]
    run = local_run(*ENDLESS, *options, job=PLUGINS / "pong-impala-resnet.yaml")
    assert run.until_learning(5) >= 5
    run.until(lambda: run.status("actor-0").get("policy_version", 0) > 1, 60, "acting with its weights")
    assert run.interrupt() == 130


def test_an_environment_in_a_file_with_wrappers_of_its_own(local_run: Callable[..., LocalRun], tmp_path: Path) -> None:
    (tmp_path / "my_game.py").write_text(
        "import gymnasium\n\n\n"
        "class Doubled(gymnasium.RewardWrapper):\n"
        "    def reward(self, reward):\n        return 2.0 * reward\n\n\n"
        "def make(steps: int = 10, render_mode: str | None = None) -> gymnasium.Env:\n"
        "    game = gymnasium.make('CartPole-v1', render_mode=render_mode).unwrapped\n"
        "    return Doubled(gymnasium.wrappers.TimeLimit(game, steps))\n"
    )
    job = tmp_path / "my-game.yaml"
    job.write_text(
        "apiVersion: rljob.dev/v1alpha1\nkind: RLJob\nmetadata: {name: my-game}\nspec:\n"
        "  preset: CartPoleApeX\n"
        "  environment: {id: my_game.py:make, kwargs: {steps: 7}, backend: Async}\n"
        "  successPolicy: {rawFrames: 1000000000}\n"
    )
    run = local_run(*ENDLESS, job=job)
    run.until_learning(50)
    assert run.interrupt() == 130
    run.answer("eval", str(run.run_dir), "--episodes", "3", "--epsilon", "0", said="14 to 14")


def test_the_pages_environment_trains_to_its_target(local_run: Callable[..., LocalRun], tmp_path: Path) -> None:
    run = local_run(job=write_environment(tmp_path))
    assert run.finish(300) == 0, run.output + run.logs()
    assert run.reason("Complete") == "TargetReturnReached"


def test_a_simulator_in_torch_trains_to_its_target(local_run: Callable[..., LocalRun]) -> None:
    """On the CPU, the way that it goes on a GPU: whole unrolls leave the device that the actor acts on."""
    sooner = ("successPolicy.targetReturn.value=80", "evaluator.triggerReturn=60", "evaluator.episodes=10")
    options = [word for change in sooner for word in ("--set", f"spec.{change}")]
    run = local_run(*options, job=PLUGINS / "cartpole-torch.yaml")
    assert run.finish(300) == 0, run.output + run.logs()
    assert run.reason("Complete") == "TargetReturnReached"
    assert "preset CartPoleIMPALA is of CartPole-v1" in run.output, "at the start, with what of it does not count here"
    logs = [log.read_text() for log in (run.run_dir / "logs").glob("actor-0*.log")]
    assert any(re.search(r"acting with weights, version \d+, on cpu", log) for log in logs), run.logs()


def test_an_environment_of_an_installed_package_trains(
    local_run: Callable[..., LocalRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its wrappers, in this process's roles and in those of its environments. What it was installed from is gone."""
    source, site = tmp_path / "corridor", tmp_path / "site"
    source.mkdir()
    write_package(source)
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--no-index", "--target"]
    subprocess.run([*pip, str(site), str(source)], check=True, capture_output=True, timeout=120)
    job = tmp_path / "job.yaml"
    job.write_text((source / "corridor.yaml").read_text().replace("corridor.py:make", "corridor:make"))
    shutil.rmtree(source)
    monkeypatch.setenv("PYTHONPATH", str(site))
    shorter = ["--set", "spec.environment.kwargs.length=4", "--set", "spec.environment.backend=Async"]
    run = local_run(*ENDLESS, *shorter, job=job)
    run.until_learning(50)
    run.until(lambda: run.status("actor-0").get("policy_version", 0) > 1, 60, "weights at the actor")
    assert run.interrupt() == 130
    run.answer("eval", str(run.run_dir), "--episodes", "3", "--epsilon", "1")
    assert "corridor:make" in (run.run_dir / "report.html").read_text()


def edited(folder: Path, *changes: tuple[str, str], write: Callable[[Path], Path] = write_example) -> Path:
    """The page's example, or what else ``write`` writes, with changes of its code; answers the manifest."""
    job = write(folder)
    file = job.with_suffix(".py")
    code = file.read_text()
    for old, new in changes:
        assert old in code
        code = code.replace(old, new)
    file.write_text(code)
    return job


TAKEN = "        taken = online("


def where(condition: str, does: str) -> tuple[str, str]:
    """A change of the example, whose loss does something where ``condition`` holds of the number of its calls and the batch."""
    count = "        SoftQ.calls = getattr(SoftQ, 'calls', 0) + 1\n"
    return TAKEN, f"{count}        if {condition}:\n            {does}\n{TAKEN}"


LATE = "SoftQ.calls > 30"
NAN = "(batch.weight * each).mean()"
ONCE = ("--set", "spec.backoffLimit=0")
CENTRAL = ("--set", "spec.actors.inference=Central", "--set", "spec.inference.replicas=1")
OF_EACH_PROCESS = (
    ("import torch\n", "import os\n\nimport torch\n"),
    ("hidden_units, env_params)\n", "hidden_units + os.getpid() % 1000, env_params)\n"),
)
ANOTHER = (
    r"the job: weights version \d+ are of another network: dense.0.weight: expected float32 \[\d+, 4\], got f",
    r"build \(or a network's factory\) has to give the same network in every process",
)
FULL = "raise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 20.00 GiB. And more.')"


@pytest.mark.parametrize(
    ("changes", "options", "reason", "said"),
    [
        ((where(LATE, "raise KeyError('late')"),), ONCE, "BackoffLimitExceeded", ("in loss: KeyError: 'late'",)),
        ((where(LATE, "exit(0)"),), ONCE, "BackoffLimitExceeded", ("in loss: SystemExit: 0",)),
        (
            (where("False", "pass"), (NAN, f"{NAN} * (1.0 if SoftQ.calls < 30 else torch.nan)")),
            (),
            "",
            ("the loss is nan", "finite numbers were expected of soft_q.py:SoftQ, function loss"),
        ),
        (OF_EACH_PROCESS, (), "FailurePolicyRule", ANOTHER),
        (OF_EACH_PROCESS, CENTRAL, "FailurePolicyRule", ANOTHER),
        (
            (where("len(batch.action) > 20", FULL),),
            (),
            "FailurePolicyRule",
            (
                r"the learner's device is out of memory: write a smaller batchSize \(now ",
                "torch says: CUDA out of memory. Tried to allocate 20.00 GiB",
            ),
        ),
        # What fitted once may fit again, as often as the job allows. Trials of ways to compute are fewer than 300.
        (
            (where("len(batch.action) > 20 and SoftQ.calls > 300", FULL),),
            ONCE,
            "BackoffLimitExceeded",
            ("out of memory",),
        ),
    ],
    ids=["raises", "exits", "nan", "another network", "another network, central", "never fits", "fits no more"],
)
def test_a_run_that_fails_names_what_its_author_can_change(
    local_run: Callable[..., LocalRun],
    tmp_path: Path,
    changes: tuple[tuple[str, str], ...],
    options: tuple[str, ...],
    reason: str,
    said: tuple[str, ...],
) -> None:
    run = local_run(*ENDLESS, *options, job=edited(tmp_path, *changes))
    assert run.finish(120) == 1, run.output
    assert reason in run.reason("Failed")
    for words in said:
        assert re.search(words, run.output), run.output
    assert "Traceback" not in run.output + (run.run_dir / "logs" / "learner.log").read_text()


def test_an_environment_that_gives_nan_is_named_with_the_function(
    local_run: Callable[..., LocalRun], tmp_path: Path
) -> None:
    late = "self.steps = getattr(self, 'steps', 0) + 1\n        cost = -1.0 if self.steps < 300 else float('nan')\n"
    given = "        return self.seen(), -1.0,"
    job = edited(tmp_path, (given, f"        {late}        return self.seen(), cost,"), write=write_environment)
    run = local_run(*ENDLESS, *ONCE, job=job)
    assert run.finish(120) == 1
    assert (
        "failed in step(): ValueError: reward: expected a finite number less than 1e+15 in size, got nan" in run.output
    )


def test_a_mistake_ends_the_run_before_it_begins(local_run: Callable[..., LocalRun], tmp_path: Path) -> None:
    run = local_run(job=edited(tmp_path, ("batch.n_step_return +", "batch.reward +")))
    assert run.finish(60) == 2
    assert "in loss: AttributeError" in run.output
    assert "a TransitionBatch has observation" in run.output
    assert "Traceback" not in run.output
    assert not run.run_dir.exists()


def test_debug_shows_the_tracebacks_of_roles_in_their_logs(local_run: Callable[..., LocalRun], tmp_path: Path) -> None:
    job = edited(tmp_path, where(LATE, "raise KeyError('late')"))
    run = local_run(*ENDLESS, *ONCE, job=job, prelude="import sys; sys.argv.insert(1, '--debug')")
    assert run.finish(120) == 1
    log = (run.run_dir / "logs" / "learner.log").read_text()
    assert "Traceback" in log
    assert 'soft_q.py", line' in log
