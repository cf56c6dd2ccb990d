"""`rljob validate` and a cluster's API server must give the same verdict on a manifest.

On the job in force, every field written, they agree: the rules of both are the same. On a manifest as people write it, the API
server knows neither what a preset nor what a default says. So it refuses nothing that `rljob validate` accepts, and it lets pass
only what breaks a rule between a field that is written and one that is not, or what `NOT_IN_CEL` lists; the controller refuses
that.
"""

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings, strategies as st
from pydantic import ValidationError
from rljob.api import ManifestError, RLJob, dump_manifest, parse_job, transition_problems
from rljob.api.effective import effective as with_defaults, with_preset
from rljob.api.generate.schema import rule_validations
from rljob.api.rules import RULES, broken_rules
from rljob.api.structure import misfits, without_nulls

from tests.support import api_server
from tests.unit.api.bad_manifests import (
    BASE,
    EDGES,
    EXAMPLES,
    FOLLOWING,
    IMPALA,
    NOTHING_TO_START_FROM,
    NULLS,
    NUMBERS,
    OF_THE_MANIFEST,
    PRESET,
    document,
    effective,
)
from tests.unit.api.changed_manifests import CHANGES, WRITTEN_OUT, rule_of, said_by_the_server
from tests.unit.api.drawn_edits import IN_FORCE, SETTING, SETTINGS, START, changed, edited

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


def told_by_python_alone(given: dict[str, Any]) -> bool:
    """Whether all that `rljob` has against a manifest are rules that no API server knows."""
    whole = without_nulls(given)
    if wrong_by_itself(given):
        return False
    job = RLJob.model_validate(with_preset(whole), by_alias=True, by_name=False)
    if misfits(job.spec.algorithm):
        return True
    broken = list(broken_rules(with_defaults(job, whole)))
    return bool(broken) and not any(rule.cel for rule, _, _ in broken)


@cache
def refusals(base: Path, *overrides: str) -> tuple[list[str], list[str]]:
    """What the server has against a row of the table: as it is written, and once every field is."""
    return api_server.refusals(document(base, overrides)), api_server.refusals(effective(base, overrides))


# --- the tables -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", [*EXAMPLES, BASE, IMPALA, PRESET], ids=lambda file: file.stem)
def test_examples_are_accepted(file: Path) -> None:
    assert (api_server.refusals(document(file)), api_server.refusals(effective(file))) == ([], [])


def test_no_two_rows_of_the_table_are_one_manifest() -> None:
    written = [json.dumps(document(base, overrides), sort_keys=True) for base, overrides, _, _ in OF_THE_MANIFEST]
    assert len(written) == len(set(written))


@pytest.mark.parametrize(("base", "overrides", "path", "words"), OF_THE_MANIFEST, ids=IDS)
def test_a_bad_manifest_is_refused_by_the_cluster(
    base: Path, overrides: list[str], path: str, words: list[str]
) -> None:
    given = document(base, overrides)
    as_written, whole = refusals(base, *overrides)
    assert as_written or not wrong_by_itself(given), "only a rule between two fields may need what is not written"
    told = as_written or whole
    assert bool(told) != told_by_python_alone(given)
    if not told:
        return
    field = path.split(".")[-1].split("[")[0]
    section = ".".join(path.split(".")[:2])
    assert any(field in refusal or section in refusal for refusal in told), told
    assert not any("unable to evaluate" in refusal for refusal in told), told


@pytest.mark.parametrize(("base", "overrides", "path", "words"), OF_THE_MANIFEST, ids=IDS)
def test_python_and_cel_agree_on_a_bad_manifest_once_every_field_is_written(
    base: Path, overrides: list[str], path: str, words: list[str]
) -> None:
    whole = effective(base, overrides)
    assert bool(python_refuses(whole)) == bool(refusals(base, *overrides)[1] or told_by_python_alone(whole))


