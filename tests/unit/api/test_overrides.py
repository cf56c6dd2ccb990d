"""``--set``: what it addresses, how the schema types its values, what it leaves alone, and that no text makes it do anything but
apply or refuse."""

import contextlib
import copy
import re
from typing import Any

import pytest
from hypothesis import given, strategies as st
from rljob.api import ManifestError, RLJob, parse_job
from rljob.api.overrides import apply_overrides, read_overrides, segments_of

from tests.support.jobs import manifest_of

REPLAY = manifest_of({"algorithm": {"type": "ApeXDQN"}, "environment": {"id": "ALE/Pong-v5"}})
QUEUE = manifest_of({"algorithm": {"type": "IMPALA"}, "environment": {"id": "ALE/Pong-v5"}})
NAMES = st.from_regex(r"[a-z][A-Za-z0-9]{0,8}", fullmatch=True)


def job_with(document: dict[str, Any], *overrides: str) -> RLJob:
    return parse_job(set_in(document, *overrides))


def set_in(document: dict[str, Any], *overrides: str) -> dict[str, Any]:
    return apply_overrides(document, read_overrides(overrides, document))


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("spec.actors.replicas=2", 2),
        ("spec.evaluator.enabled=false", False),
        ("spec.replay.prioritization.exponent=0.7", 0.7),
        ("spec.algorithm.batchSize=1_6", 16),
        ("spec.algorithm.impala.unrollQueue.capacity=96", 96),
        ("spec.learner.resources.requests={cpu: 500m, memory: 2Gi}", {"cpu": "500m", "memory": "2Gi"}),
        ("spec.actors.nodeSelector.zone=a=b", "a=b"),
        ("spec.environment.kwargs={mode: 1}", {"mode": 1}),
        ("spec.algorithm.learningRate=3e-4", 0.0003),
        ("spec.algorithm.compile=yes", True),
        ("spec.algorithm.recurrent=None", "None"),
        ("spec.algorithm.network=1e5", "1e5"),
        ('spec.algorithm.network="MLP"', "MLP"),
        ("spec.environment.id=null", "null"),
        ("spec.environment.id='a: b'", "a: b"),
        ("spec.environment.id='a", "'a"),
        ("spec.environment.actions=[0, 2]", [0, 2]),
        ("spec.environment.actions=0,2", "0,2"),
        ("spec.environment.kwargs.difficulty=1", 1),
        ("spec.environment.kwargs.deep.mode=[yes, '1']", [True, "1"]),
        ("spec.checkpoint.include=[Learner]", ["Learner"]),
        ("spec.learner.resources.requests.cpu=2", "2"),
        ("spec.learner.resources.requests.memory=1e9", "1e9"),
        ("spec.learner.podTemplate.spec.hostNetwork=true", True),
        ("spec.actors.nodeSelector[kubernetes.io/arch]=arm64", "arm64"),
        ("spec.actors.nodeSelector.spot=true", "true"),
        ("metadata.annotations.note=1e-4", "1e-4"),
        ("metadata.annotations[a.b/c]=[x", "[x"),
        ("spec.no.such.field=1e3", 1000.0),
    ],
)
def test_the_schema_types_the_value(override: str, value: Any) -> None:
    node: Any = set_in({}, override)
    for segment in segments_of(override.partition("=")[0]):
        node = node[segment]
    assert node == value
    assert type(node) is type(value)


def test_entries_of_lists_are_addressed_by_index_or_name() -> None:
    rules = [{"name": "bad-config", "action": "FailJob"}, {"name": "evicted", "onExitCodes": {"values": [1]}}]
    document = {"spec": {"failurePolicy": {"rules": rules}}}
    at = "spec.failurePolicy.rules"
    changed = set_in(
        document, f"{at}[0].action=Count", f"{at}.evicted.action=Ignore", f"{at}.1.onExitCodes.values[0]=137"
    )
    assert changed["spec"]["failurePolicy"]["rules"] == [
        {"name": "bad-config", "action": "Count"},
        {"name": "evicted", "onExitCodes": {"values": [137]}, "action": "Ignore"},
    ]
    assert set_in(document, f"{at}.evicted=")["spec"]["failurePolicy"]["rules"] == rules[:1]
    for override, words in [
        (f"{at}.2.action=Count", f"allowed in {at}: an index below 2 or a name (bad-config, evicted)"),
        (f"{at}.evict=", "or a name"),
        ("spec.environment.actions[0]=1", "no entry in spec.environment.actions; allowed: the whole list"),
        (f"{at}[0].action.x=1", "action is 'FailJob' in the manifest"),
    ]:
        with pytest.raises(ManifestError, match=re.escape(words)):
            set_in(document, override)


