"""Lists whose entries have an identity: by a field, or, for sets, by themselves. Repeated ones are refused, and server-side
apply merges the lists entry by entry."""

from __future__ import annotations

from pydantic import BaseModel

from rljob.api.algorithm import AlgorithmSpec
from rljob.api.controller_memory import ControllerMemory
from rljob.api.environment import EnvironmentSource
from rljob.api.job import RLJobSpec
from rljob.api.lifecycle import CheckpointSpec, FailurePolicy, FailureRule
from rljob.api.status import RLJobStatus

KEYED: dict[tuple[type[BaseModel], str], str] = {
    (RLJobSpec, "image_pull_secrets"): "name",
    (AlgorithmSpec, "parameters"): "name",
    (EnvironmentSource, "parameters"): "name",
    (CheckpointSpec, "include"): "",
    (FailurePolicy, "rules"): "name",
    (FailureRule, "roles"): "",
    (RLJobStatus, "conditions"): "type",
    (ControllerMemory, "members"): "name",
}
"""(model, Python field) -> the entries' key; empty for a set."""
