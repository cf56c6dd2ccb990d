"""Runs beside each other: which are a group, what a verdict is, when a target is reached, and what can't be compared."""

import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import rljob
from rljob.comparison.comparison import Comparison, compare
from rljob.comparison.group import letters
from rljob.comparison.judged_run import CURVE_RECORDS, Target, read_judged_run
from rljob.errors import UsageError
from rljob.sources import keep_sources

from tests.support.judged_runs import judged_run
from tests.support.paths import EXAMPLES

FAST, SLOW = [450.0] * 19 + [480.0] * 11, [100.0] * 29 + [476.0]
"""Judged at records 10, 20 and 30: over the target of 475 at 20 (20,000 frames and 40 s) and at 30."""
RATE = "algorithm.learningRate"


def groups_of(folder: Path, count: int = 2) -> list[Path]:
    """``count`` runs of each of two learning rates, with a seed each."""
    made = []
    for rate, returns in (("1e-3", FAST), ("3e-4", SLOW)):
        for seed in range(count):
            shifted = [value + seed for value in returns]
            made.append(judged_run(folder / f"{rate}-{seed}", shifted, seed=seed, overrides=[f"{RATE}={rate}"]))
    return made


def seeds(folder: Path, returns: Sequence[float] = FAST, count: int = 2, **more: Any) -> list[Path]:
    """Runs that differ by their seed."""
    return [judged_run(folder / f"{at}", returns, seed=at, **more) for at in range(count)]


def notes(comparison: Comparison) -> str:
    return "\n".join(comparison.notes)


def refusal(paths: Sequence[Path], by: Sequence[str] = (), target: float | None = None) -> str:
    with pytest.raises(UsageError) as raised:
        compare(paths, by, target)
    return str(raised.value)


def test_runs_that_differ_by_their_seed_are_a_group(tmp_path: Path) -> None:
    """In any order."""
    made = groups_of(tmp_path)
    found = compare(made)
    assert found == compare(made[::-1])
    assert (found.environment, found.games, found.targets) == ("CartPole-v1", 100, (Target("mean", 475.0),))
    groups = [(each.name, each.settings[RATE], [run.seed for run in each.runs], each.scores) for each in found.groups]
    assert groups == [  # the higher mean first
        ("A", "0.001", [0, 1], (480.0, 481.0)),
        ("B", "0.0003", [0, 1], (476.0, 477.0)),
    ]
    assert [(pair.better, pair.than, pair.probability.value) for pair in found.pairs] == [("A", "B", 1.0)]
    assert "Fewer than 8 runs were judged in A, B: with 2," in notes(found)


def test_what_it_took_to_the_target(tmp_path: Path) -> None:
    """The first verdict of at least 475; evaluations are played every ten records of two seconds and a thousand frames."""
    for group, took in zip(compare(groups_of(tmp_path)).groups, ((20_000.0, 40.0), (30_000.0, 60.0)), strict=True):
        assert [(each.raw_frames, each.seconds) for each in group.to_target] == [took] * 2
        assert group.solved == 2


def test_a_run_that_is_not_solved_counts_as_slower_than_all(tmp_path: Path) -> None:
    made = [judged_run(tmp_path / f"{at}", returns, seed=at) for at, returns in enumerate([FAST, SLOW, [9.0] * 30])]
    for runs, solved, seconds in ((made, 2, 60.0), ([made[0], made[2]], 1, math.inf)):
        (group,) = compare(runs).groups
        assert (group.solved, group.median_to_target.seconds) == (solved, seconds)


def test_an_evaluation_that_was_given_up_scores_but_solves_nothing(tmp_path: Path) -> None:
    found = compare(seeds(tmp_path, given_up=[1, 2]))
    assert [(group.scores, group.solved) for group in found.groups] == [((480.0, 480.0), 0)]
    assert "given up early" in notes(found)


def test_a_target_of_several_evaluations_in_a_row(tmp_path: Path) -> None:
    found = compare(seeds(tmp_path, overrides=["successPolicy.targetReturn.windowEvaluations=2"]))
    (group,) = found.groups
    assert [each.seconds for each in group.to_target] == [60.0, 60.0]  # (480 + 480) / 2; (450 + 480) / 2 is too little
    assert str(found.targets[0]) == "mean return of at least 475 over 2 evaluations in a row"


def test_a_metric_of_the_environment_is_a_target_too(tmp_path: Path) -> None:
    metric = ["successPolicy.metric={name: is_success, value: 0.9}", "successPolicy.targetReturn="]
    found = compare(seeds(tmp_path, overrides=metric))
    # None of these evaluations has it.
    assert (str(found.targets[0]), found.groups[0].solved) == ("is_success of at least 0.9", 0)


def test_folders_may_be_named_by_texts(tmp_path: Path) -> None:
    made = groups_of(tmp_path)
    assert rljob.compare(list(map(str, made)), by=RATE).groups == compare(made, by=RATE).groups


