"""The roles of a job, and the function that runs each."""

import enum
import threading
from collections.abc import Callable

from rljob.roles.options import RoleOptions


class Role(enum.StrEnum):
    """The roles of a job."""

    ACTOR = "actor"
    REPLAY = "replay"
    LEARNER = "learner"
    EVALUATOR = "evaluator"
    INFERENCE = "inference"


RoleFunction = Callable[[RoleOptions, threading.Event], None]


def role_function(role: Role) -> RoleFunction:
    """The function that runs a role until it is done or told to stop. Imports only what that role needs."""
    if role is Role.ACTOR:
        from rljob.roles.actor import run_actor

        return run_actor
    if role is Role.REPLAY:
        from rljob.roles.replay import run_replay

        return run_replay
    if role is Role.LEARNER:
        from rljob.roles.learner import run_learner

        return run_learner
    if role is Role.INFERENCE:
        from rljob.roles.inference import run_inference

        return run_inference
    from rljob.roles.evaluator import run_evaluator

    return run_evaluator
