"""PPO on CartPole and HalfCheetah beside four peers: agent steps a second, with equal batches, epochs and networks.

All have 64-64 networks with tanh, all but Sample Factory's a critic of its own, and normalise observations and returns, but for
CleanRL on CartPole. Rounds alternate, so that the machine's drift meets all. One JSON line a run, one with the medians and ratios
of each environment. ``shares_of_bare``: of the steps a second that its environments make with random actions in one process.

    python -m benchmarks.ppo_peers --sb3-python SB3/bin/python --rounds 3 \\
        --cleanrl-python CRL/bin/python --cleanrl CHECKOUT/cleanrl --sample-factory-python SF/bin/python

Peers whose python is not given are left out. They live in virtual environments of their own:

    python3.11 -m venv SB3
    SB3/bin/pip install torch==2.13.0 && SB3/bin/pip install stable-baselines3 'gymnasium[mujoco]'
    python3.11 -m venv CRL
    CRL/bin/pip install torch==2.13.0 && CRL/bin/pip install tyro tensorboard envpool 'gymnasium[mujoco]'
    python3.11 -m venv SF
    SF/bin/pip install torch==2.13.0 && SF/bin/pip install sample-factory 'gymnasium[mujoco]'
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from rljob.api import EnvironmentParameters
from rljob.choices import Choices
from rljob.envs import describe_environment, make_vector_environment

from benchmarks.common import machine, report
from benchmarks.gpu import jobs

PEERS = Path(__file__).resolve().parent / "peers"


@dataclass(frozen=True)
class Terms:
    """What all train with. ``rows``: environments of ours in one actor, and of a peer; each plays ``unrolls_each`` unrolls of
    ``steps`` in an iteration. ``systems``: who is asked."""

    name: str
    environment: str
    rows: int
    steps: int
    unrolls_each: int
    epochs: int
    minibatches: int
    systems: tuple[str, ...]


TERMS = (
    Terms("CartPole", "CartPole-v1", 64, 128, 1, 4, 4, ("ours", "sb3", "cleanrl", "cleanrl+envpool", "sample-factory")),
    Terms(
        "HalfCheetah",
        "HalfCheetah-v5",
        16,
        128,
        1,
        10,
        32,
        ("ours", "ours-compiled", "sb3", "sb3-processes", "cleanrl"),
    ),
    # Sample Factory's own settings for MuJoCo.
    Terms(
        "HalfCheetah, 2 epochs", "HalfCheetah-v5", 16, 64, 4, 2, 4, ("ours", "sample-factory", "sample-factory-async")
    ),
)


def ours(terms: Terms, seconds: float, *, compiled: bool) -> dict[str, Any]:
    """The job by `rljob run`; ``compiled``: with `compile: true`, which takes a compiler a minute before the first update."""
    ppo = {
        "unrollLength": terms.steps,
        "batchSize": terms.rows * terms.unrolls_each,
        "epochs": terms.epochs,
        "minibatches": terms.minibatches,
        "activation": "Tanh",
        "separateCritic": True,
        **({"compile": True} if compiled else {}),
    }
    spec = {
        "environment": {"id": terms.environment},
        "algorithm": {"type": "PPO", **ppo},
        "actors": {"envsPerActor": terms.rows},
        "evaluator": {"enabled": False},
        "successPolicy": {"rawFrames": 1_000_000_000},
    }
    head = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": "ppo-peers"}}
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.yaml"
        job.write_text(yaml.safe_dump({**head, "spec": spec}))
        found = jobs.steady(jobs.run(job, Path(folder) / "run", [], seconds + 8 + 70 * compiled), 3.0)
    return {name: found[name] for name in ("steps_per_second", "updates_per_second", "bottleneck", "window_seconds")}


def bare(terms: Terms, backend: str, seconds: float) -> float:
    """Steps a second of the environments of our actor, or, with the backend Sync, of Gymnasium's one by one, which all peers
    but EnvPool's step; with random actions, in this process."""
    parameters = EnvironmentParameters.model_validate({"backend": backend})
    spec = describe_environment(terms.environment, parameters)
    vector = make_vector_environment(terms.environment, parameters, terms.rows, 1, spec=spec)
    random = np.random.default_rng(0)
    choices = Choices(spec.action_sizes, controls=spec.controls)
    chosen = [choices.uniform(terms.rows, random) for _ in range(64)]
    control = random.standard_normal((terms.rows, spec.controls)).astype(np.float32) if spec.controls else None
    vector.reset()
    began, turns = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        vector.step(chosen[turns % len(chosen)], control)
        turns += 1
    rate = turns * terms.rows / (time.perf_counter() - began)
    vector.close()
    return rate


