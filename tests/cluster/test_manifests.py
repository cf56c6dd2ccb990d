"""Every example, every bad manifest and every change of the shared tables, given to a real API server.

`tests/support/api_server.py` is what we believe such a server does; here both are asked.
"""

from pathlib import Path
from typing import Any

import pytest
from rljob.api import load_manifest, parse_job
from rljob.api.presets import PRESETS
from rljob_operator.kube.apiserver.transport import whole_numbers

from tests.cluster import jobs
from tests.cluster.control_plane import ControlPlane
from tests.support import api_server
from tests.support.paths import EXAMPLES as FOLDER
from tests.unit.api.bad_manifests import (
    BASE,
    EDGES,
    EXAMPLES,
    IMPALA,
    NULLS,
    NUMBERS,
    OF_THE_MANIFEST,
    PRESET,
    document,
    effective,
)
from tests.unit.api.changed_manifests import CHANGES, WRITTEN_OUT, rule_of, said_by_the_server

FILES = [*EXAMPLES, BASE, IMPALA, PRESET]
IDS = [f"{case[0].stem} {' '.join(case[1])[:70]}" for case in OF_THE_MANIFEST]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_example_is_stored_as_it_is_written(cluster: ControlPlane, file: Path) -> None:
    """Apart from what no preset sets, such as the number of actors: what else a server filled in would win over the preset."""
    given = document(file)
    answer = jobs.create(cluster, given).stored()
    given["spec"] = {"suspend": False, "algorithm": {}, "evaluator": {}, **given["spec"]}
    given["spec"]["actors"] = {"replicas": 1, **given["spec"].get("actors", {})}
    assert answer["spec"] == given["spec"] == api_server.admitted(document(file))["spec"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_job_with_every_field_written_is_accepted(cluster: ControlPlane, file: Path) -> None:
    """The server gives up on rules that together cost too much while a job is checked, or compared with another one."""
    whole = effective(file)
    jobs.create(cluster, whole, dry_run=False).stored()
    actors = whole["spec"]["actors"]
    actors["envsPerActor"] += -1 if actors["envsPerActor"] > 1 else 1
    whole["spec"] |= {"suspend": True}
    jobs.replace(cluster, whole).stored()


@pytest.mark.parametrize(("base", "overrides", "path", "words"), OF_THE_MANIFEST, ids=IDS)
def test_a_bad_manifest_gets_the_verdict_that_we_believe_once_every_field_is_written(
    cluster: ControlPlane, base: Path, overrides: list[str], path: str, words: list[str]
) -> None:
    given = effective(base, overrides)
    answer = jobs.create(cluster, given)
    assert answer.accepted == (api_server.refusals(given) == []), answer.message  # what is only missing is then there
    if answer.accepted or not api_server.sendable(given):
        return
    field = path.split(".")[-1].split("[")[0]
    section = ".".join(path.split(".")[:2])
    assert field in answer.message or section in answer.message, answer.message
    for at, message in expected_of_cel(given):
        assert answer.names(at, message), answer.document


@pytest.mark.parametrize(("base", "overrides", "path", "words"), OF_THE_MANIFEST, ids=IDS)
def test_a_bad_manifest_as_written_gets_the_verdict_that_we_believe(
    cluster: ControlPlane, base: Path, overrides: list[str], path: str, words: list[str]
) -> None:
    given = document(base, overrides)
    assert jobs.create(cluster, given).accepted == (not api_server.refusals(given))


def expected_of_cel(given: dict[str, Any]) -> set[tuple[str, str]]:
    """(field, message) of the rules that the double of the unit tests finds broken, where the schema finds nothing."""
    admitted = api_server.admitted(given)
    if list(api_server.unknown(admitted, api_server.ROOT, "")) or list(
        api_server.Validator(api_server.ROOT).iter_errors(admitted)
    ):
        return set()
    return {
        (f"{path}{validation.get('fieldPath', '')}".lstrip(".") or "<nil>", message)
        for path, validation, message in api_server.broken(admitted, None, api_server.ROOT, "")
    }


@pytest.mark.parametrize(("base", "override"), NULLS, ids=[f"{base.stem} {override}" for base, override in NULLS])
def test_a_null_under_a_known_name_is_not_given(cluster: ControlPlane, base: Path, override: str) -> None:
    given = document(base, [override])
    assert jobs.create(cluster, given).stored()["spec"] == api_server.admitted(given)["spec"]


@pytest.mark.parametrize(("base", "override"), NUMBERS, ids=[f"{base.stem} {override}" for base, override in NUMBERS])
def test_a_number_is_one_however_it_is_written(cluster: ControlPlane, base: Path, override: str) -> None:
    given = whole_numbers(document(base, [override]))
    assert parse_job(jobs.create(cluster, given).stored()).spec == load_manifest(base, [override]).spec


@pytest.mark.parametrize(("base", "edge", "beyond"), EDGES, ids=[f"{case[0].stem} {case[2]}" for case in EDGES])
def test_the_edge_of_a_rule(cluster: ControlPlane, base: Path, edge: list[str], beyond: str) -> None:
    jobs.create(cluster, document(base, edge)).stored()
    jobs.create(cluster, effective(base, edge)).stored()
    bad = effective(base, [*edge, beyond])
    answer = jobs.create(cluster, bad)
    assert answer.accepted == (api_server.refusals(bad) == []), "Python alone tells of most rules"
    for at, message in expected_of_cel(bad):
        assert answer.names(at, message), answer.document


@pytest.mark.parametrize(
    ("base", "before", "after", "field"),
    [*CHANGES, *WRITTEN_OUT],
    ids=[f"{case[0].stem} {' '.join(case[2])[:60]}" for case in [*CHANGES, *WRITTEN_OUT]],
)
def test_a_change(cluster: ControlPlane, base: Path, before: list[str], after: list[str], field: str | None) -> None:
    old, new = document(base, before), document(base, [*before, *after])
    jobs.create(cluster, old, dry_run=False).stored()
    answer = jobs.replace(cluster, new)
    if field is None:
        assert answer.accepted, answer.message
        return
    assert not answer.accepted
    assert answer.names(*said_by_the_server(rule_of(field))), answer.document


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_a_whole_manifest_and_its_values_are_one_too(cluster: ControlPlane, name: str) -> None:
    alone = document(PRESET, jobs.of_preset(name))
    stored = jobs.create(cluster, alone).stored()
    assert stored["spec"] == {
        **alone["spec"],
        "suspend": False,
        "algorithm": {},
        "actors": {"replicas": 1},
        "evaluator": {},
    }
    assert parse_job(stored).spec == parse_job(alone).spec
    values = {"environment": alone["spec"]["environment"]} if "environment" in alone["spec"] else {}
    jobs.create(cluster, {**alone, "spec": {**PRESETS[name].spec, **values}}).stored()


def test_the_type_of_a_preset_is_known_to_the_server(cluster: ControlPlane) -> None:
    """Nothing else is written that says which algorithm it is."""
    for name, preset in PRESETS.items():
        other = "apeXDQN.double=false" if preset.algorithm_type == "IMPALA" else "impala.cClip=0.9"
        answer = jobs.create(cluster, document(PRESET, [*jobs.of_preset(name), f"spec.algorithm.{other}"]))
        assert answer.code == 422
        assert "only the block of the algorithm's own type" in answer.message, answer.message


def test_a_stored_job_reads_back_as_the_same_job(cluster: ControlPlane) -> None:
    """What the controller will see: the object with everything that the server wrote into it."""
    for file in (BASE, PRESET):
        assert parse_job(jobs.create(cluster, document(file), dry_run=False).document).spec == load_manifest(file).spec
        cluster.request("DELETE", f"{jobs.JOBS}/pong")


def test_the_server_takes_the_autoscaler_of_the_examples(cluster: ControlPlane) -> None:
    cluster.told("apply", "--dry-run=server", "--validate=strict", "-f", str(FOLDER / "autoscaling" / "hpa.yaml"))
