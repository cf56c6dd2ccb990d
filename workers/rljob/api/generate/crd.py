"""The CustomResourceDefinitions of RLJob and RLExperiment, made from the types and rules of `rljob.api`."""

from collections.abc import Sequence
from typing import Any

import yaml

from rljob.api.experiment import EXPERIMENT_KIND, WHY_COMMON, RLExperiment, RLExperimentSpec, RLExperimentStatus
from rljob.api.generate.schema import flowed, schema_of
from rljob.api.job import API_VERSION, KIND, NAME, RLJob, RLJobSpec
from rljob.api.status import RLJobStatus

_HEADER = """\
# Made from workers/rljob/api by `make generate`. Change the types there, not this file.
"""


def _condition(type: str, field: str) -> str:
    return f'.status.conditions[?(@.type=="{type}")].{field}'


_AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
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
        "name": "Updates",
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
    _AGE,
    {
        "name": "Preset",
        "priority": 1,
        "jsonPath": ".spec.preset",
        "description": "The job that it was started from.",
    },
    {
        "name": "Algorithm",
        "priority": 1,
        "jsonPath": ".status.algorithm",
        "description": "The algorithm that learns.",
    },
    {
        "name": "Environment",
        "priority": 1,
        "jsonPath": ".status.environment",
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

EXPERIMENT_COLUMNS: tuple[dict[str, Any], ...] = (
    {"name": "State", "jsonPath": _condition("Ready", "reason"), "description": "What the experiment does now."},
    {"name": "Trials", "type": "integer", "jsonPath": ".status.trials", "description": "Settings that are tried."},
    {"name": "Done", "type": "integer", "jsonPath": ".status.done", "description": "Trials that are over."},
    {"name": "Running", "type": "integer", "jsonPath": ".status.running", "description": "Runs that play now."},
    {"name": "Failed", "type": "integer", "jsonPath": ".status.failed", "description": "Runs that have failed."},
    {"name": "Best", "jsonPath": ".status.best.mean", "description": "Score of the best trial so far."},
    {"name": "Trial", "type": "integer", "jsonPath": ".status.best.trial", "description": "Number of the best trial."},
    _AGE,
    {
        "name": "Fresh",
        "priority": 1,
        "jsonPath": ".status.fresh.mean",
        "description": "The best trial on games that it was not chosen by.",
    },
    {"name": "Settings", "priority": 1, "jsonPath": ".status.best.set", "description": "What the best trial sets."},
)

_COMMON_PLACE = (
    "!has(self.population) || has(self.template.spec.checkpoint) && has(self.template.spec.checkpoint.storage)"
)

OF_ONE_OWNER: tuple[str, ...] = ("controller", "autoscaling", "progress")
"""Parts of the status that only the operator writes. With an owner for each of their fields, a write of a status costs an API
server half as much again, and a stored job is twice as large. Conditions have owners of their own: a queue may add some."""


def definition() -> dict[str, Any]:
    """The CRD of RLJob as a document."""
    scale = {
        "specReplicasPath": ".spec.actors.replicas",
        "statusReplicasPath": ".status.actors.replicas",
        "labelSelectorPath": ".status.actors.selector",
    }
    spec = {"description": flowed(RLJobSpec.__doc__), **schema_of(RLJobSpec, "spec")}
    status = {"description": flowed(RLJobStatus.__doc__), **schema_of(RLJobStatus, "status")}
    for name in OF_ONE_OWNER:
        status["properties"][name]["x-kubernetes-map-type"] = "atomic"
    root = _root(KIND, flowed(RLJob.__doc__), spec, status)
    return _definition(KIND, "rlj", COLUMNS, root, {"status": {}, "scale": scale})


def experiment_definition() -> dict[str, Any]:
    """The CRD of RLExperiment as a document. Its template is typed as an RLJob's spec, without words, which an RLJob's CRD has,
    and without rules between fields, which are its operator's to check: it sees what each trial makes of them. One machine needs
    no place that the members of a population share, a cluster does."""
    spec = {"description": flowed(RLExperimentSpec.__doc__), **schema_of(RLExperimentSpec, "spec")}
    below = spec["properties"]["template"]["properties"]
    below["spec"] = {"description": below["spec"]["description"], **_bare(schema_of(RLJobSpec, "spec"))}
    spec["x-kubernetes-validations"] = [{"rule": _COMMON_PLACE, "message": WHY_COMMON, "reason": "FieldValueRequired"}]
    status = {"description": flowed(RLExperimentStatus.__doc__), **schema_of(RLExperimentStatus)}
    root = _root(EXPERIMENT_KIND, flowed(RLExperiment.__doc__), spec, status)
    return _definition(EXPERIMENT_KIND, "rlx", EXPERIMENT_COLUMNS, root, {"status": {}})


def _bare(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema without words and rules."""
    kept = {key: value for key, value in schema.items() if key not in ("description", "x-kubernetes-validations")}
    if "properties" in schema:
        kept["properties"] = {name: _bare(each) for name, each in schema["properties"].items()}
    return {key: _bare(each) if key in ("items", "additionalProperties") else each for key, each in kept.items()}


def _definition(
    kind: str, short: str, columns: Sequence[dict[str, Any]], root: dict[str, Any], subresources: dict[str, Any]
) -> dict[str, Any]:
    group, version = API_VERSION.split("/")
    plural = f"{kind.lower()}s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
                "categories": ["all", "rl"],
            },
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": root},
                    "additionalPrinterColumns": [{"type": "string", **column} for column in columns],
                    "subresources": subresources,
                }
            ],
        },
    }


def _root(kind: str, words: str, spec: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "description": words,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"The API this document is written for: {API_VERSION}."},
            "kind": {"type": "string", "description": f"What it describes: {kind}."},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": {
                "description": status["description"],
                "default": {"observedGeneration": 0},  # else one that was not reconciled yet counts as up
                **status,
            },
        },
        "x-kubernetes-validations": [
            {
                "rule": f"self.metadata.name.size() <= {NAME.longest} && self.metadata.name.matches('{NAME.pattern}')",
                "message": f"metadata.name: {NAME.allowed}",
            }
        ],
    }


class _Dumper(yaml.SafeDumper):
    """No anchors: the same default at two places stays two texts. A field without fields of its own is a line."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _mapping(writer: _Dumper, data: dict[str, Any]) -> yaml.Node:
    is_long = any(isinstance(each, dict | list) and len(str(each)) > 200 for each in data.values())
    flow_style = None if is_long or "properties" in data else True
    return writer.represent_mapping("tag:yaml.org,2002:map", data, flow_style=flow_style)


_Dumper.add_representer(dict, _mapping)


def manifest(document: dict[str, Any]) -> str:
    """A CRD as YAML."""
    return _HEADER + yaml.dump(
        document, Dumper=_Dumper, default_flow_style=None, sort_keys=False, width=1000, allow_unicode=True
    )
