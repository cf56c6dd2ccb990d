"""The rungs of benchmarks/ladder: they differ in what they are said to differ in, and learn the same."""

import itertools

import numpy as np
import pytest
import torch
from rljob.api import ApeXDQNParameters, parse_job
from rljob.envs import StepResult
from rljob.experience import Decision
from rljob.threads import usable_cores
from torch import Tensor

from benchmarks.ladder import measure, rungs
from benchmarks.ladder.loops import SynchronousLoop
from benchmarks.ladder.readings import Reading, Solving, SpeedWindow
from benchmarks.ladder.table import PEER, rows_of

RUNG = {rung.name: rung for rung in rungs.MEASURED}
IN_ONE_PROCESS = [rung.name for rung in rungs.LADDER if not rung.apart]
APART = [rung.name for rung in rungs.MEASURED if rung.apart]
FILL = 60
FRAMES = 120


def trained(name: str, updates: int, seed: int = 3) -> SynchronousLoop:
    loop = SynchronousLoop(RUNG[name], seed, FILL)
    while loop.updater.updates < updates:
        loop.turn()
    return loop


def weights(loop: SynchronousLoop) -> Tensor:
    return torch.cat([parameter.detach().flatten().clone() for parameter in loop.updater.online.parameters()])


def test_the_rows_are_those_that_were_published() -> None:
    assert [rung.published for rung in rungs.LADDER] == [
        (159, 105),
        (157, 115),
        (228, 44),
        (402, 59),
        (330, 40),
        (409, 31),
    ]
    assert [rung.name for rung in rungs.LADDER if rung.is_control] == ["graphs"]


