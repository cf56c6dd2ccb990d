"""An experiment's manifest: which settings it stands for, and what is refused of it."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rljob.api import ManifestError, parse_job, with_files_beside
from rljob.api.catalogue import UnknownField, explained
from rljob.api.document import parse_document
from rljob.api.experiment import RLExperiment
from rljob.api.experiment_check import parse_experiment
from rljob.api.experiment_trials import Experiment, dump_experiment
from rljob.api.fields import TypedPlace, places_below
from rljob.api.load import read_document

from tests.support.paths import EXAMPLES

LEARNING_RATE = "algorithm.learningRate"
EXAMPLE = EXAMPLES / "experiments" / "cartpole-search.yaml"


def written(**spec: Any) -> dict[str, Any]:
    whole = {"template": {"spec": {"environment": {"id": "CartPole-v1"}}}, "budget": {"rawFrames": 9000}, **spec}
    return {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLExperiment", "metadata": {"name": "a"}, "spec": whole}


def random(parameters: dict[str, Any], trials: int = 5, seed: int = 0, **spec: Any) -> dict[str, Any]:
    return written(search={"random": {"trials": trials, "seed": seed}, "parameters": parameters}, **spec)


def problems(document: dict[str, Any]) -> list[str]:
    with pytest.raises(ManifestError) as found:
        parse_experiment(document)
    return [str(problem) for problem in found.value.problems]


def trials(experiment: Experiment) -> list[dict[str, Any]]:
    return [dict(experiment.settings(trial)) for trial in range(experiment.trials)]


def test_the_example_is_a_grid_whose_last_parameter_by_name_changes_first() -> None:
    experiment = parse_experiment(read_document(EXAMPLE))
    found = trials(experiment)
    assert found[1] == {LEARNING_RATE: 1e-3, "algorithm.entropyCost": 0.0}
    assert len({tuple(each.values()) for each in found}) == len(found) == 9
    assert experiment.rungs == (10_000, 30_000, 90_000)


def test_the_manifest_in_force_is_the_same_experiment() -> None:
    experiment = parse_experiment(read_document(EXAMPLE))
    again = parse_experiment(parse_document(dump_experiment(experiment).encode(), "dump"))
    assert (again.spec, trials(again)) == (experiment.spec, trials(experiment))


def test_draws_are_the_same_everywhere_and_fill_their_space() -> None:
    parameters = {
        LEARNING_RATE: {"logUniform": {"min": 1e-4, "max": 1e-2}},
        "algorithm.epochs": {"uniform": {"min": 2, "max": 5}},
        "algorithm.gamma": {"uniform": {"min": 0.9, "max": 0.99}},
        "algorithm.optimizer": {"values": ["Adam", "RMSProp"]},
    }
    found = trials(parse_experiment(random(parameters, trials=600, seed=7)))
    # Literal numbers: another machine or release must draw the same.
    assert found[0] == {
        LEARNING_RATE: 0.000409764,
        "algorithm.epochs": 3,
        "algorithm.gamma": 0.911577,
        "algorithm.optimizer": "Adam",
    }
    assert sum(each[LEARNING_RATE] < 1e-3 for each in found) == pytest.approx(300, abs=50)
    assert all(1e-4 <= each[LEARNING_RATE] <= 1e-2 for each in found)
    epochs = Counter(each["algorithm.epochs"] for each in found)
    assert epochs.keys() == {2, 3, 4, 5}
    assert all(count == pytest.approx(150, abs=45) for count in epochs.values())
    assert math.fsum(each["algorithm.gamma"] for each in found) / 600 == pytest.approx(0.945, abs=0.005)
    assert trials(parse_experiment(random(parameters, trials=600, seed=8))) != found


def test_no_setting_is_drawn_twice() -> None:
    """The same seed of training would play it again, for as much. Every setting of a small space is drawn as by a grid."""
    parameters = {
        LEARNING_RATE: {"values": [1e-3, 1e-4, 1e-5]},
        "algorithm.epochs": {"logUniform": {"min": 1, "max": 40}},
    }
    for seed in range(5):
        found = trials(parse_experiment(random(parameters, trials=120, seed=seed)))
        assert len({(each[LEARNING_RATE], each["algorithm.epochs"]) for each in found}) == 120
        # More trials leave the ones before them as they are.
        assert trials(parse_experiment(random(parameters, trials=30, seed=seed))) == found[:30]


def test_a_space_with_next_to_nothing_in_it_is_drawn_from_all_the_same() -> None:
    """Numbers have six digits, of which there are few between such bounds."""
    narrow = {LEARNING_RATE: {"uniform": {"min": 1e-3, "max": 1.00002e-3}}}
    assert len(trials(parse_experiment(random(narrow, trials=20)))) == 20


def test_each_value_is_played_as_it_is_and_tells_its_trial_apart() -> None:
    values = ["on", "1e3", "null", "1", 1, 1.0, True, None, {"a": [2.0]}]
    document = written(search={"grid": {}, "parameters": {"environment.kwargs.mode": {"values": values}}})
    document["spec"]["template"]["spec"] = {
        "environment": {"id": "my_game:make"},
        "evaluator": {"environment": {"kwargs": {}}},
    }
    experiment = parse_experiment(document)
    for each in (experiment, parse_experiment(parse_document(dump_experiment(experiment).encode(), "dump"))):
        assert repr([each.job(trial).spec.environment.kwargs["mode"] for trial in range(each.trials)]) == repr(values)
    document["spec"]["search"]["parameters"] = {"algorithm.gamma": {"values": ["0.9"]}}
    assert "got '0.9'; spec.algorithm.gamma: allowed: a number from 0 to 1" in problems(document)[0]


def test_settings_that_make_no_valid_job_are_drawn_again_and_a_grid_of_them_is_refused() -> None:
    """An iteration's steps, 128 times the batch, are divided into equal minibatches."""
    parameters = {
        "algorithm.batchSize": {"values": [8, 12, 16, 20]},
        "algorithm.minibatches": {"values": [3, 4, 5, 7]},
    }
    experiment = parse_experiment(random(parameters, trials=6))
    found = {tuple(each.values()) for each in trials(experiment)}
    assert found == {(8, 4), (12, 3), (12, 4), (16, 4), (20, 4), (20, 5)}
    assert experiment.in_words.endswith(f"; left out: {len(experiment.refused)} draws that make no valid job")
    assert "10 draws make no valid job, and 6 of 7 trials do" in problems(random(parameters, trials=7))[0]
    never = {"algorithm.minibatches": {"values": [7]}, LEARNING_RATE: {"uniform": {"min": 0.1, "max": 0.2}}}
    assert "200 draws make no valid job, and 0 of 5 trials do" in problems(random(never))[0]
    assert "got 2; spec.algorithm.gamma: allowed" in problems(random({"algorithm.gamma": {"values": [0.9, 2]}}, 2))[0]
    (said,) = problems(written(search={"grid": {}, "parameters": parameters}))
    assert "(in trial 0; 10 of 16 trials are no valid job)" in said


