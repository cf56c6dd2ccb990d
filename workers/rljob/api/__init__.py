"""The RLJob resource: its types, defaults and rules, and how a manifest becomes one. Light to import: no torch, no zmq,
no numpy."""

from rljob.algorithms.apex_dqn.parameters import ApeXDQNParameters
from rljob.algorithms.impala.parameters import ImpalaParameters
from rljob.algorithms.ppo.parameters import PPOParameters
from rljob.algorithms.sac.parameters import SACParameters
from rljob.api.environment import EnvironmentParameters
from rljob.api.job import API_VERSION, KIND, RLJob, RLJobSpec
from rljob.api.live import transition_problems
from rljob.api.load import dump_manifest, load_manifest, parse_job, read_manifest, written_job
from rljob.api.local import memory_estimate, not_applied_locally
from rljob.api.parameters import UnrollQueue
from rljob.api.presets import PRESETS, Preset
from rljob.api.problems import ManifestError, Problem, nearest
from rljob.api.roles import credits_per_actor
from rljob.api.sources import as_found, read_with_files, with_code, with_files_beside
from rljob.api.types import quantity

__all__ = [
    "API_VERSION",
    "KIND",
    "PRESETS",
    "ApeXDQNParameters",
    "EnvironmentParameters",
    "ImpalaParameters",
    "ManifestError",
    "PPOParameters",
    "Preset",
    "Problem",
    "RLJob",
    "RLJobSpec",
    "SACParameters",
    "UnrollQueue",
    "as_found",
    "credits_per_actor",
    "dump_manifest",
    "load_manifest",
    "memory_estimate",
    "nearest",
    "not_applied_locally",
    "parse_job",
    "quantity",
    "read_manifest",
    "read_with_files",
    "transition_problems",
    "with_code",
    "with_files_beside",
    "written_job",
]
