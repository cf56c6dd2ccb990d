"""Lists whose entries have an identity: by a field, or, for sets, by themselves. Repeated ones are refused, and server-side
apply merges the lists entry by entry."""

from pydantic import BaseModel

from rljob.api.controller_memory import ControllerMemory
from rljob.api.experiment_status import RLExperimentStatus
from rljob.api.job import RLJobSpec
from rljob.api.lifecycle import CheckpointSpec, FailurePolicy, FailureRule
from rljob.api.replay import ReplaySpec
from rljob.api.roles import ActorsSpec, EvaluatorSpec, InferenceSpec, LearnerSpec
from rljob.api.status import RLJobStatus

_ROLES = (LearnerSpec, ReplaySpec, ActorsSpec, InferenceSpec, EvaluatorSpec)

KEYED: dict[tuple[type[BaseModel], str], str] = {
    (RLJobSpec, "image_pull_secrets"): "name",
    (RLJobSpec, "preset_without"): "",
    (CheckpointSpec, "include"): "",
    (FailurePolicy, "rules"): "name",
    (FailureRule, "roles"): "",
    (RLJobStatus, "conditions"): "type",
    (RLExperimentStatus, "conditions"): "type",
    (ControllerMemory, "members"): "name",
    **{(role, "env"): "name" for role in _ROLES},
}
"""(model, Python field) -> the entries' key; empty for a set."""