def test_another_target_for_all(tmp_path: Path) -> None:
    made = groups_of(tmp_path)
    assert [group.solved for group in compare(made, target=481.0).groups] == [1, 0]
    assert "allowed: a number" in refusal(made, target=math.nan)
    other = judged_run(tmp_path / "other", FAST, overrides=["successPolicy.targetReturn.value=400"])
    assert [group.solved for group in compare([*seeds(tmp_path, count=1), other], target=475.0).groups] == [1, 1]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ("successPolicy.targetReturn.value=400", ["mean return of at least 400: 1 of the runs, such as"]),
        ("environment.id=Acrobot-v1", ["different environments", "id: Acrobot-v1"]),
        ("environment.maxEpisodeSteps=100", ["different environments", "maxEpisodeSteps: 100"]),
        ("evaluator.episodes=50", ["50 games: 1 of the runs, such as"]),
    ],
)
def test_other_targets_environments_and_verdicts_are_refused(tmp_path: Path, other: str, words: list[str]) -> None:
    said = refusal([judged_run(tmp_path / "a", FAST), judged_run(tmp_path / "b", FAST, overrides=[other])])
    assert [word for word in words if word not in said] == []


def test_groups_by_a_setting_of_ones_choice(tmp_path: Path) -> None:
    made = groups_of(tmp_path)
    found = compare(made, ["spec.seed"])
    assert [group.settings["seed"] for group in found.groups] == ["1", "0"]
    assert found.groups[0].settings[RATE] == "0.0003 or 0.001"
    assert f"A mixes runs with {RATE} 0.0003 or 0.001." in notes(found)
    # A section stands for all settings in it.
    assert [len(compare(made, by).groups) for by in ("metadata.name", ["algorithm"])] == [1, 2]
    for by, said in (
        ("algorithm.ppo.learningrat", "did you mean algorithm.learningRate?"),
        ("zzz", "rljob explain"),
    ):
        assert said in refusal(made, [by])


def test_parameters_of_one_algorithm_are_no_difference_to_another(tmp_path: Path) -> None:
    impala = EXAMPLES / "cartpole-impala.yaml"
    made = [judged_run(tmp_path / "a", FAST), judged_run(tmp_path / "b", FAST, manifest=impala)]
    groups = compare(made, target=475.0).groups
    assert {group.settings["algorithm.type"] for group in groups} == {"PPO", "IMPALA"}
    assert [path for path in groups[0].settings if path.startswith("algorithm.")] == ["algorithm.type"]


def test_settings_that_change_nothing_of_what_is_learned_are_no_difference(tmp_path: Path) -> None:
    def of(name: str, number: int) -> list[str]:
        tracked = f"tracking={{wandb: {{tags: [{name}]}}}}"
        led = [f"checkpoint.retain={number}", f"evaluator.intervalSeconds={number}", f"activeDeadlineSeconds={number}"]
        elsewhere = [f"learner.nodeSelector.zone={name}", f"actors.resources.requests.cpu={number}"]
        return [f"checkpoint.storage={{objectStore: {{url: 's3://bucket/{name}'}}}}", tracked, *led, *elsewhere]

    made = [judged_run(tmp_path / name, FAST, seed=at, overrides=of(name, at)) for at, name in enumerate("abcd", 1)]
    assert len(compare(made).groups) == 1
    assert len(compare(made, "tracking").groups) == 4, "unless they are asked for"


def test_a_project_that_has_moved_is_no_difference_and_an_edited_file_is_one(tmp_path: Path) -> None:
    made = []
    for name in "abc":
        env = tmp_path / name / "env.py"
        env.parent.mkdir()
        env.write_text("# edited" if name == "c" else "# first")
        made.append(judged_run(tmp_path / name / "run", FAST, seed=len(made), overrides=[f"environment.id={env}:make"]))
        keep_sources(made[-1], {"env.py": env})
    assert [dict(group.settings) for group in compare(made[:2]).groups] == [{}]
    found = compare(made)
    assert [[*group.settings] for group in found.groups] == [["code.env.py"]] * 2
    assert "started with different versions of code.env.py" in notes(found)


def test_runs_trained_elsewhere_and_judged_alike_are_compared(tmp_path: Path) -> None:
    alike = ["evaluator.environment={maxEpisodeSteps: 500}"]
    made = [
        judged_run(tmp_path / "a", FAST, overrides=alike),
        judged_run(tmp_path / "b", FAST, overrides=[*alike, "environment.maxEpisodeSteps=100"]),
    ]
    assert len(compare(made).groups) == 2


def test_folders_that_are_no_runs_are_told_all_at_once(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "unstarted").mkdir()
    (tmp_path / "unstarted" / "job.yaml").touch()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "job-effective.yaml").write_text("spec: [")
    said = refusal([tmp_path / name for name in ("gone", "empty", "file", "unstarted", "broken")])
    assert [line.split(": ")[1].split(";")[0] for line in said.splitlines()] == [
        "not valid YAML",
        "not a run folder",
        "not a folder",
        "no such folder",
        "never started (no job-effective.yaml)",
    ]


def test_one_run_is_refused_also_where_it_is_named_twice(tmp_path: Path) -> None:
    run = judged_run(tmp_path / "a", FAST)
    (tmp_path / "link").symlink_to(run)
    for runs in ([run], [run, run, tmp_path / "link"]):
        assert "give two runs to compare" in refusal(runs)


