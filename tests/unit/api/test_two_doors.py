"""`rljob validate` and a cluster's API server must give the same verdict on a manifest. The exceptions are listed here."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import api_server
import pytest
import yaml
from bad_manifests import BASE, EDGES, IMPALA, NULLS, REFUSED_BY_CLUSTER
from changed_manifests import CHANGES
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from pydantic.alias_generators import to_snake
from rljob.api import ManifestError, RLJob, dump_manifest, parse_job, transition_problems
from rljob.api.algorithm import PARAMETERS
from rljob.api.apex_dqn import ApeXDQNParameters
from rljob.api.cel import rule_validations
from rljob.api.defaults import with_algorithm_defaults
from rljob.api.document import parse_document
from rljob.api.environment import EnvironmentParameters
from rljob.api.impala import ImpalaParameters
from rljob.api.parameters import NamedParameter, check
from rljob.api.rules import RULES, broken_rules
from rljob.api.rules.transitions import TRANSITIONS
from written import CLUSTER, EXAMPLES, document, quoted


def python_refuses(given: dict[str, Any]) -> str:
    try:
        parse_job(given)
    except ManifestError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("file", [*EXAMPLES, BASE, IMPALA], ids=lambda file: file.stem)
def test_examples_are_accepted(file: Path) -> None:
    assert api_server.refusals(document(file)) == []
    raw = parse_document(file.read_bytes(), file.name)
    assert raw == document(file), "examples are written as kubectl wants them: nothing unquoted"


def test_the_table_is_long_enough() -> None:
    assert len(REFUSED_BY_CLUSTER) >= 120


@pytest.mark.parametrize(
    ("base", "overrides", "path", "words"),
    REFUSED_BY_CLUSTER,
    ids=[f"{case[0].stem} {' '.join(case[1])[:70]}" for case in REFUSED_BY_CLUSTER],
)
def test_a_bad_manifest_is_refused_by_the_cluster(
    base: Path, overrides: list[str], path: str, words: list[str]
) -> None:
    given = document(base, overrides)
    refusals = api_server.refusals(given)
    assert refusals
    assert python_refuses(given)
    field = path.split(".")[-1].split("[")[0]
    section = path.split(".")[1]
    assert any(field in refusal or f"spec.{section}" in refusal for refusal in refusals), refusals
    assert not any("unable to evaluate" in refusal for refusal in refusals), refusals


def test_every_rule_is_broken_by_the_table() -> None:
    said = "\n".join(
        refusal for case in REFUSED_BY_CLUSTER for refusal in api_server.refusals(document(case[0], case[1]))
    )
    unbroken = [rule.name for rule in RULES if rule.message not in said]
    models: list[Any] = [ApeXDQNParameters, ImpalaParameters, EnvironmentParameters]
    unbroken += [rule.field for model in models for rule in model.rules if rule.message not in said]
    assert unbroken == []


@pytest.mark.parametrize(("base", "edge", "beyond"), EDGES, ids=[f"{case[0].stem} {case[2]}" for case in EDGES])
def test_the_edge_of_a_rule_is_at_the_same_place(base: Path, edge: list[str], beyond: str) -> None:
    good, bad = document(base, edge), document(base, [*edge, beyond])
    assert python_refuses(good) == ""
    assert api_server.refusals(good) == []
    assert python_refuses(bad)
    assert api_server.refusals(bad)


@pytest.mark.parametrize(("base", "override"), NULLS, ids=[override for _, override in NULLS])
def test_a_null_under_a_known_name_is_not_given(base: Path, override: str) -> None:
    given = document(base, [override])
    assert python_refuses(given) == ""
    assert api_server.refusals(given) == []


def test_a_null_in_a_pod_template_stays() -> None:
    """It removes the field from the generated pod."""
    template = {"spec": {"hostname": None, "containers": [None]}}
    job = parse_job(document(BASE, [f"spec.learner.podTemplate={json.dumps(template)}"]))
    assert job.spec.learner.pod_template == template
    assert yaml.safe_load(dump_manifest(job))["spec"]["learner"]["podTemplate"] == template


@pytest.mark.parametrize(
    "text", ["spec.environment.parameters.kwargs=[1]", "spec.environment.parameters.actions=0,2,2"]
)
def test_what_only_python_sees(text: str) -> None:
    """If the cluster begins to see it, the list of exceptions is out of date."""
    given = document(BASE, [text])
    assert python_refuses(given)
    assert api_server.refusals(given) == []


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
    rule = next(rule for rule in TRANSITIONS if rule.field == field)
    assert rule.message in [problem.message for problem in problems if problem.path.startswith(f"spec.{field}")]
    assert any(f"{field}: {rule.message}" in refusal for refusal in refusals), refusals


def test_the_order_of_parameters_is_no_change() -> None:
    old, new = document(BASE), document(BASE)
    new["spec"]["algorithm"]["parameters"].reverse()
    assert transition_problems(parse_job(old), parse_job(new)) == []


# --- the property ---------------------------------------------------------------------------------------------------

START = [document(file) for file in (BASE, IMPALA, CLUSTER)]
NUMBERS = (
    "0",
    "1",
    "2",
    "3",
    "7",
    "8",
    "20",
    "31",
    "32",
    "33",
    "100",
    "128",
    "640",
    "1e-5",
    "0.5",
    "1",
    "-1",
    "nan",
    "x",
    "",
)
WORDS = (
    "true", "false", "None", "LSTM", "VTrace", "ClippedSurrogate", "Adam", "RMSProp", "CentredRMSProp", "MLP", "Nature",
    "ApeXAtari", "PongQuickstart", "CartPole", "ImpalaAtari", "PongClippedSurrogate", "PongVTrace",
    "CartPoleImpala",
)  # fmt: skip
NAMES = sorted({name for model, _ in PARAMETERS.values() for name in model.names()} | {"wings"})
SETTINGS: dict[str, tuple[Any, ...]] = {
    "algorithm.name": ("ApeXDQN", "IMPALA", "DQN"),
    "replay": (None, {}, {"capacity": 100}, {"shards": 2}),
    "replay.capacity": (0, 1, 40, 399, 400, 401, 8000, 50_000, 10**11, 10**12, "5", True),
    "replay.shards": (0, 1, 2, 3, 256, 257),
    "replay.rateLimiter.minSize": (0, 1, 127, 128, 400, 8000, 50_000, 10**15, 10**16),
    "replay.rateLimiter.samplesPerInsert": ("0", "0.5", "1", "8", "10000", "10001", "-1", "1_0", " 1", "inf", "1e2"),
    "replay.rateLimiter.errorBuffer": ("0", "99", "100", "599.5", "600", "799", "800", "1e15", "1e16"),
    "replay.capacityBytes": ("1Gi", "4GB", 5, "0", -1, "1e3", "1e300"),
    "replay.prioritization.exponent": ("0", "1", "1.0001", "-0", ".5", "5.", "+1", "x"),
    "queue": (None, {}, {"capacity": 31}, {"maxPolicyLagUpdates": 3}),
    "queue.capacity": (0, 1, 31, 32, 33, 64, 1000, 10**6, 10**7),
    "queue.maxPolicyLagUpdates": (0, 1, 3, 4, 5, 6, 50, 107, 108, 400, 10**9),
    "queue.overflow": ("Block", "DropOldest", "Drop"),
    "actors.replicas": (-1, 0, 1, 2, 16, 100, 200, 201, 100_001),
    "actors.envsPerActor": (0, 1, 3, 4, 5, 8, 64, 65, 4096),
    "actors.inference": ("Local", "Central"),
    "inference.replicas": (0, 1, 1001),
    "inference.maxBatchSize": (1, 7, 8, 64),
    "autoscaling.mode": ("Internal", "External", "Disabled", "On"),
    "autoscaling.signal": (None, "SamplesPerInsert", "LearnerQueueDepth"),
    "autoscaling.minReplicas": (0, 1, 4, 5, 200),
    "autoscaling.maxReplicas": (0, 1, 3, 16, 200),
    "autoscaling.rateWindowSeconds": (14, 15, 60),
    "autoscaling.guards": (None, {}, {"maxPolicyLagUpdates": 4}, {"maxPolicyLagUpdates": 51}),
    "autoscaling.target.queueUtilizationPercent": (0, 1, 50, 99, 100),
    "autoscaling.missingMetrics": ({"action": "Fallback"}, {"action": "Fallback", "fallback": {"replicas": 500}}, {}),
    "scheduling.gang": ({"scheduler": "Volcano"}, {"scheduler": "Volcano", "minActors": 17}, {}),
    "evaluator.enabled": (True, False, "true"),
    "evaluator.triggerReturn": (None, "3", "x"),
    "successPolicy.targetReturn": (None, {"value": "18"}, {}),
    "earlyStopping.plateau": (None, {}, {"minDelta": "-1"}),
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
    "learner.placement.tolerations": ([{}], [{"operator": "Exists", "value": "x"}], [{"key": "a"}], None),
    "learner.resources": ({"limits": {"cpu": 2}}, {"requests": {"cpu": "lots"}}, {"requests": {"cpu": True}}, {"x": {}}),
    "learner.resources.limits": (None, {"cpu": None}, {"cpu": 1, "memory": None}),
    "learner.podTemplate": ({"any": {"thing": [1]}}, {"metadata": {"labels": None}}, [], None),
    "actors.placement.nodeSelector": (None, {"zone": None}, {"zone": "a"}),
    "actors.replcas": (2, None),
    "imagePullSecrets": ([{"name": "a"}, {"name": "a"}], [{}], [None], [{"name": None}], [{"name": "a", "nmae": None}], []),
    "environment.id": ("CartPole-v1", "a b", "", 5, "m:f\n"),
    "unknown": (1, None),
}  # fmt: skip
PARAMETER = st.tuples(st.sampled_from(NAMES), st.sampled_from(NUMBERS + WORDS))
ENVIRONMENT = st.tuples(
    st.sampled_from(sorted(set(EnvironmentParameters.names()) - {"kwargs", "actions"})),
    st.sampled_from(NUMBERS + WORDS),
)
SETTING = st.sampled_from([(path, value) for path, values in SETTINGS.items() for value in values])


def changed(given: dict[str, Any], path: str, value: Any) -> None:
    """Set ``spec.<path>``; nothing happens where something above it is no mapping."""
    node: Any = given["spec"]
    *above, last = path.split(".")
    for part in above:
        if not isinstance(node, dict):
            return
        if node.get(part) is None:
            node[part] = {}
        node = node[part]
    if isinstance(node, dict):
        node[last] = copy.deepcopy(value)


def named(given: dict[str, Any], section: str, values: list[tuple[str, str]]) -> None:
    listed = given["spec"][section].setdefault("parameters", [])
    listed += [{"name": name, "value": value} for name, value in values]


EDITS = st.tuples(
    st.sampled_from(START),
    st.lists(SETTING, max_size=4),
    st.lists(PARAMETER, max_size=4, unique_by=lambda item: item[0]),
    st.lists(ENVIRONMENT, max_size=2),
)


def edited(
    edits: tuple[dict[str, Any], list[tuple[str, Any]], list[tuple[str, str]], list[tuple[str, str]]],
) -> dict[str, Any]:
    start, places, parameters, environment = edits
    given = copy.deepcopy(start)
    named(given, "algorithm", parameters)
    named(given, "environment", environment)
    for path, value in places:
        changed(given, path, value)
    return quoted(given, api_server.ROOT)  # type: ignore[no-any-return]


@example(edited((START[0], [("unknown", None)], [], [])))
@settings(max_examples=200, deadline=None)
@given(EDITS.map(edited))
def test_both_doors_give_the_same_verdict(given: dict[str, Any]) -> None:
    python, cluster = python_refuses(given), api_server.refusals(given)
    assert bool(python) == bool(cluster), (
        f"rljob validate: {python or 'accepts it'}\nAPI server: {cluster or 'accepts it'}"
    )


CEL_OF = {rule_validations(rule)["rule"]: rule.name for rule in RULES}
SOUND = {  # settings that are right by themselves, so that only rules between fields can be broken
    path: values
    for path, values in SETTINGS.items()
    if path not in ("algorithm.name", "unknown", "actors.replcas", "replay", "queue")
}
RIGHT = [
    (path, value)
    for path, values in SOUND.items()
    for value in values
    if not api_server.structural(path, value) and value is not None
]
RIGHT_PARAMETER = st.sampled_from(
    [(name, value) for model, _ in PARAMETERS.values() for name in model.names() for value in NUMBERS + WORDS
     if not check(model, [NamedParameter(name=name, value=value)], "")[1]]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(START),
    st.lists(st.sampled_from(RIGHT), max_size=6),
    st.lists(RIGHT_PARAMETER, max_size=4, unique_by=lambda item: item[0]),
)
def test_each_rule_says_the_same_in_python_and_in_cel(
    start: dict[str, Any], places: list[tuple[str, Any]], parameters: list[tuple[str, str]]
) -> None:
    """Rule by rule, on jobs whose fields are right by themselves: which are broken, and where."""
    given = copy.deepcopy(start)
    known = set(PARAMETERS[given["spec"]["algorithm"]["name"]][0].names())
    named(given, "algorithm", [item for item in parameters if item[0] in known])
    for path, value in places:
        changed(given, path, value)
    try:
        job = RLJob.model_validate(with_algorithm_defaults(given), by_alias=True, by_name=False)
    except ValidationError:
        return
    if job.spec.algorithm.checked()[1]:  # wrong values stand for the default in Python, for the preset's value in CEL
        return
    python = {(path, rule.name) for rule, path, _ in broken_rules(job)}
    cluster = {
        (path, CEL_OF.get(validation["rule"], message))
        for path, validation, message in api_server.broken(api_server.admitted(given), None, api_server.ROOT, "")
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
    expected = defaults | written
    rules = parse_job(given).spec.autoscaling.behavior
    assert getattr(rules, to_snake(direction)).model_dump(by_alias=True) == expected
    assert api_server.admitted(given)["spec"]["autoscaling"]["behavior"][direction] == expected
