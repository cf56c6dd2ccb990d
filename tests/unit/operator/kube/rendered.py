"""Rendered objects for tests, and ways to look into them."""

from pathlib import Path
from typing import Any

from rljob.api import load_manifest, parse_job, read_manifest
from rljob_operator.core.member import Role
from rljob_operator.kube.render import names
from rljob_operator.kube.render.children import Secrets, children
from rljob_operator.kube.render.metadata import Owned
from rljob_operator.kube.render.pod import pod
from rljob_operator.kube.render.settings import Settings

from tests.support import paths

EXAMPLES = paths.EXAMPLES
PONG, CARTPOLE = (paths.SUPPORT / name for name in ("pong.yaml", "cartpole.yaml"))
"""A job of Ape-X and one of IMPALA."""
CENTRAL = ("spec.actors.inference=Central", "spec.inference.replicas=2")
SETTINGS = Settings(image="rl:1")
SECRETS = Secrets(keys={role: f"keys of {role}" for role in Role}, token="token")
MEMBERS = {
    Role.REPLAY: "replay-0",
    Role.LEARNER: "learner",
    Role.INFERENCE: "inference-1",
    Role.ACTOR: "actor-7",
    Role.EVALUATOR: "evaluator",
}


def owned(*sets: str, base: Path = PONG) -> Owned:
    return Owned(load_manifest(base, sets), "uid-1")


def with_section(role: Role, **fields: Any) -> Owned:
    """A job with every role, and ``fields`` (as the manifest names them) in the section of ``role``."""
    document = read_manifest(PONG, CENTRAL)
    section = "actors" if role is Role.ACTOR else str(role)
    document["spec"][section] = {**document["spec"].get(section, {}), **fields}
    return Owned(parse_job(document), "uid-1")


def pod_of(job: Owned, member: str, settings: Settings = SETTINGS) -> dict[str, Any]:
    return pod(job, member, "abcde", "revision", settings)


def worker(document: dict[str, Any]) -> dict[str, Any]:
    (found,) = [each for each in document["spec"]["containers"] if each["name"] == names.WORKER]
    return found


def environment(document: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in worker(document)["env"]}


def child(job: Owned, kind: str, name: str, settings: Settings = SETTINGS) -> dict[str, Any]:
    (found,) = [
        each for each in children(job, SECRETS, settings) if (each["kind"], each["metadata"]["name"]) == (kind, name)
    ]
    return found


def names_of(job: Owned, settings: Settings = SETTINGS) -> set[str]:
    return {f"{each['kind']}/{each['metadata']['name']}" for each in children(job, SECRETS, settings)}
