"""RLJobs on an API server, by its own HTTP API: creating, changing and what it says against them."""

from dataclasses import dataclass
from typing import Any

from rljob.api.presets import PRESETS

from tests.cluster.control_plane import MERGE, ControlPlane

JOBS = "/apis/rljob.dev/v1alpha1/namespaces/default/rljobs"
STRICT = "fieldValidation=Strict"
"""What ``kubectl`` asks for: unknown and doubled fields are refused instead of dropped."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server answered: the object as stored, or why not."""

    code: int
    document: dict[str, Any]

    @property
    def accepted(self) -> bool:
        return self.code in (200, 201)

    @property
    def message(self) -> str:
        return str(self.document.get("message", ""))

    def stored(self) -> dict[str, Any]:
        """The object as stored, or fail."""
        assert self.accepted, self.message
        return self.document

    def names(self, field: str, message: str) -> bool:
        """Whether it says ``message`` about ``field``. Which value it shows before that differs from version to version."""
        causes = self.document.get("details", {}).get("causes", [])
        return any(cause.get("field") == field and cause["message"].endswith(f": {message}") for cause in causes)


def create(cluster: ControlPlane, document: dict[str, Any], *, dry_run: bool = True) -> Answer:
    """POST; a dry run is checked and filled in like any other, but not stored."""
    dry = "&dryRun=All" if dry_run else ""
    return Answer(*cluster.request("POST", f"{JOBS}?{STRICT}{dry}", document))


def update(cluster: ControlPlane, document: dict[str, Any], name: str, subresource: str = "") -> Answer:
    """A merge patch: what ``document`` holds is set, lists as a whole; null removes."""
    return Answer(*cluster.request("PATCH", f"{JOBS}/{name}{subresource}?{STRICT}", document, MERGE))


def replace(cluster: ControlPlane, document: dict[str, Any], *, dry_run: bool = False) -> Answer:
    """PUT in the place of the stored object of this name, whatever its version."""
    name = document["metadata"]["name"]
    version = {"resourceVersion": read(cluster, name).document["metadata"]["resourceVersion"]}
    dry = "&dryRun=All" if dry_run else ""
    whole = {**document, "metadata": {**document["metadata"], **version}}
    return Answer(*cluster.request("PUT", f"{JOBS}/{name}?{STRICT}{dry}", whole))


def read(cluster: ControlPlane, name: str) -> Answer:
    """GET."""
    return Answer(*cluster.request("GET", f"{JOBS}/{name}"))


def kept(sent: Any, stored: Any) -> bool:
    """Whether everything that was sent is stored, whatever the server has added as its default."""
    if isinstance(sent, dict):
        return isinstance(stored, dict) and all(
            key in stored and kept(value, stored[key]) for key, value in sent.items()
        )
    if isinstance(sent, list):
        return isinstance(stored, list) and len(sent) == len(stored) and all(map(kept, sent, stored))
    return bool(sent == stored)


def of_preset(name: str) -> list[str]:
    """The overrides that make a manifest the preset's: its name, and an environment where it has none."""
    example = PRESETS[name].example
    return [f"spec.preset={name}", *([f"spec.environment.id={example}"] if example else [])]
