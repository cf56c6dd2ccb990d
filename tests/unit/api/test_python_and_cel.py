"""`rljob validate` and a cluster's API server must give the same verdict on a manifest.

On the job in force, every field written, they agree: the rules of both are the same. On a manifest as people write it, the API
server knows neither what a preset nor what a default says. So it refuses nothing that `rljob validate` accepts, and it lets pass
only what breaks a rule between a field that is written and one that is not, or what `NOT_IN_CEL` lists; the controller refuses
that.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from pydantic.alias_generators import to_snake
from rljob.api import ManifestError, RLJob, dump_manifest, parse_job, transition_problems
from rljob.api.algorithm import BLOCKS
from rljob.api.apex_dqn import ApeXDQNParameters
from rljob.api.environment import EnvironmentParameters
from rljob.api.generate.cel import rule_validations
from rljob.api.impala import ImpalaParameters
from rljob.api.nulls import without_nulls
from rljob.api.parameters import ParameterSet
from rljob.api.presets.merging import with_preset
from rljob.api.rules import RULES, broken_rules

from tests.support import api_server
from tests.unit.api.bad_manifests import (
    BASE,
    EDGES,
    FOLLOWING,
    IMPALA,
    NOTHING_TO_START_FROM,
    NULLS,
    NUMBERS,
    OF_THE_MANIFEST,
    PRESET,
)
from tests.unit.api.changed_manifests import CHANGES, WRITTEN_OUT, rule_of, said_by_the_server
from tests.unit.api.written import CLUSTER, EXAMPLES, document, effective

IDS = [f"{case[0].stem} {' '.join(case[1])[:70]}" for case in OF_THE_MANIFEST]


def python_refuses(given: dict[str, Any]) -> str:
    try:
        parse_job(given)
    except ManifestError as error:
        return str(error)
    return ""


def wrong_by_itself(given: dict[str, Any]) -> str:
    """What `rljob` has against single fields, whatever stands beside them."""
    try:
        RLJob.model_validate(with_preset(without_nulls(given)), by_alias=True, by_name=False)
    except ValidationError as error:
        return str(error)
    return ""


# --- the tables -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", [*EXAMPLES, BASE, IMPALA, PRESET], ids=lambda file: file.stem)
def test_examples_are_accepted(file: Path) -> None:
    assert api_server.refusals(document(file)) == []
    assert api_server.refusals(effective(file)) == []


def test_no_two_rows_of_the_table_are_one_manifest() -> None:
    written = [json.dumps(document(base, overrides), sort_keys=True) for base, overrides, _, _ in OF_THE_MANIFEST]
    assert len(written) == len(set(written))


@pytest.mark.parametrize(("base", "overrides", "path", "words"), OF_THE_MANIFEST, ids=IDS)
def test_a_bad_manifest_is_refused_by_the_cluster(
    base: Path, overrides: list[str], path: str, words: list[str]
) -> None:
    given = document(base, overrides)
    as_written = api_server.refusals(given)
    assert as_written or not wrong_by_itself(given), "only a rule between two fields may need what is not written"
    refusals = as_written or api_server.refusals(effective(base, overrides))
    assert refusals
    field = path.split(".")[-1].split("[")[0]
    section = ".".join(path.split(".")[:2])
    assert any(field in refusal or section in refusal for refusal in refusals), refusals
    assert not any("unable to evaluate" in refusal for refusal in refusals), refusals


@pytest.mark.parametrize(("base", "overrides", "path", "words"), OF_THE_MANIFEST, ids=IDS)
def test_python_and_cel_agree_on_a_bad_manifest_once_every_field_is_written(
    base: Path, overrides: list[str], path: str, words: list[str]
) -> None:
    whole = effective(base, overrides)
    assert bool(python_refuses(whole)) == bool(api_server.refusals(whole))


@pytest.mark.parametrize(
    "overrides",
    [
        ["spec.preset="],
        ["spec.preset=", "spec.algorithm.type=IMPALA"],
        ["spec.preset=", "spec.algorithm.impala={gamma: 0.9}", "spec.environment.frameSize=42"],
    ],
)
def test_a_job_without_anything_to_start_from_is_told_the_same_sentence(overrides: list[str]) -> None:
    given = document(PRESET, overrides)
    assert [python_refuses(given)] == api_server.refusals(given) == [f"spec: {NOTHING_TO_START_FROM}"]


def test_each_rule_has_a_name_of_its_own() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_every_rule_is_broken_by_the_table() -> None:
    documents = [make(*case[:2]) for case in OF_THE_MANIFEST for make in (document, effective)]
    said = "\n".join(refusal for given in documents for refusal in api_server.refusals(given))
    assert [rule.name for rule in RULES if rule.message not in said] == []


@pytest.mark.parametrize(("base", "edge", "beyond"), EDGES, ids=[f"{case[0].stem} {case[2]}" for case in EDGES])
def test_the_edge_of_a_rule_is_at_the_same_place(base: Path, edge: list[str], beyond: str) -> None:
    good, bad = document(base, edge), document(base, [*edge, beyond])
    assert python_refuses(good) == ""
    assert api_server.refusals(good) == []
    assert python_refuses(bad)
    assert api_server.refusals(effective(base, edge)) == []
    assert api_server.refusals(effective(base, [*edge, beyond]))


@pytest.mark.parametrize(
    ("base", "override"), [*NULLS, *NUMBERS], ids=[f"{base.stem} {override}" for base, override in [*NULLS, *NUMBERS]]
)
def test_a_good_manifest(base: Path, override: str) -> None:
    given = document(base, [override])
    assert python_refuses(given) == ""
    assert api_server.refusals(given) == []


@pytest.mark.parametrize(
    ("base", "overrides", "field", "value"),
    FOLLOWING,
    ids=[f"{case[0].stem} {' '.join(case[1])}" for case in FOLLOWING],
)
def test_a_default_follows_from_what_is_written(base: Path, overrides: list[str], field: str, value: Any) -> None:
    assert api_server.refusals(document(base, overrides)) == []
    whole = effective(base, overrides)
    assert api_server.refusals(whole) == []
    assert parse_job(document(base, overrides)).spec == parse_job(whole).spec
    node = whole["spec"]
    for name in field.split("."):
        node = node.get(name)
    assert node == value


def test_a_null_in_a_pod_template_stays() -> None:
    """It removes the field from the generated pod."""
    template = {"spec": {"hostname": None, "containers": [None]}}
    job = parse_job(document(BASE, [f"spec.learner.podTemplate={json.dumps(template)}"]))
    assert job.spec.learner.pod_template == template
    assert yaml.safe_load(dump_manifest(job))["spec"]["learner"]["podTemplate"] == template


@pytest.mark.parametrize(
    ("base", "before", "after", "field"), CHANGES, ids=[f"{case[0].stem} {' '.join(case[2])[:60]}" for case in CHANGES]
)
def test_changes(base: Path, before: list[str], after: list[str], field: str | None) -> None:
    old, new = document(base, before), document(base, [*before, *after])
    problems = transition_problems(parse_job(old), parse_job(new))
    refusals = api_server.refusals(new, stored=old)
    if field is None:
        assert problems == []
        assert refusals == []
        return
    rule = rule_of(field)
    assert rule.message in [problem.message for problem in problems if problem.path.startswith(f"spec.{field}")]
    assert ": ".join(said_by_the_server(rule)) in refusals


@pytest.mark.parametrize(
    ("base", "before", "after", "field"),
    WRITTEN_OUT,
    ids=[f"{base.stem} {' '.join(after)}" for base, _, after, _ in WRITTEN_OUT],
)
def test_what_is_written_out_is_a_change_for_the_cluster_only(
    base: Path, before: list[str], after: list[str], field: str
) -> None:
    old, new = document(base, before), document(base, [*before, *after])
    assert transition_problems(parse_job(old), parse_job(new)) == []
    assert ": ".join(said_by_the_server(rule_of(field))) in api_server.refusals(new, stored=old)


# --- the property ---------------------------------------------------------------------------------------------------

START = [document(file) for file in (BASE, IMPALA, PRESET, CLUSTER)]
IN_FORCE = [effective(file) for file in (BASE, IMPALA, PRESET, CLUSTER)]
NUMBERS_AND_MORE = (
    0, 1, 2, 3, 7, 8, 20, 31, 32, 33, 100, 128, 640, 1.0, 2e6, 1e-5, 0.5, 0.999, 1.5, -1, 10**16, 1e300,
    float("nan"), float("inf"), "0.5", "1", "", True, False, "true", "None", "LSTM", "VTrace", "ClippedSurrogate", "Adam",
    "RMSProp", "CentredRMSProp", "MLP", "Nature", "my_pkg.nets:make", "Auto", "Enabled", [], {}, [1], {"a": 1}, None,
)  # fmt: skip
PARAMETERS: dict[str, type[ParameterSet]] = {
    "algorithm.apeXDQN": ApeXDQNParameters,
    "algorithm.impala": ImpalaParameters,
    "environment": EnvironmentParameters,
}
SETTINGS: dict[str, tuple[Any, ...]] = {
    "preset": ("PongVTrace", "PongApeX", "ImpalaAtari", "ApeXAtari", "Best", None),
    "algorithm.type": ("ApeXDQN", "IMPALA", "DQN", None),
    "algorithm.impala": ({}, {"gamma": 0.9}, None, 3),
    "algorithm.apeXDQN": ({}, {"gamma": 0.9}, None, []),
    "algorithm.custom": ({"factory": "m:f"}, {"factory": "m"}, {}, None),
    "replay": (None, {}, {"capacity": 100}, {"shards": 2}),
    "replay.capacity": (0, 1, 40, 399, 400, 401, 8000, 50_000, 2e5, 10**11, 10**12, "5", True),
    "replay.shards": (0, 1, 2, 3, 256, 257),
    "replay.rateLimiter.minSize": (0, 1, 127, 128, 400, 8000, 50_000, 10**15, 10**16),
    "replay.rateLimiter.samplesPerInsert": (0, 0.5, 1, 8, 10_000, 10_001, -1, "6", float("inf"), 1e2),
    "replay.rateLimiter.errorBuffer": (0, 99, 100, 599.5, 600, 799, 800, 1e15, 1e16, None),
    "replay.capacityBytes": ("1Gi", "4GB", 5, "0", -1, "1e3", "1e300"),
    "replay.prioritization.exponent": (0, 1, 1.0001, -0.0, 0.5, "0.5"),
    "queue": ({}, None),
    "algorithm.impala.unrollQueue": (None, {}, {"capacity": 31}, {"maxPolicyLagUpdates": 3}),
    "algorithm.impala.unrollQueue.capacity": (0, 1, 31, 32, 33, 64, 1000, 10**6, 10**7),
    "algorithm.impala.unrollQueue.maxPolicyLagUpdates": (0, 1, 3, 4, 5, 6, 50, 107, 108, 400, 10**9),
    "algorithm.impala.unrollQueue.overflow": ("Block", "DropOldest", "Drop"),
    "actors.replicas": (-1, 0, 1, 2, 16, 100, 200, 201, 100_001),
    "actors.envsPerActor": (0, 1, 3, 4, 5, 8, 64, 65, 4096),
    "actors.inference": ("Local", "Central"),
    "inference.replicas": (0, 1, 1001),
    "inference.maxBatchSize": (1, 7, 8, 64),
    "autoscaling.mode": ("Internal", "External", "Disabled", "On"),
    "autoscaling.minReplicas": (0, 1, 4, 5, 200),
    "autoscaling.maxReplicas": (0, 1, 3, 16, 200),
    "autoscaling.rateWindowSeconds": (14, 15, 60),
    "autoscaling.guards": (None, {}, {"maxPolicyLagUpdates": 4}, {"maxPolicyLagUpdates": 51}),
    "autoscaling.target.queueUtilizationPercent": (0, 1, 50, 99, 100),
    "autoscaling.missingMetrics": ({"action": "Fallback"}, {"action": "Fallback", "fallback": {"replicas": 500}}, {}),
    "evaluator.enabled": (True, False, "true"),
    "evaluator.triggerReturn": (None, 3, "3"),
    "successPolicy.targetReturn": (None, {"value": 18}, {}),
    "earlyStopping.plateau": (None, {}, {"minDelta": -1}),
    "suspend": (True, False),
    "checkpoint": (None, {}, {"onSuspend": "Skip"}, {"storage": {}}, {"include": ["Replay"]}, {"include": ["Learner"] * 2}),
    "failurePolicy.rules": (
        [],
        [{"name": "a", "action": "Ignore"}],
        [{"name": "a", "onExitCodes": {"values": [0]}, "action": "Ignore"}],
        [{"name": "a", "onExitCodes": {"values": [1]}, "roles": ["Actor", "Actor"], "action": "Ignore"}],
        [{"name": "a", "onPodConditions": [{"type": "X"}], "action": "Ignore"}] * 2,
        [{"name": "a", "onPodConditions": [{"type": "X"}], "onExitCodes": None, "action": "Ignore"}],
        [{"name": "a", "onPodConditions": [{"type": "X"}], "onExitCode": None, "action": "Ignore"}],
    ),
    "learner.accelerator": ({}, {"count": 2}, {"count": None, "onMissing": "Fail"}, {"count": 0, "onMissing": "UseCPU"}),
    "learner.resources": ({"limits": {"cpu": 2}}, {"requests": {"cpu": "lots"}}, {"requests": {"cpu": True}}, {"x": {}}),
    "learner.resources.limits": (None, {"cpu": None}, {"cpu": 1, "memory": None}),
    "learner.podTemplate": ({"any": {"thing": [1]}}, {"metadata": {"labels": None}}, [], None),
    "learner.tolerations": ([{}], [{"operator": "Exists", "anything": ["x"]}], [None], None),
    "learner.env": (
        None,
        [],
        [{"name": "A", "value": "a"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        [{"name": "A", "value": None}],
        [{"name": "A"}, {"name": "A"}],
        [{"name": None}],
        [{"value": "a"}],
        [None],
    ),
    "actors.volumeMounts": ([{"name": "a", "mountPath": "/a"}], [{"mountPath": "/a"}] * 2, [{"name": "a"}]),
    "actors.nodeSelector": (None, {"zone": None}, {"zone": "a"}),
    "actors.spot": (True, "true"),
    "actors.replcas": (2, None),
    "imagePullSecrets": ([{"name": "a"}, {"name": "a"}], [{}], [None], [{"name": None}], [{"name": "a", "nmae": None}], []),
    "environment.id": ("CartPole-v1", "a b", "", 5, "m:f\n", None),
    "environment.actions": ([], [0, 1], [0, 0], [1024], ["0"], "0,1", None),
    "environment.kwargs": ({}, {"a": {"b": [1, None]}}, [], "{}", None),
    "environment.fullActionSpace": (True, False),
    "unknown": (1, None),
    **{f"algorithm.{block}.wings": (1, None) for block in BLOCKS.values()},
    **{
        f"{section}.{field.alias or name}": NUMBERS_AND_MORE
        for section, model in PARAMETERS.items()
        for name, field in model.model_fields.items()
        if name not in ("unroll_queue", "kwargs", "actions")
    },
}  # fmt: skip
SETTING = st.sampled_from([(path, value) for path, values in SETTINGS.items() for value in values])


def changed(given: dict[str, Any], path: str, value: Any, *, merge: bool = False) -> None:
    """Set ``spec.<path>``; nothing happens where something above it is no mapping. ``merge``: what a mapping has not, stays."""
    node: Any = given["spec"]
    *above, last = path.split(".")
    for part in above:
        if not isinstance(node, dict):
            return
        if node.get(part) is None:
            node[part] = {}
        node = node[part]
    if isinstance(node, dict):
        new = copy.deepcopy(value)
        keep = merge and isinstance(new, dict) and isinstance(node.get(last), dict)
        node[last] = {**node[last], **new} if keep else new


def edited(edits: tuple[dict[str, Any], list[tuple[str, Any]]]) -> dict[str, Any]:
    start, places = edits
    given = copy.deepcopy(start)
    for path, value in places:
        changed(given, path, value)
    return given


@example(edited((START[0], [("unknown", None)])))
@settings(max_examples=300)
@given(st.tuples(st.sampled_from(START), st.lists(SETTING, max_size=5)).map(edited))
def test_the_cluster_refuses_nothing_that_python_accepts_nor_accepts_a_field_that_is_wrong(
    given: dict[str, Any],
) -> None:
    python, cluster = python_refuses(given), api_server.refusals(given)
    assert python or not cluster, f"rljob validate accepts it; API server: {cluster}"
    alone = wrong_by_itself(given)
    assert cluster or not alone or not api_server.sendable(given), f"API server accepts it; rljob validate: {alone}"


@settings(max_examples=300)
@given(st.sampled_from(IN_FORCE), st.lists(SETTING, max_size=4))
def test_python_and_cel_give_the_same_verdict_on_the_job_in_force(
    start: dict[str, Any], edits: list[tuple[str, Any]]
) -> None:
    given = copy.deepcopy(start)
    for path, value in edits:
        if value is not None:  # every field stays written
            changed(given, path, value, merge=True)
    if not api_server.sendable(given):
        return
    python, cluster = python_refuses(given), api_server.refusals(given)
    assert bool(python) == bool(cluster), (
        f"rljob validate: {python or 'accepts it'}\nAPI server: {cluster or 'accepts it'}"
    )


RIGHT = [
    (path, value)
    for path, values in SETTINGS.items()
    for value in values
    if path not in ("preset", "algorithm.type", "unknown", "actors.replcas", "queue")
    and not path.endswith("wings")
    and value is not None
    and api_server.sendable({"value": value})
    and not api_server.structural(path, value)
]


@settings(max_examples=300)
@given(st.sampled_from(IN_FORCE), st.lists(st.sampled_from(RIGHT), max_size=8))
def test_each_rule_says_the_same_in_python_and_in_cel(start: dict[str, Any], edits: list[tuple[str, Any]]) -> None:
    """Rule by rule, on jobs whose fields are right by themselves: which are broken, and where."""
    given = copy.deepcopy(start)
    own = f"algorithm.{BLOCKS[given['spec']['algorithm']['type']]}"
    for path, value in edits:
        if path == own or path.startswith(f"{own}.") or not path.startswith("algorithm."):
            changed(given, path, value, merge=True)  # of another block not every field would be written
    try:
        job = RLJob.model_validate(given, by_alias=True, by_name=False)
    except ValidationError:
        return
    python = {(path, rule_validations(rule)["rule"]) for rule, path, _ in broken_rules(job)}
    cluster = {
        (path, validation["rule"])
        for path, validation, _ in api_server.broken(api_server.admitted(given), None, api_server.ROOT, "")
    }
    assert python == cluster


# --- defaults that stand beside each other --------------------------------------------------------------------------

DOWN = {
    "stabilizationWindowSeconds": 180,
    "selectPolicy": "Min",
    "policies": [{"type": "Percent", "value": 20, "periodSeconds": 15}],
}
UP = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Percent", "value": 100, "periodSeconds": 15},
        {"type": "Pods", "value": 4, "periodSeconds": 15},
    ],
}
OTHER = {
    "stabilizationWindowSeconds": 60,
    "selectPolicy": "Disabled",
    "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
}


@pytest.mark.parametrize(("direction", "defaults"), [("scaleUp", UP), ("scaleDown", DOWN)])
@pytest.mark.parametrize("given_field", [None, *OTHER])
def test_each_field_of_behavior_has_its_default_by_itself(
    direction: str, defaults: dict[str, Any], given_field: str | None
) -> None:
    """As in the HorizontalPodAutoscaler: who writes a policy keeps the window, and the reverse."""
    given = document(BASE)
    written = {} if given_field is None else {given_field: OTHER[given_field]}
    given["spec"]["autoscaling"] = {"mode": "Internal", "behavior": {direction: written}}
    rules = parse_job(given).spec.autoscaling.behavior
    assert getattr(rules, to_snake(direction)).model_dump(by_alias=True) == defaults | written


def test_nothing_that_a_preset_sets_is_filled_in_by_the_cluster() -> None:
    """It would look as if a person had written it, and win over the preset."""
    for file in (*EXAMPLES, BASE, IMPALA, PRESET):
        given = document(file)
        given["spec"] = {"suspend": False, "algorithm": {}, "evaluator": {}, **given["spec"]}
        given["spec"]["actors"] = {"replicas": 1, **given["spec"].get("actors", {})}
        assert api_server.admitted(document(file)) == given
        assert parse_job(api_server.admitted(document(file))).spec == parse_job(document(file)).spec
