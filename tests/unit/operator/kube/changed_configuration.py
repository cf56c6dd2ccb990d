"""A configuration of the operator under which a job was started, and another value for each of its fields."""

from collections.abc import Iterator
from typing import Any, Final

from rljob.api.fields import TypedPlace
from rljob_operator.kube.process.configuration import OperatorConfiguration, checked, settings_of
from rljob_operator.kube.render.settings import Settings

NAMESPACE: Final = "rljob-system"
BEFORE: Final[dict[str, Any]] = {
    "image": "rl:1",
    "gpuImage": "rl-gpu:1",
    "checkpointClaim": {"size": "1Gi", "storageClass": "slow"},
}
CHANGES: Final[dict[str, Any]] = {
    "image": "rl:2",
    "gpuImage": "rl-gpu:2",
    "architectures": ["s390x", "arm64"],
    "spot.taints": [{"key": "spot", "value": "yes"}],
    "spot.labels": [{"key": "cheap", "value": "yes"}],
    "gpuNodes.labels": ["example.com/gpu"],
    "gpuNodes.keepOff": "Required",
    "prometheusNamespaces": {"team": "watch"},
    "clusterDomain": "cluster.local",
    "runAsUser": 20002,
    "userFromNamespace": True,
    "checkpointClaim.size": "2Gi",
    "checkpointClaim.storageClass": "fast",
    "kueue.enabled": True,
    "requests.replay": {"cpu": "20m"},
    "requests.learner": {"memory": "3Gi"},
    "requests.inference": {"cpu": "21m"},
    "requests.actor": {"cpu": "22m", "example.com/x": "1"},
    "requests.evaluator": {"cpu": "23m"},
    "requests.redis": {"memory": "300Mi"},
}
"""Field of the configuration -> another value for it."""
TOGETHER: Final = tuple(CHANGES)
"""All of them can be changed at the same time."""
AT_ONCE: Final = {"prometheusNamespaces"}
"""Fields of which a running job's objects or fate follow at once; none of them restarts a pod."""


def every_field() -> set[str]:
    """The fields of the configuration, those of sections by their paths; a section that may be left out is a field, too."""
    return set(_fields(TypedPlace(OperatorConfiguration)))


def _fields(section: TypedPlace, path: str = "") -> Iterator[str]:
    for name, place in section.fields_below():
        if place.model is None or (place.field is not None and place.field.default is None):
            yield f"{path}{name}"
        if place.model is not None:
            yield from _fields(place, f"{path}{name}.")


def started_under() -> Settings:
    """The settings before any change."""
    return _settings(BEFORE)


def changed(*fields: str) -> Settings:
    """The settings with these fields changed."""
    document = {name: dict(value) if isinstance(value, dict) else value for name, value in BEFORE.items()}
    for field in fields:
        *sections, name = field.split(".")
        below: dict[str, Any] = document
        for section in sections:
            below = below.setdefault(section, {})
        below[name] = CHANGES[field]
    return _settings(document)


def _settings(document: dict[str, Any]) -> Settings:
    return settings_of(checked(document, "configuration"), NAMESPACE)
