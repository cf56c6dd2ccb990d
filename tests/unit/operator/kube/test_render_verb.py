"""``rljob render``: every object as YAML, and no secret in it."""

from pathlib import Path
from typing import Any

import pytest
from rljob.api.document import parse_document
from rljob_operator.cli import app
from rljob_operator.kube.render import names
from typer.testing import CliRunner, Result

from tests.support.command_line import refused
from tests.support.paths import MANIFESTS

from .rendered import CENTRAL, PONG, names_of, owned, worker


def render(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["render", *map(str, words)])


def documents(result: Result) -> list[dict[str, Any]]:
    assert (result.exit_code, result.stderr) == (0, "")
    return [parse_document(text.encode(), "stdout") for text in result.stdout.split("\n---\n")]


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.stem)
def test_every_child_and_every_first_member_is_there(file: Path) -> None:
    found, job = documents(render(file)), owned(base=file)
    pods = [each["metadata"]["labels"]["rljob.dev/member"] for each in found if each["kind"] == "Pod"]
    others = {f"{each['kind']}/{each['metadata']['name']}" for each in found if each["kind"] != "Pod"}
    assert (pods, others) == (list(names.first_members(job.job)), names_of(job))


def test_what_a_job_starts_with() -> None:
    sets = [word for each in (*CENTRAL, "spec.actors.replicas=3", "spec.replay.shards=2") for word in ("--set", each)]
    pods = [each["spec"]["hostname"] for each in documents(render(PONG, *sets)) if each["kind"] == "Pod"]
    assert pods == ["replay-0", "replay-1", "learner", "inference-0", "inference-1", "actor-0", "actor-1", "actor-2",
                    "evaluator"]  # fmt: skip


def test_secrets_are_named_and_not_made() -> None:
    result = render(PONG)
    secrets = [each for each in documents(result) if each["kind"] == "Secret"]
    assert (len(secrets), [each for each in secrets if "data" in each]) == (2, [])
    assert {text for each in secrets for text in each["stringData"].values()} == {"<made by the operator>"}
    assert render(PONG).stdout == result.stdout


def test_namespace_and_image_are_options() -> None:
    found = documents(render(PONG, "--namespace", "team-a", "--image", "mine:3"))
    workers = [worker(each) for each in found if each["kind"] == "Pod"]
    namespaces, images = {each["metadata"]["namespace"] for each in found}, {each["image"] for each in workers}
    assert (namespaces, images) == ({"team-a"}, {"mine:3"})
    addresses = {each["value"] for found in workers for each in found["env"] if each["name"] == "RLJOB_WEIGHTS"}
    assert "tcp://learner.pong-apex.team-a.svc:5553" in addresses


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("spec.actors.replicas=-1", "spec.actors.replicas"),
        ("spec.actors.podTemplate={spec: {hostname: me}}", "spec.actors.podTemplate.spec.hostname"),
        ("spec.actors.env=[{name: RLJOB_JOB, value: x}]", "spec.actors.env[RLJOB_JOB]"),
    ],
)
def test_what_makes_no_pod_is_refused_and_nothing_printed(override: str, words: str) -> None:
    result = render(PONG, "--set", override)
    assert (result.exit_code, result.stdout, words in result.stderr) == (2, "", True)
    assert words in refused("validate", PONG, "--no-environment", "--set", override)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("metadata.labels.team=rl agents", "  metadata.labels.team: got 'rl agents'; allowed: up to 63 letters"),
        (
            "spec.actors.resources={requests: {cpu: 2}, limits: {cpu: 1}}",
            "  spec.actors, its pod: spec.containers[0].resources: got 'cpu'; allowed: requests up to",
        ),
        (
            "spec.learner.nodeSelector={a b: c}",
            "  spec.learner, its pod: spec.nodeSelector.a b: got 'a b'; allowed: up to 63",
        ),
        (
            "spec.learner.podTemplate={spec: {nodeselector: {a: b}}}",
            "its pod: spec.nodeselector: got {'a': 'b'}; no such field",
        ),
    ],
)
def test_validate_says_once_what_an_api_server_would_refuse(override: str, words: str) -> None:
    said = refused("validate", PONG, "--no-environment", "--set", override, "--set", "spec.actors.replicas=3")
    assert "1 problem\n" in said
    assert words in said
