"""Algorithms by name. Learner and actor loops get one of these and know no algorithm by its name.

An algorithm is one file of pure functions; this registry says which functions they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from rljob.algorithms import apex_dqn, impala
from rljob.algorithms.decision import Decision, Game, Inference
from rljob.algorithms.piece import Piece
from rljob.api import ApeXDQNParameters, ImpalaParameters
from rljob.api.parameters import ParameterSet
from rljob.envs.spec import EnvironmentSpec
from rljob.experience import ChunkLayout, UnrollLayout


class Experience(StrEnum):
    """What actors send and where it waits for the learner."""

    TRANSITIONS = "Transitions"
    """n-step transitions in chunks, sampled many times from the replay service."""
    UNROLLS = "Unrolls"
    """Unrolls in a first-in-first-out queue inside the learner, each learned from once."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """What the loops need of an algorithm; the functions are documented where they are defined (``apex_dqn``, ``impala``).

    Acting: ``infer(net, observation, state) -> Inference`` is one forward pass, with ``outputs(num_actions)`` numbers for each
    observation; ``decide(outputs, epsilon, generator) ->
    Decision`` makes actions of its outputs, on the host, wherever those were computed; ``state_values(outputs)`` the values of
    states; ``random_decision`` acts without weights. ``judged_action`` plays the games of an evaluation.

    Learning: ``loss``, and with replay ``priorities`` and ``importance_weights``, with unrolls ``parts``. ``pieces`` and
    ``joined`` take what an update learns from apart for several cores, and put their losses together again.
    """

    name: str
    experience: Experience
    parameters: type[ParameterSet]
    build: Callable[..., Any]
    layout: Callable[[EnvironmentSpec, Any], Any]
    exploration: Callable[..., Any]
    infer: Callable[..., Inference]
    outputs: Callable[[int], int]
    decide: Callable[..., Decision]
    random_decision: Callable[..., Decision]
    state_values: Callable[..., Any]
    judged_action: Callable[..., Any]
    evaluation_epsilon: Callable[[Any], float]
    example: Callable[..., Any]
    trial: Callable[..., None]
    loss: Callable[..., Any]
    pieces: Callable[..., list[Piece]]
    joined: Callable[..., Any]
    figures: tuple[str, ...]
    priorities: Callable[..., Any] | None = None
    importance_weights: Callable[..., Any] | None = None
    parts: Callable[..., Any] | None = None

    def memory_units(self, params: Any) -> int:
        """H of a recurrent state [2, H]; 0 where the network has no memory."""
        return int(params.lstm_units) if getattr(params, "recurrent", "None") == "LSTM" else 0

    def refresh_steps(self, params: Any) -> int:
        """Steps between two looks for newer weights inside an unroll; 0 looks only between unrolls."""
        return int(getattr(params, "weights_refresh_steps", 1))


def _chunks(spec: EnvironmentSpec, params: ApeXDQNParameters) -> ChunkLayout:
    return ChunkLayout(
        length=params.chunk_length,
        frame_shape=spec.frame_shape,
        frame_dtype=np.dtype(spec.frame_dtype),
        stack=spec.stack,
        n_step=params.n_step,
        num_actions=spec.num_actions,
    )


def _unrolls(spec: EnvironmentSpec, params: ImpalaParameters) -> UnrollLayout:
    return UnrollLayout(
        length=params.unroll_length,
        frame_shape=spec.frame_shape,
        frame_dtype=np.dtype(spec.frame_dtype),
        stack=spec.stack,
        memory=params.lstm_units if params.recurrent == "LSTM" else 0,
        num_actions=spec.num_actions,
    )


_ALGORITHMS = {
    "ApeXDQN": Algorithm(
        name="ApeXDQN",
        experience=Experience.TRANSITIONS,
        parameters=ApeXDQNParameters,
        build=apex_dqn.build,
        layout=_chunks,
        exploration=apex_dqn.exploration,
        infer=apex_dqn.infer,
        outputs=lambda num_actions: num_actions,
        decide=apex_dqn.decide,
        random_decision=apex_dqn.random_decision,
        state_values=apex_dqn.state_values,
        judged_action=apex_dqn.judged_action,
        evaluation_epsilon=lambda params: float(params.evaluation_epsilon),
        example=apex_dqn.example,
        trial=apex_dqn.trial,
        loss=apex_dqn.loss,
        pieces=apex_dqn.pieces,
        joined=apex_dqn.joined,
        figures=apex_dqn.FIGURES,
        priorities=apex_dqn.priorities,
        importance_weights=apex_dqn.importance_weights,
    ),
    "IMPALA": Algorithm(
        name="IMPALA",
        experience=Experience.UNROLLS,
        parameters=ImpalaParameters,
        build=impala.build,
        layout=_unrolls,
        exploration=impala.exploration,
        infer=impala.infer,
        outputs=lambda num_actions: num_actions + 1,  # and the value of the state
        decide=impala.decide,
        random_decision=impala.random_decision,
        state_values=impala.state_values,
        judged_action=impala.judged_action,
        evaluation_epsilon=lambda params: 0.0,
        example=impala.example,
        trial=impala.trial,
        loss=impala.loss,
        pieces=impala.pieces,
        joined=impala.joined,
        figures=impala.FIGURES,
        parts=impala.parts,
    ),
}


def algorithm(name: str) -> Algorithm:
    """The algorithm called ``name`` (``spec.algorithm.type``). Raises ValueError naming those that exist."""
    try:
        return _ALGORITHMS[name]
    except KeyError:
        raise ValueError(f"there is no algorithm {name!r}; there is {', '.join(sorted(_ALGORITHMS))}") from None


__all__ = ["Algorithm", "Decision", "Experience", "Game", "Inference", "algorithm"]
