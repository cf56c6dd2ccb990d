"""IMPALA on Pong with the Nature network beside Sample Factory's APPO and RLlib's IMPALA: agent steps a second, in one run.

All train on 84x84 frames, four of them stacked, four skipped, with the same network, batches of 32 x 20 steps and one pass over
each. First every peer's settings are tried for a moment and its fastest chosen; then rounds alternate between the systems, so
that the machine's drift meets all of them; a run that the host of a virtual machine disturbs is repeated. Sample Factory takes
part twice: with its own Atari environment, and on the one that rljob plays on. One JSON line a run, one with the medians and
ratios.

    python -m benchmarks.impala_peers --sample-factory-python SF/bin/python --rllib-python RLLIB/bin/python --rounds 2

Each peer lives in a virtual environment of its own:

    python3.11 -m venv SF
    SF/bin/pip install torch==2.13.0 && SF/bin/pip install --no-deps -r benchmarks/peers/sample-factory.txt
    python3.11 -m venv RLLIB
    RLLIB/bin/pip install torch==2.13.0 && RLLIB/bin/pip install --no-deps -r benchmarks/peers/rllib.txt

Exit codes: 0 all ran; 1 a run failed; 2 a peer is not installed; 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import limit_to_avx2, machine, report, undisturbed
from benchmarks.impala_throughput import alone, whole_job

PEERS = Path(__file__).resolve().parent / "peers"


@dataclass(frozen=True)
class Peer:
    """``settings``: command lines of ``script`` to choose from, the likeliest first. ``module``: what its Python must have."""

    name: str
    script: str
    module: str
    requirements: str
    settings: tuple[str, ...]


CONTENDERS = (
    Peer(
        "Sample Factory APPO",
        "sample_factory_appo.py",
        "sample_factory",
        "sample-factory.txt",
        (
            "--environment Shipped --workers 2 --envs-per-worker 8",
            "--environment Shipped --workers 2 --envs-per-worker 16",
        ),
    ),
    Peer(
        "Sample Factory APPO on ALE's vector environment",
        "sample_factory_appo.py",
        "sample_factory",
        "sample-factory.txt",
        (
            "--environment Native --workers 1 --envs-per-worker 32",
            "--environment Native --workers 2 --envs-per-worker 32",
        ),
    ),
    Peer(
        "RLlib IMPALA",
        "rllib_impala.py",
        "ray.rllib",
        "rllib.txt",
        (
            "--runners 2 --envs-per-runner 4 --learners 0",
            "--runners 1 --envs-per-runner 8 --learners 0",
            "--runners 2 --envs-per-runner 8 --learners 1",
        ),
    ),
)


class RunFailed(Exception):
    """A peer's run did not come to its end; the message is the end of what it printed."""