def command(system: str, options: argparse.Namespace, terms: Terms) -> list[str]:
    """How a peer is run in a window of the asked length."""
    given: dict[str, Any] = {"environment": terms.environment, "seconds": options.seconds, "envs": terms.rows}
    given |= {"epochs": terms.epochs, "minibatches": terms.minibatches}
    flags: list[str] = []
    if system.startswith("sb3"):
        start = [options.sb3_python, str(PEERS / "sb3_ppo.py")]
        given["steps"] = terms.steps
        flags = ["--processes"] if system == "sb3-processes" else []
    elif system.startswith("cleanrl"):
        script = "ppo.py" if terms.environment == "CartPole-v1" else "ppo_continuous_action.py"
        start = [options.cleanrl_python, str(PEERS / "cleanrl_ppo.py"), "--script", str(options.cleanrl / script)]
        given["steps"] = terms.steps
        flags = ["--envpool"] if system == "cleanrl+envpool" else []
    else:
        start = [options.sample_factory_python, str(PEERS / "sample_factory_ppo.py")]
        given["environment"] = terms.environment.replace(
            "-v5", "-v4"
        )  # its Gymnasium is of before v5; the model is the same
        given |= {"unroll": terms.steps, "unrolls": terms.rows * terms.unrolls_each}
        flags = ["--asynchronous"] if system == "sample-factory-async" else []
    return [*start, *(word for name, value in given.items() for word in (f"--{name}", str(value))), *flags]


def peer(system: str, options: argparse.Namespace, terms: Terms) -> dict[str, Any]:
    """One run of a peer. Raises RuntimeError where it fails."""
    asked = command(system, options, terms)
    done = subprocess.run(asked, capture_output=True, text=True, timeout=options.seconds + 180, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"peer"')]
    if not lines:
        raise RuntimeError(f"{system} ended with {done.returncode}: {done.stderr[-500:]}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sb3-python")
    parser.add_argument("--cleanrl-python")
    parser.add_argument("--cleanrl", type=Path, help="folder of ppo.py and ppo_continuous_action.py")
    parser.add_argument("--sample-factory-python")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    report("machine", **machine())
    pythons = {
        "ours": sys.executable,
        "sb3": options.sb3_python,
        "cleanrl": options.cleanrl_python,
        "sample": options.sample_factory_python,
    }
    for terms in TERMS:
        systems = [
            each for each in terms.systems if each == "ours" or pythons[each.partition("-")[0].partition("+")[0]]
        ]
        rates: dict[str, list[float]] = {name: [] for name in systems}
        for round_ in range(options.rounds):
            for name in systems:
                of_ours = name.startswith("ours")
                found = (
                    ours(terms, options.seconds, compiled=name == "ours-compiled")
                    if of_ours
                    else peer(name, options, terms)
                )
                rates[name].append(found["steps_per_second"])
                report("ppo_peers_run", system=name, terms=terms.name, round=round_, **found)
        medians = {name: statistics.median(values) for name, values in rates.items()}
        ratios = {name: medians["ours"] / rate for name, rate in medians.items() if not name.startswith("ours")}
        alone = {backend: bare(terms, backend, 3.0) for backend in ("Auto", "Sync")}
        shares = {name: rate / alone["Auto" if name.startswith("ours") else "Sync"] for name, rate in medians.items()}
        shares.pop("cleanrl+envpool", None)
        report("ppo_peers", terms=terms.name, medians=medians, ours_beside=ratios, bare=alone, shares_of_bare=shares)


if __name__ == "__main__":
    main()