def test_spec_may_be_left_out() -> None:
    changed = set_in(
        {}, "actors.replicas=2", "suspend=true", "failurePolicy.rules=[]", "metadata.labels.a=b", "preset=PongApeX"
    )
    spec = {"actors": {"replicas": 2}, "suspend": True, "failurePolicy": {"rules": []}, "preset": "PongApeX"}
    assert changed == {"spec": spec, "metadata": {"labels": {"a": "b"}}}


def test_the_last_override_wins_and_empty_restores_the_default() -> None:
    assert job_with(REPLAY, "spec.actors.replicas=2", "spec.actors.replicas=3").spec.actors.replicas == 3
    assert job_with(REPLAY, "spec.actors.replicas=2", "spec.actors.replicas=").spec.actors.replicas == 1
    assert job_with(REPLAY, "spec.algorithm.batchSize=").spec.algorithm.parameters.batch_size == 512


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("spec.algorithm.apeXDQN.gama=1", "unknown field; did you mean 'spec.algorithm.gamma'?"),
        ("spec.algorithm.apeXDQN.gama=", "unknown field; did you mean 'spec.algorithm.gamma'?"),
        ("spec.algorithm.gamma='0.9'", "got '0.9'; allowed: a number from 0 to 1"),
        ("spec.environment.actions=0,2,3", "got '0,2,3'; allowed: a list"),
        ("spec.environmnt.id=a", "did you mean 'environment'?"),
        ("environmnt.id=a", "spec.environmnt: got {'id': 'a'}; unknown field; did you mean 'environment'?"),
        ("y=1", "spec.y: got 1; unknown field"),
    ],
)
def test_what_does_not_fit_is_refused_by_the_check_that_follows(override: str, words: str) -> None:
    with pytest.raises(ManifestError, match=re.escape(words)):
        job_with(REPLAY, override)


def test_every_bad_override_is_named() -> None:
    with pytest.raises(ManifestError) as caught:
        set_in(
            {},
            "x",
            "spec.a=1",
            "y=1",
            "=1",
            "spec.a[=1",
            "spec.[b]=1",
            "spec=1",
            "spec.a..b=1",
            "spec.actors.replicas=[",
        )
    wrong = [problem.value for problem in caught.value.problems]
    assert wrong == ["x", "=1", "spec.a[=1", "spec.[b]=1", "spec=1", "spec.a..b=1", "spec.actors.replicas=["]


@given(st.lists(NAMES, min_size=1, max_size=5), st.integers() | st.booleans())
def test_what_is_set_is_found_there(path: list[str], value: Any) -> None:
    original: dict[str, Any] = {"spec": {"kept": [1, {"deep": 2}]}}
    before = copy.deepcopy(original)
    text = str(value).lower()
    node: Any = set_in(original, f"spec.new.{'.'.join(path)}={text}")
    assert original == before, "the document given is not changed"
    assert node["spec"]["kept"] == before["spec"]["kept"]
    for part in ["spec", "new", *path]:
        node = node[part]
    assert node == value


@given(
    st.lists(NAMES | st.from_regex(r"[a-z]{1,3}(\.[a-z/]{1,3}){1,2}", fullmatch=True), min_size=1, max_size=6),
)
def test_splitting_is_the_inverse_of_joining(path: list[str]) -> None:
    written = "".join(f"[{part}]" if "." in part else f".{part}" for part in path)
    assert segments_of(f"spec{written}") == ("spec", *path)


@given(
    st.text(max_size=60),
    st.sampled_from(
        ["", "spec.", "spec.algorithm.apeXDQN.", "spec.actors.", "spec.environment.kwargs=", "metadata.labels="]
    ),
)
def test_any_text_applies_or_is_refused(text: str, start: str) -> None:
    with contextlib.suppress(ManifestError):  # nothing else may come out
        job_with(REPLAY, start + text)