def test_no_run_is_refused_in_a_sentence_and_a_folder_may_stand_by_itself(tmp_path: Path) -> None:
    gone = r"^\S+/nowhere: no such folder"  # not a list of the letters of its name
    path = tmp_path / "nowhere"
    for runs, said in (([], "no runs are given; give two at least"), (path, gone), (str(path), gone)):
        with pytest.raises(UsageError, match=said):
            compare(runs)


def test_a_run_counts_once_also_where_it_lies_as_a_copy(tmp_path: Path) -> None:
    made = [judged_run(tmp_path / name, FAST, seed=at) for at, name in enumerate("ab")]
    copied = shutil.copytree(made[0], tmp_path / "copied")
    found = compare([*made, made[1], Path(copied)])
    assert len(found.groups[0].runs) == 2
    for run, same in ((copied, made[0]), (made[1], made[1])):
        assert f"{run} is the same run as {same}, and counts once." in found.notes


def test_runs_without_a_verdict_are_told_and_in_no_mean(tmp_path: Path) -> None:
    made = seeds(tmp_path)
    young = judged_run(tmp_path / "young", FAST[:5], seed=7, ended=False)
    bare = judged_run(tmp_path / "bare", FAST, seed=8)
    (bare / "metrics.jsonl").unlink()
    found = compare([*made, young, bare])
    (group,) = found.groups
    assert (len(group.runs), group.scores, group.solved) == (4, (480.0, 480.0), 2)
    assert {
        f"Left out of all means, without a verdict: {bare}, {young}.",
        f"Still running, so their newest verdict is not their last: {young}.",
    } <= set(found.notes)
    assert "none of the runs has been judged yet" in refusal([young, bare])


def test_lines_of_the_record_that_are_none_are_told(tmp_path: Path) -> None:
    made = seeds(tmp_path)
    record = made[0] / "metrics.jsonl"
    lines = record.read_bytes().splitlines()
    lines[5:5] = [
        b'{"mean_return": 1e99',
        b"\xff\xfe",
        b"[1, 2]",
        b"[" * 100_000,
        b'{"kind": "evaluation", "mean": NaN}',
    ]
    record.write_bytes(b"\n".join(lines) + b'\n{"mean_ret')  # and cut short by a kill
    found = compare(made)
    told = f"{made[0]}: 5 lines of metrics.jsonl can't be read and are left out." in found.notes
    assert (found.groups[0].scores, told) == ((480.0, 480.0), True)


def test_several_runs_of_one_seed_are_told_and_of_enough_runs_nothing(tmp_path: Path) -> None:
    made = [judged_run(tmp_path / name, FAST, seed=3) for name in "ab"]
    assert "A has several runs of seed 3" in notes(compare(made))
    assert "Fewer than" not in notes(compare(seeds(tmp_path, SLOW, 8)))


def test_different_machines_are_told(tmp_path: Path) -> None:
    made = seeds(tmp_path)
    record = made[1] / "metrics.jsonl"
    record.write_text(record.read_text().replace('"cores":', '"cores":9'))
    assert "Seconds are of different machines:" in notes(compare(made))


def test_a_long_record_is_read_in_part_with_all_its_verdicts(tmp_path: Path) -> None:
    run = read_judged_run(judged_run(tmp_path / "long", [float(at) for at in range(5_000)], evaluate_every=7))
    assert CURVE_RECORDS / 2 < len(run.points) < CURVE_RECORDS * 2
    assert (len(run.evaluations), run.points[-1]["mean_return"]) == (5_000 // 7, 4_999)


def test_the_figures_of_a_group_do_not_depend_on_those_beside_it(tmp_path: Path) -> None:
    for group in compare(groups_of(tmp_path)).groups:
        (alone,) = compare([run.path for run in group.runs]).groups
        assert (alone.iqm, alone.mean, alone.to_target) == (group.iqm, group.mean, group.to_target)
        assert alone.settings == {}, "only what differs among the runs that were named"


def test_every_run_of_many_counts(tmp_path: Path) -> None:
    made = [judged_run(tmp_path / f"{at}", [float(at)] * 10, seed=at, began_unix=1e9 + at) for at in range(120)]
    (group,) = compare(made).groups
    assert (len(group.runs), group.mean and group.mean.value) == (120, 59.5)


def test_many_groups_are_compared_with_the_first(tmp_path: Path) -> None:
    made = [
        judged_run(tmp_path / f"{at}", [100.0 + at] * 10, overrides=[f"{RATE}={1e-4 * (at + 1):.1e}"])
        for at in range(8)
    ]
    assert [(pair.better, pair.than) for pair in compare(made).pairs] == [("A", name) for name in "BCDEFGH"]
    assert len(compare(made[:6]).pairs) == 15


def test_groups_have_as_many_letters_as_they_need() -> None:
    assert [letters(at) for at in (0, 25, 26, 51, 52, 701, 702)] == ["A", "Z", "AA", "AZ", "BA", "ZZ", "AAA"]