@pytest.mark.parametrize(
    "overrides",
    [
        ["spec.preset="],
        ["spec.preset=", "spec.algorithm.type=IMPALA"],
        ["spec.preset=", "spec.algorithm={gamma: 0.9}", "spec.environment.atari.frameSize=42"],
    ],
)
def test_a_job_without_anything_to_start_from_is_told_the_same_sentence(overrides: list[str]) -> None:
    given = document(PRESET, overrides)
    assert [python_refuses(given)] == api_server.refusals(given) == [f"spec: {NOTHING_TO_START_FROM}"]


def test_each_rule_has_a_name_of_its_own() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_every_rule_is_broken_by_the_table() -> None:
    rows = (refusals(base, *overrides) for base, overrides, *_ in OF_THE_MANIFEST)
    said = "\n".join(refusal for row in rows for way in row for refusal in way)
    assert [rule.name for rule in RULES if rule.cel and rule.message not in said] == []


@pytest.mark.parametrize(("base", "edge", "beyond"), EDGES, ids=[f"{case[0].stem} {case[2]}" for case in EDGES])
def test_the_edge_of_a_rule_is_at_the_same_place(base: Path, edge: list[str], beyond: str) -> None:
    good, bad = document(base, edge), document(base, [*edge, beyond])
    assert (python_refuses(good), api_server.refusals(good)) == ("", [])
    assert python_refuses(bad)
    assert api_server.refusals(effective(base, edge)) == []
    assert api_server.refusals(effective(base, [*edge, beyond])) or told_by_python_alone(bad)


@pytest.mark.parametrize(
    ("base", "override"), [*NULLS, *NUMBERS], ids=[f"{base.stem} {override}" for base, override in [*NULLS, *NUMBERS]]
)
def test_a_good_manifest(base: Path, override: str) -> None:
    given = document(base, [override])
    assert (python_refuses(given), api_server.refusals(given)) == ("", [])


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
        assert (problems, refusals) == ([], [])
        return
    rule = rule_of(field)
    assert rule.message in [problem.message for problem in problems if problem.path.startswith(f"spec.{field}")]
    assert ": ".join(said_by_the_server(rule)) in refusals


@pytest.mark.parametrize(
    ("base", "said"), [(BASE, ["spec.algorithm.gamma: got 0.9; it cannot be changed"]), (PRESET, [])]
)
def test_what_never_changes_with_one_algorithm_may_with_another(base: Path, said: list[str]) -> None:
    old, new = document(base, ["spec.suspend=true"]), document(base, ["spec.suspend=true", "spec.algorithm.gamma=0.9"])
    found = transition_problems(parse_job(old), parse_job(new))
    assert ([str(each).partition("; make")[0] for each in found], api_server.refusals(new, stored=old)) == (said, [])


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
    assert bool(python) == bool(cluster or told_by_python_alone(given)), (
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
    own = given["spec"]["algorithm"]
    for path, value in edits:
        if path.partition(".")[0] != "algorithm" or path.split(".")[1] in own:
            changed(given, path, value, merge=True)  # of another algorithm not every field would be written
    try:
        job = RLJob.model_validate(given, by_alias=True, by_name=False)
    except ValidationError:
        return
    if misfits(job.spec.algorithm):
        return
    assert {(path, rule_validations(rule)["rule"]) for rule, path, _ in broken_rules(job) if rule.cel} == {
        (path, validation["rule"])
        for path, validation, _ in api_server.broken(api_server.admitted(given), None, api_server.ROOT, "")
    }


def test_nothing_that_a_preset_sets_is_filled_in_by_the_cluster() -> None:
    """It would look as if a person had written it, and win over the preset."""
    for file in (*EXAMPLES, BASE, IMPALA, PRESET):
        given = document(file)
        given["spec"] = {"suspend": False, "algorithm": {}, "evaluator": {}, **given["spec"]}
        given["spec"]["actors"] = {"replicas": 1, **given["spec"].get("actors", {})}
        assert api_server.admitted(document(file)) == given | {"status": {"observedGeneration": 0}}
        assert parse_job(api_server.admitted(document(file))).spec == parse_job(document(file)).spec
