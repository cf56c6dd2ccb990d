"""``earlyStopping.trainingReturn`` and ``valueLoss`` in a running job: medians over windows of raw frames, and grace periods."""

from collections.abc import Iterable

import pytest
from rljob.api.controller_memory import TREND_POINTS
from rljob_operator.core.decision import Decision

from tests.support.controller import Controller, end_of, evaluation, make_job, running, sample

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


def test_a_return_that_stays_where_it_is_ends_the_job_after_a_window_that_fills_it_and_one_without_improvement() -> (
    None
):
    assert ended_at(running(RETURN), [(1.0, None)] * 40) == 2 * WINDOW
    assert ended_at(running(RETURN), [(1.0, None)] * 400, every=100) == 2 * WINDOW - 900, "as often as it is asked"


def test_the_message_has_the_numbers_to_check_it_by(controller: Controller) -> None:
    ended_at(controller, [(1.0 if number < 12 else 1.4, None) for number in range(40)])
    assert controller.last.outcome.message == (
        "training return: its median over 9,000 raw frames is 1.40 and was not better than 1.00 by more than 0.5 for as many"
    )


def test_a_return_that_grows_by_more_than_min_delta_within_a_window_goes_on() -> None:
    assert ended_at(running(RETURN), [(0.1 * number, None) for number in range(60)]) is None
    assert ended_at(running(RETURN), [(0.01 * number, None) for number in range(60)]) is not None


def test_one_good_moment_is_no_improvement_of_a_median() -> None:
    assert ended_at(running(RETURN), [(9.0 if number == 14 else 1.0, None) for number in range(40)]) == 2 * WINDOW


def test_nothing_is_judged_before_the_grace_period_nor_of_few_games(controller: Controller) -> None:
    later = running(RETURN, "spec.earlyStopping.trainingReturn.graceRawFrames=30000")
    assert ended_at(later, [(1.0, None)] * 60) == 30_000 + WINDOW
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


@pytest.mark.parametrize(
    "moments",
    [
        # CartPole's value loss grows by a factor of a thousand on its way to 500, and may stay there.
        [(1.0 * number, 0.01 * number**2) for number in range(1, 80)] + [(80.0, 64.0)] * 30,
        # Pong at -21, where every return is the same, then with its first points: both grow from nothing.
        [(-21.0, 1e-6)] * 60 + [(-21.0 + 0.02 * number, 1e-2) for number in range(60)],
        [(5.0 - 0.01 * number, 90.0 if number % 3 == 0 else 0.5) for number in range(60)],
        [(5.0 - 0.01 * number, -0.5 + 0.1 * number) for number in range(30)],
    ],
    ids=["grows with the return", "a flat start", "peaks", "below zero"],
)
def test_a_loss_that_grows_in_another_way_is_no_divergence(moments: list[tuple[float, float]]) -> None:
    assert ended_at(running(LOSS), moments) is None


def test_without_a_return_the_loss_is_judged_alone() -> None:
    assert ended_at(running(LOSS), [(None, 0.5)] * 15 + [(None, 1e90)] * 30) == 1000 * (15 + 5 + TREND_POINTS - 1)


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
