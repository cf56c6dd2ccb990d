"""What the metadata of every object of a job has: its name, its labels, and whose it is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rljob.api import RLJob
from rljob.api.job import API_VERSION, KIND

from rljob_operator.kube.render import names

_OF_TOOLS: Final = (
    ".rljob.dev", ".kubernetes.io", ".k8s.io", ".x-k8s.io", ".helm.sh", ".argoproj.io", ".fluxcd.io", ".cattle.io", ".k14s.io",
    ".configsync.gke.io",
)  # fmt: skip
"""Ends of the domains of labels by which controllers, queues and tools of delivery know what is theirs: a part of the job that
had one would be selected, queued, or removed as one that no manifest has."""
_PART_OF: Final = "app.kubernetes.io/part-of"
"""The only one of these that nothing selects by."""


def handed_on(labels: Mapping[str, str]) -> dict[str, str]:
    """Those labels of a job, or of a part of one, that every part has: what cost reports and policies go by."""
    return {
        label: value
        for label, value in labels.items()
        if label == _PART_OF or not f".{label.partition('/')[0]}".endswith(_OF_TOOLS)
    }


def is_of(found: Mapping[str, Any], uid: str) -> bool:
    """Whether an object is a child of the job or experiment with this uid, whatever its labels say: they can be taken off."""
    return any(owner.get("uid") == uid for owner in found["metadata"].get("ownerReferences") or ())


@dataclass(frozen=True, slots=True)
class Owned:
    """A stored job: the job in force, and the uid of its object, which every child names as its owner's.

    ``learner_epoch``: of the learner that is about to start; see `ControllerMemory`. ``written``: as `DesiredState.written`.
    """

    job: RLJob
    uid: str
    learner_epoch: int = 0
    written: str = ""

    @property
    def name(self) -> str:
        """The job's name."""
        return self.job.metadata.name

    def claim(self, member: str) -> str:
        """The name of the member's volume claim."""
        return names.claim(self.name, member)

    def same_children(self, other: "Owned") -> bool:
        """Whether ``other`` has the same children: to compare two jobs takes a hundredth of what rendering them does."""
        return (self.job is other.job or self.job == other.job) and (self.uid, self.written) == (
            other.uid,
            other.written,
        )

    def metadata(self, name: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
        """The metadata of a child; ``labels`` in the place of those that the operator gives every child. Those of the job are
        beside them: an object that exists keeps the ones that it was made or last changed with."""
        owner = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
        return {
            "name": name,
            "namespace": self.job.metadata.namespace,
            "labels": {**handed_on(self.job.metadata.labels), **(labels or names.labels(self.name))},
            "ownerReferences": [owner],
        }