def test_a_run_is_a_job_that_its_user_could_have_written() -> None:
    document = random({"algorithm.learningRate": {"values": [1e-3, 1e-4, 1e-5]}}, trials=3, seeds=3)
    document["spec"]["template"]["metadata"] = {"labels": {"kueue.x-k8s.io/queue-name": "team"}}
    document["spec"]["template"]["spec"]["seed"] = 40
    job = parse_job(parse_experiment(document).manifest(2, 3, 4000))
    assert (job.metadata.name, job.metadata.labels) == ("a-2-s3", {"kueue.x-k8s.io/queue-name": "team"})
    assert (job.spec.success_policy.raw_frames, job.spec.seed) == (4000, 42)


def test_trials_that_are_judged_in_different_environments_are_refused() -> None:
    """The best of them would be that of the game with the largest returns."""
    parameters = {"environment.kwargs.goal": {"values": [1, 2]}, LEARNING_RATE: {"values": [1e-3, 1e-4]}}
    document = written(search={"grid": {}, "parameters": parameters})
    document["spec"]["template"]["spec"]["environment"]["id"] = "my_game:make"
    (said,) = problems(document)
    assert said.startswith("spec.search: allowed: trials that are judged in one environment")
    assert "(trial 0 in {id: 'my_game:make', kwargs: {goal: 1}, " in said
    assert "trial 1 in {id: 'my_game:make', kwargs: {goal: 2}, " in said
    document["spec"]["template"]["spec"]["evaluator"] = {"environment": {"kwargs": {"goal": 3}}}
    assert parse_experiment(document).trials == 4


