"""Every environment that Gymnasium itself ships, by its id alone: what it shows and takes, and what PPO makes of it in a few
steps beside random play.

    python -m benchmarks.gymnasium_environments [--steps 50000] [--only Taxi-v4 ...]

Prints a table in Markdown. The job of each is the same but for the id and, where an environment has none, a limit of steps.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import yaml
from rljob.algorithms.suits import check_suits
from rljob.api import EnvironmentParameters, parse_job
from rljob.api.networks import NetworkProblem
from rljob.envs import EnvironmentProblem, describe_environment, make_single_environment
from rljob.envs.encoding import any_action

GAMES = 20
MANIFEST: dict[str, Any] = {
    "apiVersion": "rljob.dev/v1alpha1",
    "kind": "RLJob",
    "metadata": {"name": "by-its-id"},
    "spec": {
        "preset": "PPOVector",
        "evaluator": {"enabled": False},
    },
}
LIMITS = {"CliffWalking-v1": 200, "CliffWalkingSlippery-v1": 200}
"""Those without a limit of their own."""


def newest() -> list[str]:
    """The newest version of each, of classic control, Box2D, toy text and MuJoCo; none that needs JAX or mujoco-py."""
    found: dict[str, int] = {}
    for environment_id, spec in gymnasium.registry.items():
        name, _, version = environment_id.rpartition("-v")
        own = re.match(r"gymnasium\.envs\.(classic_control|box2d|toy_text|mujoco)\b", str(spec.entry_point))
        if own and version.isdigit():
            found[name] = max(found.get(name, 0), int(version))
    return [f"{name}-v{version}" for name, version in found.items()]


def manifest(environment_id: str, steps: int) -> dict[str, Any]:
    """The job of an environment."""
    environment: dict[str, Any] = {"id": environment_id}
    if environment_id in LIMITS:
        environment["maxEpisodeSteps"] = LIMITS[environment_id]
    return {**MANIFEST, "spec": {**MANIFEST["spec"], "environment": environment, "successPolicy": {"rawFrames": steps}}}


def random_play(environment_id: str, parameters: EnvironmentParameters) -> float:
    """The mean return of whole games with any allowed action."""
    spec = describe_environment(environment_id, parameters)
    env = make_single_environment(environment_id, parameters, for_scoring=True, spec=spec)
    generator, returns = np.random.default_rng(0), []
    for game in range(GAMES):
        seen, _ = env.reset(seed=game)
        total, over = 0.0, False
        while not over:
            seen, reward, terminated, truncated, _ = env.step(any_action(spec, seen, generator))
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    env.close()
    return float(np.mean(returns))


def trained(document: dict[str, Any]) -> str:
    """What a run of it reached, over ``GAMES`` games, by the command of its user; or how it ended."""
    with tempfile.TemporaryDirectory() as folder:
        file, run = Path(folder, "job.yaml"), Path(folder, "run")
        file.write_text(yaml.safe_dump(document))
        command = [sys.executable, "-m", "rljob_operator"]
        ended = subprocess.run([*command, "run", str(file), "--run-dir", str(run)], capture_output=True, text=True)
        if ended.returncode:
            return f"run ended with {ended.returncode}: {ended.stderr.strip().splitlines()[-1:]}"
        scored = subprocess.run(
            [*command, "eval", str(run), "--episodes", str(GAMES), "--json"], capture_output=True, text=True
        )
        score = json.loads(scored.stdout)
        return f"{score['mean']:.2f} +- {score['standard_error']:.2f}"


def row(environment_id: str, steps: int) -> str:
    """One line of the table."""
    document = manifest(environment_id, steps)
    job = parse_job(document)
    try:
        spec = describe_environment(environment_id, job.spec.environment.parameters)
        lines = "; ".join(spec.lines)
        check_suits(job, spec)
    except NetworkProblem as problem:
        return f"| `{environment_id}` | {lines} | {str(problem).partition(': ')[2]} | |"
    except EnvironmentProblem as problem:
        return f"| `{environment_id}` | | {str(problem).splitlines()[0]} | |"
    before = random_play(environment_id, job.spec.environment.parameters)
    return f"| `{environment_id}` | {lines} | {before:.2f} | {trained(document)} |"


def main() -> None:
    """Parse the command line and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    print(f"| environment | shows and takes | random play | after {options.steps:,} steps of PPO |")
    print("|---|---|---|---|")
    for environment_id in options.only or newest():
        print(row(environment_id, options.steps), flush=True)


if __name__ == "__main__":
    main()
