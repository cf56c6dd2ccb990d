"""An experiment's folder as `rljob run` leaves it: its journal, by what writes it there, and its run folders."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rljob_operator.experiments.decide import decide
from rljob_operator.local.experiment_runs import ExperimentFolder
from rljob_operator.local.run_folder import OUTCOME_FILE, write_json

from tests.support.judged_runs import FRAMES_A_RECORD, PPO, judged_run

RATE = "algorithm.learningRate"
Curve = Callable[[float, int, int], float]
"""(learning rate, seed, raw frames) -> mean return."""


def document(rates: list[float], **spec: Any) -> dict[str, Any]:
    """An experiment that tries these learning rates, named ``rates``."""
    template = {"environment": {"id": "CartPole-v1"}, "algorithm": {"type": "PPO"}, "evaluator": {"enabled": False}}
    whole = {
        "template": {"spec": template},
        "search": {"list": [{RATE: rate} for rate in rates]},
        "budget": {"rawFrames": 9 * FRAMES_A_RECORD},
        **spec,
    }
    return {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLExperiment", "metadata": {"name": "rates"}, "spec": whole}


def experiment_folder(
    folder: Path,
    experiment: dict[str, Any],
    curve: Curve,
    *,
    until_scores: int | None = None,
    fails: frozenset[int] = frozenset(),
) -> Path:
    """The experiment in ``folder``, at its end with its best judged anew, or as it stands after so many scores."""
    folder.mkdir(parents=True)
    opened = ExperimentFolder(folder)
    opened.take(experiment)
    state, scores = opened.state, 0
    while True:
        while (entry := decide(state)) is not None:
            opened.add(entry)
        if state.end is not None or scores == until_scores:
            break
        run = state.active[0]
        about = {"trial": run.trial, "seed": run.seed}
        if run.trial in fails:
            opened.add({"kind": "Fail", **about, "why": "<it was made to>"})
            continue
        rate, frames = state.known.settings(run.trial)[RATE], state.known.rungs[run.rung]
        opened.add({"kind": "Score", **about, **_score(curve(rate, run.seed, frames), frames), "solved": False})
        scores += 1
    for trial, seed in ((best["trial"], seed) for best in _best(state) for seed in best["seeds"]):
        rate = state.known.settings(trial)[RATE]
        opened.add({"kind": "Verdict", "trial": trial, "seed": seed, **_score(curve(rate, seed, 9_000) - 1, 9_000)})
    for run in state.runs.values():
        rate = state.known.settings(run.trial)[RATE]
        returns = [
            curve(rate, run.seed, at * FRAMES_A_RECORD) for at in range(1, 1 + run.raw_frames // FRAMES_A_RECORD)
        ]
        sets = [
            f"{RATE}={rate}",
            f"successPolicy.rawFrames={state.known.rungs[run.rung]}",
            "successPolicy.targetReturn=",
        ]
        name = folder / state.known.run_name(run.trial, run.seed)
        judged_run(name, returns, seed=run.seed, overrides=sets, manifest=PPO, evaluate_every=10**9)
    opened.store()
    opened.close()
    if state.end is not None:
        write_json(folder / OUTCOME_FILE, {"state": "Complete", "reason": state.end["reason"]})
    return folder


def _score(mean: float, frames: int) -> dict[str, Any]:
    return {"mean": mean, "standardError": 0.5, "episodes": 100, "rawFrames": frames}


def _best(state: Any) -> list[dict[str, Any]]:
    return [] if state.end is None or state.end["best"] is None else [state.end["best"]]