@pytest.mark.parametrize("name", IN_ONE_PROCESS)
def test_a_rung_trains(name: str) -> None:
    loop = SynchronousLoop(RUNG[name], 3, FILL)
    before = weights(loop)
    for _ in range(FRAMES // RUNG[name].environments):
        loop.turn()
    # One update for every step of all environments from the first on.
    updates = (FRAMES - FILL) // RUNG[name].environments + 1
    reading = loop.reading()
    assert (reading.frames, loop.updater.updates, reading.samples) == (FRAMES, updates, updates * RUNG[name].batch_size)
    assert torch.isfinite(loop.figures).all()
    assert not torch.equal(before, weights(loop))
    mean = loop.updater.online.mean
    assert (mean.max() > 0.0, torch.equal(mean, loop.updater.target.mean)) == (True, True), (
        "the mean frame was measured"
    )


@pytest.mark.parametrize("name", IN_ONE_PROCESS)
def test_a_batch_holds_what_happened(name: str) -> None:
    """Each drawn transition is one that was stepped: its action, its reward, and the frames before and after it."""
    loop = SynchronousLoop(RUNG[name], 3, 10_000)
    seen: set[tuple[bytes, int, float, bytes]] = set()
    step = loop.environment.step

    def noted(actions: np.ndarray) -> StepResult:
        before, result = loop.observation.copy(), step(actions)
        for i in range(RUNG[name].environments):
            after = result.observation if not result.terminated[i] else result.final_observation
            seen.add((before[i].tobytes(), int(actions[i]), float(result.reward[i]), after[i].tobytes()))
        return result

    loop.environment.step = noted  # type: ignore[method-assign, assignment]
    for _ in range(1_400):
        loop.turn()
    drawn, ends = set(), 0
    for _ in range(200):
        batch = loop.replay.sample()
        assert (len(batch.action), batch.weight.tolist()) == (RUNG[name].batch_size, [1.0] * len(batch.action))
        assert ((batch.discount == 0) | batch.discount.isclose(torch.tensor(0.99))).all()
        ends += int((batch.discount == 0).sum())
        drawn |= {
            (now.numpy().tobytes(), int(action), float(reward), following.numpy().tobytes())
            for now, action, reward, following in zip(
                batch.observation, batch.action, batch.n_step_return, batch.next_observation, strict=True
            )
        }
    assert drawn <= seen
    assert (len(drawn) > 700, ends > 0) == (True, True), "a game ended, whose last frame is not the next one's first"


def played(name: str, like: str | None = None) -> np.ndarray:
    """The newest frames of environment 0 under the same actions: of a rung, or with the wrappers of ``like`` it."""
    loop = SynchronousLoop(RUNG[name], 5, 10_000)
    actions = np.random.default_rng(0).integers(0, 3, 400)
    frames = [loop.observation[0, -1].copy()]
    for action in actions.tolist():
        chosen = np.full(loop.environment.num_envs, action, np.int64)
        unknown = np.full(loop.environment.num_envs, np.nan, np.float32)
        loop.decide = lambda chosen=chosen, unknown=unknown: Decision(chosen, unknown, unknown)  # type: ignore
        loop.turn()
        frames.append(loop.observation[0, -1].copy())
    return np.stack(frames)


def test_rungs_of_the_same_wrappers_see_the_same_frames() -> None:
    first = played("synchronous")
    assert first.std() > 0
    for other in ("graphs", "several"):
        assert np.array_equal(first, played(other)), other


def test_the_tensor_wrappers_show_the_same_game(monkeypatch: pytest.MonkeyPatch) -> None:
    """With idle frames and the maximum over two raw frames alike, which the published rung leaves out, nothing else differs."""
    plain = {**rungs._PLAIN, "atari": {**rungs._TENSORS["atari"]}}
    ours = played("several-tensors")
    monkeypatch.setattr(rungs, "_PLAIN", plain)
    assert np.array_equal(played("several"), ours)


def test_the_control_learns_to_the_last_bit_what_the_first_rung_does() -> None:
    plain, control = trained("synchronous", 15), trained("graphs", 15)
    assert torch.equal(weights(plain), weights(control))


@pytest.mark.parametrize("name", APART)
def test_rungs_with_acting_apart_are_jobs_with_the_same_learning(name: str) -> None:
    job = parse_job(rungs.job(RUNG[name], 3, 1_000))
    learning = job.spec.algorithm.parameters
    assert isinstance(learning, ApeXDQNParameters)
    first = rungs.learning_parameters(RUNG["synchronous"])
    assert learning.model_dump() == first.model_copy(update={"batch_size": 128}).model_dump()
    same_wrappers = RUNG["several-tensors" if RUNG[name].tensors else "several"]
    assert job.spec.environment.parameters == rungs.environment_parameters(same_wrappers)
    assert job.spec.replay.rate_limiter.samples_per_insert == RUNG[name].samples_per_frame


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", APART)
def test_rungs_with_acting_apart_run(name: str) -> None:
    result = measure.trained(RUNG[name], SpeedWindow(0.5, 3.0), 3, 500, 400).result
    assert min(result[figure] for figure in ("frames_per_second", "samples_per_frame", "cores")) > 0


def test_a_rung_in_a_process_of_its_own() -> None:
    result = measure.trained(RUNG["several-tensors"], SpeedWindow(0.2, 0.5), 3, FILL, 60).result
    assert result["samples_per_frame"] == pytest.approx(32.0)
    assert result["frames_per_second"] == pytest.approx(result["frames_per_cpu_second"] * result["cores"])
    assert result["threads"] in (1, usable_cores())


def readings(frames_per_second: float, mean_returns: list[float | None], step_seconds: float = 1.0) -> list[Reading]:
    return [
        Reading(second * step_seconds, int(second * frames_per_second), 32 * second, 0.5 * second, mean)
        for second, mean in enumerate(mean_returns)
    ]


def test_a_window_begins_after_the_warm_up_of_the_first_update() -> None:
    window = SpeedWindow(2.0, 3.0)
    ended = [window.note(reading) for reading in readings(100.0, [None] * 8)]
    # The first update is seen at 1 s, the window is from 3 s to 6 s.
    found = [window.result[name] for name in ("frames_per_second", "frames_per_cpu_second", "samples_per_frame")]
    assert (ended.index(True), found) == (6, pytest.approx([100.0, 200.0, 0.32]))


def test_solved_is_told_with_its_time_and_unsolved_too() -> None:
    solving = Solving(17.0, 5.0)
    assert [solving.note(each) for each in readings(100.0, [None, 16.9, 17.0])] == [False, False, True]
    assert solving.result == {"solved": True, "minutes": 2 / 60, "frames": 200, "mean_return": 17.0}
    late = Solving(17.0, 5.0)
    assert list(itertools.accumulate(late.note(each) for each in readings(100.0, [3.0] * 7)))[5] == 1
    assert late.result["solved"] is False


def test_the_mean_of_a_hundred_games_is_of_records_that_share_none() -> None:
    """Two of three environments count: their last twenty games are among the last thirty, and two more for uneven ends."""
    games = measure.TrainingGames(RUNG["apart"], 1)
    for total in range(0, 164, 4):
        games.note({"episodes_total": float(total), "mean_return": float(total), "games": min(20.0, total * 2 / 3)})
        if total == 156:
            assert games.mean_return is None
    # Records at 32, 64, 96, 128 and 160 games: the first with twenty that count is at 32.
    assert games.mean_return == pytest.approx((32 + 64 + 96 + 128 + 160) / 5)


ROUNDS = {
    rung.name: [
        {
            "frames_per_second": (1 + place) * drift,
            "frames_per_cpu_second": (1 + place) * drift / 2,
            "samples_per_frame": rung.samples_per_frame,
            "cores": 2.0,
            "others_cores": 0.0,
        }
        for drift in (100.0, 60.0, 110.0)
    ]
    for place, rung in enumerate(rungs.MEASURED)
}


def test_ratios_are_of_the_same_round_and_pass_the_control_over() -> None:
    rows = {row.name: row for row in rows_of(rungs.MEASURED, ROUNDS | {PEER: ROUNDS["synchronous"]})}
    assert [row.below for row in rows.values()] == [
        None,
        "synchronous",
        "synchronous",
        "several",
        "apart",
        "several-tensors",
        "apart-tensors",
        None,
    ]
    several, tensors = rows["several"], rows["apart-tensors"]
    assert (several.over_below, several.over_first, several.cpu_over_first) == pytest.approx((3.0, 3.0, 3.0))
    ratios = (several.published_over_below, tensors.over_below, tensors.published_over_first)
    assert ratios == pytest.approx((228 / 159, 6 / 5, 409 / 159))
    assert (rows["apart-tensors-32"].published_over_first, rows[PEER].over_first) == (None, pytest.approx(1.0))
