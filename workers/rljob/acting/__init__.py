"""Computing actions; and who an actor is to those that it talks to: replay shards, the learner's queue, inference servers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ActorIdentity:
    """Who speaks: the logical actor, this life of it, and how many environments it steps."""

    actor: str
    incarnation: str
    num_envs: int
