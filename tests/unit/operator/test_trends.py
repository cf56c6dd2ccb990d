"""``earlyStopping.trainingReturn`` and ``valueLoss`` in a running job: medians over windows of raw frames, and grace periods.

`rljob why --rules`: recorded runs led through the rules of a job, by the same code that ends a job that runs.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from rljob.api import RLJob, load_manifest
from rljob.api.controller_memory import TREND_POINTS
from rljob_operator.cli import app
from rljob_operator.core.decision import Decision
from rljob_operator.core.recorded import Judged, judged
from rljob_operator.verbs.why import records_of, summary
from typer.testing import CliRunner

from tests.support.controller import Controller, end_of, evaluation, make_job, running, sample
from tests.support.paths import EXAMPLES, ROOT

WINDOW = 9_000
"""Raw frames; a moment is noted every thousand."""
RETURN = f"spec.earlyStopping.trainingReturn={{windowRawFrames: {WINDOW}, minDelta: 0.5}}"
LOSS = f"spec.earlyStopping.valueLoss={{windowRawFrames: {WINDOW}, graceRawFrames: 0, factor: 4}}"


def ended_at(
    controller: Controller, moments: Iterable[tuple[float | None, float | None]], every: int = 1000
) -> int | None:
    """Raw frames at which the job was ended; a moment of (training return, value loss) every ``every`` of them."""
    for number, (mean, loss) in enumerate(moments, 1):
        end = end_of(told(controller, number * every, mean, loss))
        if end:
            assert end == "EarlyStopped"
            return number * every
    return None


def told(controller: Controller, frames: int, mean: float | None, loss: float | None, **figures: object) -> Decision:
    figures = {"raw_frames_total": frames, "mean_return": mean, "value_loss": loss, "loss": -7.0} | figures
    return controller.look(1.0, learner=sample(controller.now + 1.0, 1000 + frames // 10, **figures))


@pytest.fixture
def controller() -> Controller:
    return running(RETURN)


@pytest.mark.parametrize(
    ("rules", "moments", "end"),
    [
        # A window that fills, and one without improvement.
        ((RETURN,), [(1.0, None)] * 40, 2 * WINDOW),
        ((RETURN,), [(9.0 if number == 14 else 1.0, None) for number in range(40)], 2 * WINDOW),
        ((RETURN,), [(0.01 * number, None) for number in range(60)], 18_000),
        ((RETURN,), [(0.1 * number, None) for number in range(60)], None),
        ((RETURN, "spec.earlyStopping.trainingReturn.graceRawFrames=30000"), [(1.0, None)] * 60, 30_000 + WINDOW),
        # Five moments until the median is large, and nine of those.
        ((LOSS,), [(None, 0.5)] * 15 + [(None, 1e90)] * 30, 1000 * (15 + 5 + TREND_POINTS - 1)),
        # CartPole's value loss grows by a factor of a thousand on its way to 500, and may stay there.
        ((LOSS,), [(1.0 * number, 0.01 * number**2) for number in range(1, 80)] + [(80.0, 64.0)] * 30, None),
        # Pong at -21, where every return is the same, then with its first points: both grow from nothing.
        ((LOSS,), [(-21.0, 1e-6)] * 60 + [(-21.0 + 0.02 * number, 1e-2) for number in range(60)], None),
        ((LOSS,), [(5.0 - 0.01 * number, 90.0 if number % 3 == 0 else 0.5) for number in range(60)], None),
        ((LOSS,), [(5.0 - 0.01 * number, -0.5 + 0.1 * number) for number in range(30)], None),
    ],
    ids=[
        "a return that stays", "one good moment", "a return that grows by less than minDelta", "by more",
        "a grace period", "a loss alone", "a loss that grows with the return", "a flat start", "peaks", "below zero",
    ],
)  # fmt: skip
def test_which_courses_end_a_job_and_when(
    rules: tuple[str, ...], moments: list[tuple[float | None, float | None]], end: int | None
) -> None:
    assert ended_at(running(*rules), moments) == end


def test_moments_count_as_often_as_they_are_asked_for() -> None:
    assert ended_at(running(RETURN), [(1.0, None)] * 400, every=100) == 2 * WINDOW - 900


def test_the_message_has_the_numbers_to_check_it_by(controller: Controller) -> None:
    ended_at(controller, [(1.0 if number < 12 else 1.4, None) for number in range(40)])
    assert controller.last.outcome.message == (
        "training return: its median over 9,000 raw frames is 1.40 and was not better than 1.00 by more than 0.5 for as many"
    )


def test_nothing_is_judged_of_few_games(controller: Controller) -> None:
    for number in range(1, 40):
        assert told(controller, 1000 * number, 1.0, None, games=9).outcome is None


def test_a_replay_that_fills_is_no_time_without_improvement(controller: Controller) -> None:
    figures = {"mean_return": 1.0}
    for number in range(1, 60):
        learner = sample(controller.now + 1.0, 0, raw_frames_total=1000 * number, **figures)
        controller.after(1.0, {"learner": learner}, end="")


def test_a_loss_far_above_its_lowest_for_a_window_ends_the_job_while_the_return_is_below_its_best() -> None:
    healthy, diverged = [(1.0 + number, 0.5) for number in range(15)], [(3.0, 50.0)] * 30
    controller = running(LOSS)
    # Five moments until the median is large, and nine of those.
    assert ended_at(controller, healthy + diverged) == 1000 * (15 + 5 + TREND_POINTS - 1)
    assert controller.last.outcome.message.startswith(
        "value loss: its median over 9,000 raw frames is 50 and was more than 4 times 0.5 for as many, as the training "
        "return, 3.00, was below 11.00"
    )


@pytest.mark.parametrize("name", ["value_loss", "critic_loss", "loss"])
def test_the_loss_of_values_has_the_names_that_algorithms_give_it(name: str) -> None:
    controller, ends = running(LOSS), []
    for number in range(1, 50):
        figures = {"loss": 0.1, name: 0.5 if number <= 15 else 50.0, "mean_return": 1.0 - 0.01 * number}
        learner = sample(controller.now + 1.0, 1000 + number, **{"raw_frames_total": 1000 * number, **figures})
        ends.append(end_of(controller.look(1.0, learner=learner)))
    assert "EarlyStopped" in ends


def test_a_learner_that_goes_back_to_a_checkpoint_begins_a_window_anew(controller: Controller) -> None:
    assert ended_at(controller, [(1.0, None)] * 17) is None
    assert ended_at(controller, [(1.0, None)] * 40) == 2 * WINDOW - 1000, (
        "the best is known, so nine of nine are without improvement"
    )


def test_memory_is_bounded_and_goes_with_its_rule() -> None:
    controller = running(RETURN, LOSS)
    ended_at(controller, [(float(number), 0.5) for number in range(200)])
    memory = controller.status.controller
    assert len(memory.training_return.points) == len(memory.value_loss.points) == TREND_POINTS
    controller.job = make_job()
    told(controller, 300_000, 1.0, 1.0)
    assert (controller.status.controller.training_return, controller.status.controller.value_loss) == (None, None)


def test_evaluations_of_the_grace_period_do_not_count_for_a_plateau() -> None:
    plateau = "spec.earlyStopping.plateau={patienceEvaluations: 2, graceRawFrames: 5000}"
    listed = [
        evaluation(9.0 if number < 5 else 3.0, version=number) | {"raw_frames": 1000 * number} for number in range(1, 8)
    ]
    controller = running(plateau)
    for count in range(1, 7):
        assert told(controller, 1000, None, None, evaluations=listed[:count]).outcome is None
    assert "were not better than 3.00" in told(controller, 1000, None, None, evaluations=listed).outcome.message


@pytest.mark.parametrize("value", ["1", "0.5", "-2"])
def test_a_factor_has_to_be_above_one(value: str) -> None:
    with pytest.raises(ValueError, match="above 1"):
        make_job(f"spec.earlyStopping.valueLoss={{factor: {value}}}")


CURVES = sorted((ROOT / "tests" / "data" / "curves").glob("*.jsonl"))
DIVERGING = ROOT / "tests" / "data" / "diverging" / "cartpole-apex-seed-2.jsonl"
SOLVED_AT_18 = "spec.successPolicy={targetReturn: {value: 18}}"
DIVERGES = "spec.earlyStopping.valueLoss={windowRawFrames: 9000, graceRawFrames: 0}"
DEFAULTS = "spec.earlyStopping={plateau: {}, trainingReturn: {}, valueLoss: {}}"


def with_rules(rules: str) -> RLJob:
    return load_manifest(EXAMPLES / "pong-vtrace.yaml", [SOLVED_AT_18, rules])


def of_curves(rules: str) -> dict[str, Judged]:
    return {file.stem: judged(with_rules(rules), records_of(file)) for file in CURVES}


def invoked(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["why", *words])
    return result.exit_code, result.output


def test_the_defaults_would_have_ended_no_curve_that_got_solved() -> None:
    found = of_curves(DEFAULTS)
    assert sum(run.solved is not None for run in found.values()) >= 17
    assert summary(found)["solvedGivenUp"] == []


@pytest.mark.parametrize(
    ("window", "given_up", "saved"), [(300_000, range(1), range(1)), (100_000, range(5, 99), None)]
)
def test_windows_as_short_as_a_sixteenth_of_the_default_would_not_either_and_shorter_ones_would(
    window: int, given_up: range, saved: range | None
) -> None:
    found = summary(of_curves(f"spec.earlyStopping.trainingReturn={{windowRawFrames: {window}}}"))
    assert len(found["solvedGivenUp"]) in given_up
    assert saved is not None or found["savedRawFrames"] > 0


def records(count: int, frames: int = 1000) -> list[dict[str, Any]]:
    """A run of which the value loss diverges from its middle on."""
    found = [{"kind": "machine", "elapsed_seconds": 0.0, "raw_frames": 0}]
    for number in range(1, count + 1):
        late = number > count // 2
        moment = {"elapsed_seconds": 2.0 * number, "raw_frames": frames * number, "updates": 10 * number, "games": 20}
        learned = {"mean_return": -number if late else number, "loss": -1.0, "value_loss": 100.0 if late else 0.5}
        found.append(moment | learned)
    return found


def test_a_run_is_ended_where_the_running_job_would_have_ended_it() -> None:
    found = judged(make_job(DIVERGES), records(60)).ends["valueLoss"]
    controller, ended = running(DIVERGES), None
    for record in records(60)[1:]:
        figures = {**record, "raw_frames_total": record["raw_frames"]}
        outcome = controller.look(2.0, learner=sample(controller.now + 2.0, **figures)).outcome
        if outcome is not None and ended is None:
            ended = record["raw_frames"], outcome.message
    assert ended == (found.raw_frames, found.message)


def test_what_comes_after_the_solution_is_neither_given_up_nor_saved() -> None:
    verdict = {"kind": "evaluation", "mean": 19.0, "version": 7, "elapsed_seconds": 61.0, "raw_frames": 30_000}
    found = judged(make_job(DIVERGES), sorted([*records(60), verdict], key=lambda record: record["elapsed_seconds"]))
    assert (found.solved.seconds, found.given_up, summary({"a": found})["savedRawFrames"]) == (61.0, None, 0)


def test_metrics_that_an_environment_reports_and_deadlines_are_asked_too() -> None:
    job = make_job(
        "spec.successPolicy={metric: {name: is_success, value: 0.9}}",
        "spec.activeDeadlineSeconds=100",
        "spec.progressDeadlineSeconds=60",
    )
    verdict = {"kind": "evaluation", "mean": 0.0, "version": 7, "episode/is_success": 0.95, "elapsed_seconds": 30.0}
    assert judged(job, [*records(20), verdict]).solved is not None
    ends = judged(job, [*records(20), {"elapsed_seconds": 400.0, "raw_frames": 20_000, "updates": 200}]).ends
    assert ends["progressDeadlineSeconds"].seconds == ends["activeDeadlineSeconds"].seconds == 400.0


def test_the_command_says_which_rule_ends_which_run_and_what_is_saved(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    lines = [json.dumps(record) for record in records(60)]
    (run / "metrics.jsonl").write_text("\n".join([lines[0], "[1]", '{"elapsed', *lines[1:]]))
    rules = ["--rules", str(EXAMPLES / "pong-vtrace.yaml"), "--set", SOLVED_AT_18, "--set", DIVERGES]
    code, said = invoked(*rules, str(run))
    assert code == 0
    for words in (
        "valueLoss at 43,000 raw frames, 86 s, training return -43.00  <- ends it: value loss: its median over",
        "1 runs, 0 solved. Given up before: 0 of those solved, 1 of the others.",
        "Saved: 17,000 of 60,000 raw frames, 34 of 120 s.",
    ):
        assert words in said
    assert "2 runs, 1 solved." in invoked(*rules, str(run), str(CURVES[0]))[1]


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [
        (None, "none", "No such file or directory; give folders of runs, or their metrics.jsonl"),
        ("hello\n", "text.jsonl", "it holds no record of a run"),
    ],
)
def test_what_is_no_record_is_said_in_a_line(content: str | None, name: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_text(content)
    code, output = invoked("--rules", str(EXAMPLES / "pong-vtrace.yaml"), str(file))
    assert (code, said in output, str(file) in output) == (2, True, True)


def test_options_that_would_change_nothing_are_refused() -> None:
    for words in ((), ("-n", "team", "runs/a")):
        assert invoked("--rules", str(EXAMPLES / "pong-vtrace.yaml"), *words)[0] == 2
    for words in (("--set", "spec.suspend=true"), ("a", "b")):
        code, said = invoked(*words)
        assert (code, "go with --rules FILE" in said) == (2, True)


def test_a_recorded_run_whose_values_diverge_is_ended_and_not_by_the_return_of_training() -> None:
    """Ape-X on CartPole with a learning rate of 0.01, neither a target network that lags nor double learning, and no clipping.
    Its return is best after 22,000 raw frames, and the loss grows ten-thousandfold."""
    rules = "spec.earlyStopping={valueLoss: {windowRawFrames: 10000, graceRawFrames: 10000}, trainingReturn: {}}"
    found = judged(with_rules(rules), records_of(DIVERGING))
    assert set(found.ends) == {"valueLoss"}
    assert 40_000 < found.ends["valueLoss"].raw_frames < 60_000
    # With the defaults, for longer runs, it would have gone on to its end.
    assert judged(with_rules(DEFAULTS), records_of(DIVERGING)).ends == {}