def test_the_budget_is_the_templates_unless_it_is_written() -> None:
    document = written(budget={})
    document["spec"]["template"]["spec"] = {"preset": "PPOVector", "environment": {"id": "LunarLander-v3"}}
    assert parse_experiment(document).rungs == (1_000_000,)


def test_rungs_of_the_median_rule() -> None:
    assert parse_experiment(random(ONE, prune={"median": {"afterRawFrames": 4000}})).rungs == (4000, 8000, 9000)


def test_suggestions_begin_where_draws_end() -> None:
    """As long as nothing is suggested, a trial has what random search would draw."""
    (said,) = problems(written(search={"tpe": {"trials": 10}, "parameters": ONE}))
    assert said.startswith("spec.search.tpe.startupTrials: got 10; allowed: at most one less than trials (here 9)")
    rates = {LEARNING_RATE: {"logUniform": {"min": 1e-4, "max": 1e-2}}}
    found = parse_experiment(written(search={"tpe": {"trials": 20, "seed": 3}, "parameters": rates}))
    assert trials(found) == trials(parse_experiment(random(rates, trials=20, seed=3)))
    found.suggested[4] = {LEARNING_RATE: 0.005}
    assert found.manifest(4, 1, 100)["spec"]["algorithm"]["learningRate"] == 0.005


def test_every_field_is_explained() -> None:
    fields = list(places_below(TypedPlace(RLExperiment), "rlexperiment"))
    own = [path for path, _ in fields if not path.startswith("rlexperiment.spec.template.spec.")]
    assert len(own) == 54
    for path in own:
        found = explained(path)
        assert found.path == path
        assert found.type, path
        assert all(found.description), path
    assert explained("rlexperiments.search.random").path == "rlexperiment.spec.search.random"
    with pytest.raises(UnknownField, match=r"did you mean rlexperiment\.spec\.seeds"):
        explained("rlexperiment.sead")


def test_files_are_found_beside_the_manifest(tmp_path: Path) -> None:
    (tmp_path / "net.py").touch()
    document = written(search={"list": [{"algorithm.network": "net.py:make"}]})
    document["spec"]["template"]["spec"]["environment"]["id"] = "net.py:make"
    found = with_files_beside(document, tmp_path)["spec"]
    assert found["search"]["list"][0]["algorithm.network"] == f"{tmp_path}/net.py:make"
    assert found["template"]["spec"]["environment"]["id"] == f"{tmp_path}/net.py:make"


