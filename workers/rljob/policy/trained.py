"""A trained policy to act with: batches of observations in, actions out, and the environment that makes such observations."""

import os
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rljob.algorithms.registry import algorithm
from rljob.checkpoints import saved_policy as stored
from rljob.checkpoints.location import location
from rljob.encoders import make_encoded_environment
from rljob.envs.encoding import Encoding, first_odd
from rljob.observation import ObservationColumn, by_column, each, of_columns, rows_of


class Policy:
    """What ``rljob.load_policy`` gives. It keeps nothing from one ``act`` to the next: one will do for any number of games.

    Observations are those of ``environment()``: preprocessed and stacked, oldest frame first, ``[N, S, *F]``. Raw frames of an
    emulator are none: what is made of them (the newest four, say) depends on the frames before.

    algorithm: its name, as in ``spec.algorithm.type``. environment_id: what it was trained in. observation_shape: ``(S, *F)``.
    observation_dtype: "uint8" or "float32". num_actions: actions are 0 to this - 1. memory_units: H of a recurrent policy, or 0.
    Where an environment shows several kinds of numbers, an observation is a dict of arrays by column, as ``environment()`` gives
    it, and so are observation_shape and observation_dtype. Where an action has several choices it is int64 [N, choices].
    Where it has continuous numbers it is as ``environment()`` takes it: of its author's space, with its bounds and types, and as
    a dict or tuple where that is one; num_actions then counts the values of the choices beside them.
    manifest: what its checkpoint says of itself, such as ``manifest["verdict"]`` of a judged one.
    """

    def __init__(self, policy: stored.SavedPolicy, source: str) -> None:
        self.source, self.stored = source, policy
        self.manifest: dict[str, Any] = policy.manifest
        self.algorithm = str(policy.manifest["algorithm"])
        self.environment_id, self.num_actions = policy.spec.id, policy.spec.num_actions
        self.observation_shape, self.observation_dtype = policy.spec.observation_shape, policy.spec.observation_dtype
        self._method = algorithm(self.algorithm)
        self._choices = policy.spec.all_choices
        self._encoding = Encoding(policy.spec, policy.env_params)
        self.memory_units = self._method.memory_units(policy.params)

    def act(
        self,
        observations: Any,
        deterministic: bool = True,
        *,
        memory: NDArray[np.float32] | None = None,
        generator: np.random.Generator | None = None,
    ) -> Any:
        """The action for each of N observations ``[N, S, *F]``, int64 [N]. Only reads ``observations``.

        deterministic: the action that the policy prefers. Otherwise it acts as its run judges it: IMPALA samples at its
        ``evaluationTemperature``, Ape-X takes a random action with the probability ``evaluationEpsilon``.
        memory: what a recurrent policy has seen, from ``new_memory``; it is brought up to date. All other policies need none.
        generator: what is drawn from; by default one that differs from call to call.

        Raises ValueError for observations, or a memory, of another shape or type.
        """
        shown = self._checked(observations)
        state = self._checked_memory(memory, rows_of(shown))
        if deterministic:
            preferences, after = self.preferences(shown, state)
            actions = self._choices.mode(preferences)
        else:
            actions, after = self._as_judged(shown, state, generator or np.random.default_rng())
        if memory is not None:
            memory[:] = after
        return self._encoding.action(actions, rows_of(shown)) if self._choices.controls else actions

    def new_memory(self, count: int) -> NDArray[np.float32]:
        """The memory of ``count`` games that begin, float32 [N, 2, H], all zero. Set the rows of games that ended to 0 again."""
        return np.zeros((count, 2, self.memory_units), np.float32)

    def environment(self, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
        """The environment that it was trained in, with the same preprocessing; rewards are the game's own, never clipped.

        One of several: ``gymnasium.vector.SyncVectorEnv([policy.environment] * 8, autoreset_mode=AutoresetMode.SAME_STEP)``, so
        that what follows an end is the first observation of the next game. Raises EnvironmentProblem where it can't be
        made here, for instance because the module of the user's own factory can't be imported.
        """
        spec, params = self.stored.spec, self.stored.env_params
        own_actions = self._choices.controls > 0
        return make_encoded_environment(
            spec.id,
            params,
            for_scoring=True,
            render_mode=render_mode,
            spec=spec,
            own_actions=own_actions,
            keeps_infos=True,
        )

    def preferences(
        self, observations: Any, state: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """How much it prefers each action (its value, or its logit), float32 [N, A], and the memory afterwards; nothing is
        checked. Behind those are the means of continuous numbers and the logarithms of their deviations."""
        outputs, after = self._method.infer(self.stored.module, observations, state)
        return self._method.preferences(outputs).numpy(), after.numpy()

    def _as_judged(
        self, observations: Any, state: NDArray[np.float32], generator: np.random.Generator
    ) -> tuple[Any, NDArray[np.float32]]:
        params, count = self.stored.params, rows_of(observations)
        # Rows of a batch, as an algorithm sees games that are judged.
        games: list[Any] = [SimpleNamespace(random=generator, memory=memory) for memory in state]
        chosen = self._method.evaluation_action(params, self.stored.module, observations, games)
        explores = generator.random(count) < self._method.evaluation_epsilon(params)
        anything = self.stored.spec.choices(observations).anything(count, generator)

        def either(one: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
            return np.where(explores.reshape(-1, *(1,) * (one.ndim - 1)), one, other)

        return each(either, anything, chosen), np.stack([game.memory for game in games]) if games else state

    def _checked(self, observations: Any) -> Any:
        columns = self.stored.spec.columns
        if len(columns) > 1 and not isinstance(observations, Mapping):
            names = ", ".join(column.name for column in columns)
            raise ValueError(
                f"observations are no dict, but this policy takes one of {names}, as policy.environment() gives it"
            )
        given = by_column(columns, observations)
        return of_columns(columns, [_checked_column(column, given[column.name]) for column in columns])

    def _checked_memory(self, memory: NDArray[np.float32] | None, count: int) -> NDArray[np.float32]:
        if memory is None and self.memory_units:
            raise ValueError(
                f"this policy remembers with {self.memory_units} units: give act(observations, memory=memory), with a memory "
                "that policy.new_memory(N) makes once for N games"
            )
        if memory is None:
            return self.new_memory(count)
        if memory.shape != (count, 2, self.memory_units) or memory.dtype != np.float32:
            raise ValueError(
                f"memory is {memory.dtype} of the shape {memory.shape}, but {count} observations need float32 of "
                f"{(count, 2, self.memory_units)}, as policy.new_memory({count}) makes it"
            )
        return memory

    def __repr__(self) -> str:
        return f"<rljob policy: {self.algorithm} on {self.environment_id}, {self.seen_and_chosen}, from {self.source}>"

    @property
    def seen_and_chosen(self) -> str:
        """What goes in and comes out, for people: ``uint8 [N, 4, 42, 42] -> 6 actions``."""
        several = len(self.stored.spec.columns) > 1
        seen = [
            f"{column.name + ' ' if several else ''}{column.dtype} [{', '.join(map(str, ('N', *column.observed)))}]"
            for column in self.stored.spec.columns
        ]
        sizes, controls = self.stored.spec.action_sizes, self.stored.spec.controls
        numbers = f"{controls} continuous number{'s' if controls > 1 else ''}" if controls else ""
        chosen = f"{sizes[0]} actions" if len(sizes) == 1 else f"{len(sizes)} choices of {', '.join(map(str, sizes))}"
        return f"{', '.join(seen)} -> {' and '.join(filter(None, (chosen if sizes else '', numbers)))}"


def _checked_column(column: ObservationColumn, observations: Any) -> NDArray[Any]:
    shown = np.asarray(observations)
    wanted = ", ".join(map(str, column.observed))
    if shown.shape[1:] != column.observed or shown.ndim == 0:
        alone = "; a batch of this one alone is observation[None]" if shown.shape == column.observed else ""
        raise ValueError(
            f"observations have the shape {shown.shape}, but this policy takes [N, {wanted}], as policy.environment() "
            f"gives them{alone}"
        )
    if shown.dtype != column.dtype:
        raise ValueError(
            f"observations are {shown.dtype}, but this policy takes {column.dtype}, as policy.environment() gives them"
        )
    if shown.dtype.kind == "f" and not (fine := np.isfinite(shown)).all():
        raise ValueError(f"observations of finite numbers were expected, they have {first_odd(shown, fine)}")
    shown = np.ascontiguousarray(shown)
    return shown if shown.flags.writeable else shown.copy()  # torch warns of memory that it could write to


def load(source: str | os.PathLike[str]) -> Policy:
    """As ``rljob.load_policy`` says."""
    text = os.fspath(source)
    return Policy(stored.load_policy(location(text)), text)
