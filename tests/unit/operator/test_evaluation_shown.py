"""What is said of evaluations: how far one has come, the last verdict, and which games a success rests on."""

import pytest
from rljob.api import load_manifest
from rljob.api.learner_status import LearnerStatus
from rljob.api.status import RLJobStatus
from rljob_operator.core.desired import DesiredState
from rljob_operator.core.observed import Observation
from rljob_operator.core.turn import turn
from rljob_operator.view.run_figures import evaluation as shown, figures, likely_need, stop_rule

from tests.support.controller import START, evaluation, running, sample
from tests.support.jobs import job_of
from tests.support.paths import EXAMPLES

VERDICT = {"mean": 18.5, "standard_error": 0.25, "episodes": 100, "finished": True, "seed": 1000004}


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({}, "-"),
        ({"evaluating": None, "evaluations": []}, "-"),
        ({"evaluating": {"version": 3, "games": 0, "episodes": 100, "mean": None}}, "0 of 100 games"),
        (
            {"evaluating": {"version": 3, "games": 12, "episodes": 100, "mean": 17.25}},
            "12 of 100 games, mean 17.25 so far",
        ),
        (
            {"evaluating": {"version": 3, "games": 30, "episodes": 100, "mean": 18.25, "at_least": 17, "alone": True}},
            "30 of 100 games, mean 18.25 so far, at least 17 with 99 %, training stands still",
        ),
        ({"evaluations": [VERDICT]}, "18.50 +- 0.25 (100 games)"),
        (
            {"evaluations": [VERDICT | {"finished": False, "episodes": 20}]},
            "18.50 +- 0.25 (20 games, given up early)",
        ),
        (
            {"evaluating": {"version": 3, "games": 12, "episodes": 100, "mean": 17.25}, "evaluations": [VERDICT]},
            "12 of 100 games, mean 17.25 so far; last 18.50 +- 0.25 (100 games)",
        ),
        ({"evaluations": [VERDICT | {"standard_error": None, "episodes": 1}]}, "18.50 (1 game)"),
        (
            {"evaluations": [VERDICT | {"metrics": {"is_success": 1.0, "way": 3}, "metric_games": {"is_success": 2}}]},
            "18.50 +- 0.25, is_success 1 (in 2 of 100 games), way 3 (100 games)",
        ),
    ],
)
def test_how_far_an_evaluation_has_come(status: dict[str, object], words: str) -> None:
    assert shown(LearnerStatus.lenient(status)) == words


def test_before_the_first_it_says_what_an_evaluator_waits_for() -> None:
    assert shown(LearnerStatus(), 300.0) == "from a return of 300 on"
    assert shown(LearnerStatus.lenient({"evaluations": [VERDICT]}), 300.0) == "18.50 +- 0.25 (100 games)"
    waits = ["spec.evaluator={triggerReturn: 12.5}", "spec.successPolicy={rawFrames: 1000}"]
    job = load_manifest(EXAMPLES / "cartpole-ppo.yaml", waits)
    first = figures(turn(DesiredState(job), RLJobStatus(), Observation(), START))
    assert first["evaluation"] == "from a return of 12.5 on"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"seed": 1000004}, "(standard error 0.20) over 20 games of seed 1000004; target 18"),
        ({"bound": 18.04}, "(standard error 0.20, at least 18.04 with 99 %) over 20 games; target 18"),
    ],
    ids=["", "before the last game, without a seed as in an older run's checkpoint"],
)
def test_a_success_names_the_seed_of_its_games(more: dict[str, int], words: str) -> None:
    assert words in running().look(learner=sample(START + 2, evaluations=[evaluation(18.5) | more])).outcome.message


def test_how_long_this_machine_is_likely_to_take() -> None:
    spec = job_of({"preset": "PongVTrace"}).spec
    assert likely_need(spec, 200_000, 5_000.0) == (
        "PongVTrace took about 1,200,000 raw frames where it was measured: 3:20 more at the 5,000 a second that are played "
        "now, and then the games of its verdict"
    )
    assert likely_need(spec, 1_300_000, 5_000.0) == likely_need(spec, 0, 0.0) == ""
    assert likely_need(job_of({"preset": "ImpalaAtari"}).spec, 0, 5_000.0) == "", "never measured"
    elsewhere = {"environment": {"id": "ALE/Breakout-v5"}, "successPolicy": {"targetReturn": {"value": 30}}}
    assert likely_need(job_of({"preset": "PongVTrace", **elsewhere}).spec, 0, 5_000.0) == "", "of another environment"


def test_what_ends_a_job_in_words() -> None:
    metric = {"name": "is_success", "value": 0.9}
    job = job_of({"preset": "CartPoleApeX", "successPolicy": {"metric": metric, "rawFrames": 1000}})
    assert stop_rule(job) == "mean return 475 over 100 games or is_success 0.9 over 100 games or 1,000 raw frames"