def peer_run(
    python: str, peer: Peer, settings: str, warm_up_seconds: float, seconds: float, bound: float
) -> dict[str, Any]:
    """One run of a peer in processes of its own, ended after ``bound`` seconds. Raises ``RunFailed``."""
    options = ["--warm-up-seconds", str(warm_up_seconds), "--seconds", str(seconds), *settings.split()]
    process = subprocess.Popen(
        [python, str(PEERS / peer.script), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=bound)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        raise RunFailed(f"took longer than {bound:g} s; its last words: {output[-500:]}") from None
    finally:
        if process.poll() is None:  # interrupted: its processes are in a group of their own and would go on
            os.killpg(process.pid, signal.SIGTERM)
    results = [line for line in output.splitlines() if line.startswith('{"system"')]
    if process.returncode != 0 or not results:
        raise RunFailed(f"exit code {process.returncode}; its last words: {output[-500:]}")
    found: dict[str, Any] = json.loads(results[-1])
    return found


def our_run(warm_up_seconds: float, seconds: float, start_seconds: float, overrides: list[str]) -> dict[str, Any]:
    """The job by `rljob run`, with the ceiling that its parts allow in the same minute."""
    acting, learning = alone("acting", seconds / 3), alone("learning", seconds / 3)
    ceiling = len(os.sched_getaffinity(0)) / (1 / acting + 1 / learning)
    result = whole_job(seconds, warm_up_seconds, start_seconds, overrides)
    return result | {"ceiling_steps_per_second": ceiling, "share_of_ceiling": result["steps_per_second"] / ceiling}


def missing(peers: list[Peer], pythons: dict[str, str | None]) -> list[str]:
    """What to do about each peer that cannot be run."""
    found = {}
    for peer in peers:
        python = pythons[peer.module]
        # What the module is called is asked without loading it, which takes seconds.
        look = f"import importlib.util as u, sys; sys.exit(u.find_spec({peer.module.split('.')[0]!r}) is None)"
        if (
            python is not None
            and Path(python).exists()
            and subprocess.run([python, "-c", look], check=False).returncode == 0
        ):
            continue
        option = "--sample-factory-python" if peer.module == "sample_factory" else "--rllib-python"
        at = f"not found in {python}" if python else f"not given ({option})"
        found.setdefault(
            peer.module,
            f"{peer.name}: {at}. Install it in an environment of its own: python3.11 -m venv V && V/bin/pip install "
            f"torch==2.13.0 && V/bin/pip install --no-deps -r {PEERS / peer.requirements}; then {option} V/bin/python, "
            "or leave it out with --peers",
        )
    return list(found.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample-factory-python", metavar="PYTHON")
    parser.add_argument("--rllib-python", metavar="PYTHON")
    parser.add_argument(
        "--peers",
        nargs="+",
        choices=("sample-factory", "rllib"),
        default=("sample-factory", "rllib"),
        help="who takes part",
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--warm-up-seconds", type=float, default=8)
    parser.add_argument(
        "--start-seconds", type=float, default=30, help="that every system gets to start and learn once"
    )
    parser.add_argument(
        "--choice-seconds", type=float, default=8, help="for each setting of a peer; 0: take the first one"
    )
    parser.add_argument(
        "--avx2", action="store_true", help="hold every system to AVX2 arithmetic (no AVX-512, no bf16)"
    )
    parser.add_argument(
        "--set", dest="overrides", action="append", default=[], metavar="PATH=VALUE", help="of rljob's job"
    )
    arguments = parser.parse_args()
    wanted = {"sample-factory": "sample_factory", "rllib": "ray.rllib"}
    peers = [peer for peer in CONTENDERS if peer.module in {wanted[name] for name in arguments.peers}]
    pythons = {"sample_factory": arguments.sample_factory_python, "ray.rllib": arguments.rllib_python}
    if problems := missing(peers, pythons):
        print("\n".join(problems), file=sys.stderr)
        return 2
    if arguments.avx2:
        limit_to_avx2()
    began, failed = time.monotonic(), False

    def run(peer: Peer, settings: str, warm_up_seconds: float, seconds: float, **about: Any) -> float:
        """Steps a second of one run, 0 where it failed."""
        nonlocal failed
        bound = 2 * arguments.start_seconds + 2 * (warm_up_seconds + seconds)
        try:
            result = undisturbed(
                "impala_peers",
                lambda: (
                    peer_run(str(pythons[peer.module]), peer, settings, warm_up_seconds, seconds, bound)
                    | {"system": peer.name, "options": settings}
                ),
                **about,
            )
        except RunFailed as problem:
            failed = True
            report("impala_peers", **about, system=peer.name, options=settings, error=str(problem))
            return 0.0
        return float(result["steps_per_second"])

    chosen = {}
    for peer in peers:
        rates = {}
        for settings in peer.settings if arguments.choice_seconds > 0 else ():
            seconds = arguments.choice_seconds
            rates[settings] = run(peer, settings, min(4.0, arguments.warm_up_seconds), seconds, phase="choice")
        chosen[peer.name] = max(rates, key=rates.__getitem__) if rates else peer.settings[0]
    ours, shares = [], []
    theirs: dict[str, list[float]] = {peer.name: [] for peer in peers}
    for number in range(arguments.rounds):
        try:
            result = undisturbed(
                "impala_peers",
                partial(
                    our_run, arguments.warm_up_seconds, arguments.seconds, arguments.start_seconds, arguments.overrides
                ),
                phase="round",
                round=number,
                system="rljob IMPALA",
            )
        except SystemExit as problem:
            failed = True
            report("impala_peers", phase="round", round=number, system="rljob IMPALA", error=str(problem))
        else:
            ours.append(result["steps_per_second"])
            shares.append(result["share_of_ceiling"])
        for peer in peers:
            settings = chosen[peer.name]
            rate = run(peer, settings, arguments.warm_up_seconds, arguments.seconds, phase="round", round=number)
            if rate > 0:
                theirs[peer.name].append(rate)
    if not ours:
        return 1
    medians = {name: statistics.median(rates) for name, rates in theirs.items() if rates}
    report(
        "impala_peers_summary",
        rljob_steps_per_second=statistics.median(ours),
        share_of_ceiling=statistics.median(shares),
        peers={name: float(f"{rate:.4g}") for name, rate in medians.items()},
        ratios={name: float(f"{statistics.median(ours) / rate:.3g}") for name, rate in medians.items()},
        settings=chosen,
        rounds=arguments.rounds,
        minutes=(time.monotonic() - began) / 60,
        machine=machine(),
    )
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