ONE = {LEARNING_RATE: {"values": [1e-3, 1e-4, 1e-5, 1e-6, 1e-7]}}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (random({"algorithm.ppo.learningRat": {"values": [1]}}), "unknown field; did you mean 'spec.algorithm.learningRate'?"),
        (random({LEARNING_RATE: {"values": [2]}}), "got 2; spec.algorithm.learningRate: allowed: a number above 0"),
        (random({"algorithm.impala.cClip": {"values": [0.9]}, "algorithm.type": {"values": ["PPO"]}}), "impala"),
        (random({}), "spec.search.parameters: required: a field to vary"),
        (random({LEARNING_RATE: {"values": []}}), "allowed: a list of at least 1"),
        (random({LEARNING_RATE: {}}), "exactly one of logUniform, uniform and values"),
        (random({LEARNING_RATE: {"uniform": {"min": 0.2, "max": 0.1}}}), "got 0.1; allowed: more than min (0.2)"),
        (random({LEARNING_RATE: {"logUniform": {"min": 0, "max": 0.1}}}), "above 0, which has no logarithm"),
        (random({"algorithm.epochs": {"uniform": {"min": 2.1, "max": 2.9}}}), "which these fields take (algorithm.epochs)"),
        (random({"algorithm.ppo.a b": {"values": [1]}}), "allowed: the path of a field below spec"),
        (random({"metadata.name": {"values": ["b"]}}), "allowed: fields below spec"),
        (random({"suspend": {"values": [True]}}), "the experiment starts and stops its runs"),
        (random({"spec.successPolicy.rawFrames": {"values": [1]}}), "below spec (not successPolicy.rawFrames)"),
        (random({"seed": {"values": [1]}}, seeds=2), "allowed: other fields than seed; seeds says which"),
        (random(ONE, prune={"halving": {"firstRawFrames": 9000}}), "one less than budget.rawFrames (here 8,999)"),
        (random(ONE, prune={"median": {"afterRawFrames": 9000}}), "one less than budget.rawFrames (here 8,999)"),
        (random(ONE, prune={"median": {"afterRawFrames": 1}}), "at least budget.rawFrames / 100 (here 90)"),
        (random(ONE, prune={}), "exactly one of halving and median"),
        (random(ONE, trials=0), "spec.search.random.trials: got 0; allowed: an integer from 1 to 1,000"),
        (random(ONE, budget={}), "spec.budget.rawFrames: required"),
        (random(ONE, parallelism=0), "spec.parallelism: got 0; allowed: an integer from 1 to 1,000"),
        (written(prune={"halving": {"firstRawFrames": 10}}), "only with search"),
        (written(search={"parameters": ONE}), "exactly one of random, grid, list and tpe"),
        (written(search={"grid": {}, "parameters": {LEARNING_RATE: {"uniform": {"min": 0, "max": 1}}}}), "in a grid: values"),
        (written(search={"list": [{LEARNING_RATE: 1e-3}, {LEARNING_RATE: 3}]}), f"spec.search.list[1][{LEARNING_RATE}]: got 3"),
        (written(search={"list": [{LEARNING_RATE: 1e-3}], "parameters": ONE}), "not beside list"),
        (
            written(search={"list": [{LEARNING_RATE: 1e-3}, {LEARNING_RATE: 1e-4}, {LEARNING_RATE: 0.001}]}),
            "spec.search.list: allowed: each setting once (not [{algorithm.learningRate: 0.001}])",
        ),
        (
            written(search={"grid": {}, "parameters": {LEARNING_RATE: {"values": [1e-3, 1e-4, 0.001]}}}),
            f"spec.search.parameters: allowed in a grid: each value once ({LEARNING_RATE})",
        ),
        (random(ONE, trials=6), "spec.search.random.trials: got 6; allowed: up to 5, as parameters have no more settings"),
        (
            written(search={"tpe": {"trials": 50}, "parameters": {"algorithm.epochs": {"uniform": {"min": 1, "max": 40}}}}),
            "spec.search.tpe.trials: got 50; allowed: up to 40",
        ),
        (written(template={"spec": {"preset": "PongVtrace"}}), "spec.template.spec.preset: got 'PongVtrace'"),
        (
            written(template={"spec": {"environment": {"id": "a"}, "suspend": True}}),
            "spec.template.spec.suspend: got true; allowed: false; the experiment starts and stops",
        ),
        (
            written(template={"spec": {"environment": {"id": "a"}, "ttlSecondsAfterFinished": 60}}),
            "spec.template.spec.ttlSecondsAfterFinished: got 60; allowed: unset; a run is judged after its end",
        ),
        (written(template={}), "spec.template.spec: required"),
        (written(sead=1), "spec.sead: got 1; unknown field; did you mean 'seeds'?"),
        ({**random(ONE), "metadata": {"name": "a" * 44}}, "metadata.name: got"),
        (
            written(search={"grid": {}, "parameters": {f"algorithm.ppo.{name}": {"values": list(range(40))} for name in "ab"}}),
            "up to 1,000 trials; these are 1,600",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_place(document: dict[str, Any], said: str) -> None:
    found = problems(document)
    assert any(said in problem for problem in found), found
    assert len(found) <= 2


@pytest.mark.parametrize(
    ("storage", "places"),
    [
        ({"objectStore": {"url": "s3://mine/sweep/"}}, ["s3://mine/sweep/a-0", "s3://mine/sweep/a-0-s2"]),
        ({"persistentVolumeClaim": {"claimName": "all"}}, ["a-0", "a-0-s2"]),
        ({"persistentVolumeClaim": {"claimName": "all", "subPath": "x"}}, ["x/a-0", "x/a-0-s2"]),
    ],
)
def test_each_run_has_a_place_of_its_own_for_its_checkpoints(storage: dict[str, Any], places: list[str]) -> None:
    """Else the second would go on with what the first has learned."""
    template = {"spec": {"environment": {"id": "CartPole-v1"}, "checkpoint": {"storage": storage}}}
    experiment = parse_experiment(written(template=template, seeds=2))
    assert [
        each.object_store.url if each.object_store is not None else each.persistent_volume_claim.sub_path
        for each in [parse_job(experiment.manifest(0, seed, 9000)).spec.checkpoint.storage for seed in (1, 2)]
        if each is not None
    ] == places
