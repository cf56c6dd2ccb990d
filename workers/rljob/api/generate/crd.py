"""The CustomResourceDefinition of RLJob, made from the types and rules of `rljob.api`."""

from __future__ import annotations

from typing import Any

import yaml

from rljob.api.fields import marker_of
from rljob.api.generate.cel import text
from rljob.api.generate.schema import flowed, schema_of
from rljob.api.job import API_VERSION, KIND, Metadata, RLJob, RLJobSpec
from rljob.api.status import RLJobStatus
from rljob.api.types import Text

_HEADER = """\
# Made from workers/rljob/api by `make generate`. Change the types there, not this file.
"""


def _condition(type: str, field: str) -> str:
    return f'.status.conditions[?(@.type=="{type}")].{field}'


COLUMNS: tuple[dict[str, Any], ...] = (
    {"name": "State", "jsonPath": _condition("Ready", "reason"), "description": "What the job does now."},
    {"name": "Actors", "type": "integer", "jsonPath": ".status.actors.ready", "description": "How many actors play."},
    {
        "name": "Wanted",
        "type": "integer",
        "jsonPath": ".status.autoscaling.desiredReplicas",
        "description": "Actors there should be.",
    },
    {"name": "Learner", "jsonPath": _condition("LearnerReady", "status"), "description": "Whether the learner serves."},
    {
        "name": "Steps",
        "type": "integer",
        "jsonPath": ".status.progress.learnerUpdates",
        "description": "Updates that the learner has made.",
    },
    {
        "name": "Return",
        "jsonPath": ".status.progress.evalReturn",
        "description": "Mean return of the newest evaluation.",
    },
    {
        "name": "Queue%",
        "type": "integer",
        "jsonPath": ".status.progress.queueFillPercent",
        "description": "Fill of the learner's queue: 0, the learner starves; 100, the actors are blocked.",
    },
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    {
        "name": "Preset",
        "priority": 1,
        "jsonPath": ".spec.preset",
        "description": "The job that it was started from.",
    },
    {
        "name": "Algorithm",
        "priority": 1,
        "jsonPath": ".status.effectiveSpec.algorithm.type",
        "description": "The algorithm that learns.",
    },
    {
        "name": "Environment",
        "priority": 1,
        "jsonPath": ".status.effectiveSpec.environment.id",
        "description": "The environment that is played.",
    },
    {
        "name": "Lag",
        "type": "integer",
        "priority": 1,
        "jsonPath": ".status.progress.policyLagUpdates",
        "description": "Policy lag in updates, 95th percentile.",
    },
    {
        "name": "Frames",
        "type": "integer",
        "priority": 1,
        "jsonPath": ".status.progress.rawFrames",
        "description": "Raw frames played by all actors.",
    },
    {
        "name": "Checkpoint Age",
        "type": "date",
        "priority": 1,
        "jsonPath": ".status.checkpoint.time",
        "description": "Time since the newest verified checkpoint.",
    },
    {
        "name": "Limited",
        "priority": 1,
        "jsonPath": ".status.autoscaling.limitedBy",
        "description": "What keeps the number of actors from the recommended one.",
    },
    {
        "name": "Node",
        "priority": 1,
        "jsonPath": ".status.learner.nodeName",
        "description": "Where the learner runs.",
    },
)
"""What ``kubectl get`` prints; with priority 1 only ``-o wide``. Conditions are found by type, never by their place."""

OF_ONE_OWNER: tuple[str, ...] = ("effectiveSpec", "controller", "autoscaling", "progress")
"""Parts of the status that only the operator writes. With an owner for each of their fields, a write of a status costs an API
server half as much again, and a stored job is twice as large. Conditions have owners of their own: a queue may add some."""


def definition() -> dict[str, Any]:
    """The CRD as a document."""
    group, version = API_VERSION.split("/")
    plural = f"{KIND.lower()}s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": plural,
                "singular": KIND.lower(),
                "shortNames": ["rlj"],
                "categories": ["all", "rl"],
            },
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": _root()},
                    "additionalPrinterColumns": [{"type": "string", **column} for column in COLUMNS],
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.actors.replicas",
                            "statusReplicasPath": ".status.actors.replicas",
                            "labelSelectorPath": ".status.actors.selector",
                        },
                    },
                }
            ],
        },
    }


def _status() -> dict[str, Any]:
    found = schema_of(RLJobStatus, "status")
    for name in OF_ONE_OWNER:
        found["properties"][name]["x-kubernetes-map-type"] = "atomic"
    return found


def _root() -> dict[str, Any]:
    name = marker_of(Metadata.model_fields["name"])
    assert isinstance(name, Text)
    assert name.pattern is not None
    return {
        "type": "object",
        "description": flowed(RLJob.__doc__),
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"The API this document is written for: {API_VERSION}."},
            "kind": {"type": "string", "description": f"What it describes: {KIND}."},
            "metadata": {"type": "object"},
            "spec": {"description": flowed(RLJobSpec.__doc__), **schema_of(RLJobSpec, "spec")},
            "status": {
                "description": flowed(RLJobStatus.__doc__),
                "default": {"observedGeneration": 0},  # else a job that was not reconciled yet counts as up
                **_status(),
            },
        },
        "x-kubernetes-validations": [
            {
                "rule": f"self.metadata.name.size() <= {name.longest} && self.metadata.name.matches({text(name.pattern)})",
                "message": f"metadata.name: {name.allowed}",
            }
        ],
    }


class _Dumper(yaml.SafeDumper):
    """No anchors: the same default at two places stays two texts."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def manifest() -> str:
    """The CRD as YAML."""
    return _HEADER + yaml.dump(
        definition(), Dumper=_Dumper, default_flow_style=None, sort_keys=False, width=1000, allow_unicode=True
    )
