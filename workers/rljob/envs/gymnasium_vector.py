"""A Gymnasium vector environment of any kind, brought to this project's rule for the end of an episode.

Three kinds of vector environment can keep the SAME_STEP rule exactly: those that follow it themselves (Gymnasium's Sync
and Async, a user's own), those whose automatic reset is off and that reset single rows on request
(``AutoresetMode.DISABLED`` with ``options={"reset_mask": ...}``), and Gymnasium's CartPole, whose rows `_cart_pole`
resets. One that resets at the *next* step spends a dummy step on it, in which all other rows move on: the
first observation of the new episode then comes one step too late to be returned with the end of the old one, and a dummy
step handed out as a transition would poison the replay. Such an environment is refused.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from rljob.api import EnvironmentParameters
from rljob.api.episode_metrics import LARGEST
from rljob.envs.base import EnvironmentProblem, Observation, StepResult
from rljob.envs.encoding import Encoding
from rljob.envs.meter import AtariCounters, EpisodeMeter, with_metrics
from rljob.envs.received import close, expect_finite
from rljob.envs.restarting import FAILURE
from rljob.envs.spaces import checked_actions, checked_controls
from rljob.envs.spec import EnvironmentSpec
from rljob.envs.target import UserFactory, clips_rewards, resolve
from rljob.errors import UsageError
from rljob.loading import PLUGIN_FAILURES, contained, short, told
from rljob.observation import each

# (env, rows to reset bool[N]) -> observation [N, ...] in which those rows have begun anew; what the others show does not matter
RowReset = Callable[[VectorEnv[Any, Any, Any], NDArray[np.bool_]], Any]


def _by_mask(env: VectorEnv[Any, Any, Any], ended: NDArray[np.bool_]) -> Any:
    return env.reset(options={"reset_mask": ended})[0]


def _cart_pole(env: VectorEnv[Any, Any, Any], ended: NDArray[np.bool_]) -> Any:
    """Gymnasium's CartPole resets at the next step and drops that row's action. Its state is public, so the same reset
    (uniform in [low, high] from its own generator) is done one step earlier, and its note to do it later is erased."""
    cart_pole = env.unwrapped
    assert isinstance(cart_pole, CartPoleVectorEnv)
    state: Any = cart_pole.state
    state[:, ended] = cart_pole.np_random.uniform(cart_pole.low, cart_pole.high, size=(4, int(ended.sum())))
    cart_pole.steps[ended] = 0
    cart_pole.prev_done[:] = False
    return state.T


class GymnasiumVector:
    """N rows of ``env``; owns it and closes it.

    ``encoding``: between its own spaces and ours, S = 1; None where observations come as [N, S, *F*] already, and actions
    are taken as they are. ``atari``: infos carry ALE's counters. Raises EnvironmentProblem if ``env`` cannot follow the SAME_STEP
    rule; ``env`` is then closed.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        env: VectorEnv[Any, Any, Any],
        seed: int,
        *,
        encoding: Encoding | None,
        reward_clipping: bool,
        atari: bool = False,
    ) -> None:
        self.spec, self.num_envs = spec, int(env.num_envs)
        self._env, self._encoding, self._reward_clipping = env, encoding, reward_clipping
        self._seed: int | None = seed
        self._meter = EpisodeMeter(self.num_envs)
        self._counters = AtariCounters() if atari else None
        self._closed = False
        try:
            self._row_reset: RowReset | None = self._choose_row_reset()
        except EnvironmentProblem:
            self.close()
            raise

    @contained()
    def reset(self, seed: int | None = None) -> Observation:
        seed, self._seed = (self._seed if seed is None else seed), None
        with self._labelled("reset"):
            observation, info = self._env.reset(seed=seed)
            frames = self._frames(observation)
        self._meter.begin(self._counters.begin(info) if self._counters else 0)
        return frames

    @contained()
    def step(self, actions: NDArray[np.int64], controls: NDArray[np.float32] | None = None) -> StepResult:
        checked_actions(actions, self.num_envs, self.spec.action_sizes)
        checked_controls(controls, self.num_envs, self.spec.controls)
        taken = self.spec.all_choices.action(actions, controls)
        if self._encoding is not None:
            taken = self._encoding.action(taken, self.num_envs)
        final: Observation | None = None
        with self._labelled("step"):
            observation, reward, terminated, truncated, info = self._env.step(taken)
            expect_finite("rewards [environment]", np.asarray(reward), LARGEST)
            frames = self._frames(observation)
            cut, failures = _failures(info)
            terminated = np.asarray(terminated, np.bool_)
            # Both at once is possible in Gymnasium; there is then nothing to bootstrap from.
            truncated = np.asarray(truncated, np.bool_) & ~terminated
            if cut is not None:
                truncated &= ~cut
            ended = terminated | truncated
            if ended.any() and self._row_reset is None:
                final = self._final_observations(frames, info, ended)
        if ended.any() and self._row_reset is not None:
            final = frames
            with self._labelled("reset"):
                fresh = self._frames(self._row_reset(self._env, ended))
            frames = each(partial(_with_rows, ended), frames, fresh)
        of_step: NDArray[np.int64] | int = self.spec.raw_frames_per_step
        of_reset: NDArray[np.int64] | int = 0
        life_lost = np.zeros(self.num_envs, np.bool_)
        if self._counters is not None:
            of_step, of_reset, _, life_lost = self._counters.step(info, ended)
        episodes = self._meter.step(reward, of_step, terminated, truncated, of_reset)
        # Where rows are reset here, infos are those of the step itself.
        episodes = with_metrics(episodes, info if self._row_reset is not None else info.get("final_info"))
        if cut is not None:
            self._meter.forget(cut)
        stepped = self.num_envs if cut is None else self.num_envs - int(cut.sum())
        return StepResult(
            observation=frames,
            reward=(np.clip(reward, -1.0, 1.0) if self._reward_clipping else reward).astype(np.float32),
            terminated=terminated,
            truncated=truncated,
            life_lost=life_lost,
            final_observation=final,
            raw_frames=stepped * of_step if isinstance(of_step, int) else int(np.sum(of_step) + np.sum(of_reset)),
            episodes=episodes,
            cut=cut,
            failures=failures,
        )

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            close(self._env, self.spec.id)

    @contextlib.contextmanager
    def _labelled(self, where: str) -> Iterator[None]:
        """Make whatever a vector class raises an EnvironmentProblem that names it."""
        try:
            yield
        except (EnvironmentProblem, UsageError):
            raise
        except PLUGIN_FAILURES as error:
            raise EnvironmentProblem(
                f"environment {short(self.spec.id)!r} failed in {where}(): {told(error)}"
            ) from error

    def _choose_row_reset(self) -> RowReset | None:
        mode = self._env.metadata.get("autoreset_mode")
        if mode == AutoresetMode.SAME_STEP:
            return None
        if mode == AutoresetMode.DISABLED:
            return _by_mask
        if type(self._env.unwrapped) is CartPoleVectorEnv:
            return _cart_pole
        raise EnvironmentProblem(
            f"environment {short(self.spec.id)!r}: its vector class resets with {getattr(mode, 'value', mode)!r}, which puts a "
            "dummy step between episodes; it must support SAME_STEP, or DISABLED with reset_mask (or set backend: Sync)"
        )

    def _frames(self, observation: Any) -> Observation:
        """[N, S, *F*] in the dtype of the spec, in memory that ``env`` will not write again. What is stacked already was checked
        where it was made."""
        if self._encoding is None:
            return each(np.array, observation)
        return each(lambda of: of[:, None], self._encoding.observation(observation, None, self.num_envs))

    def _final_observations(self, like: Observation, info: dict[str, Any], ended: NDArray[np.bool_]) -> Observation:
        """[N, S, *F*], zeros in live rows, whether the info holds one array or an object array with holes. Raises UsageError
        where it has none: no new vector of that class would do better."""
        if "final_obs" not in info:
            raise UsageError(
                f"environment {short(self.spec.id)!r}: an episode has ended, and the info of step() has no 'final_obs', the "
                "observations [N, ...] before the reset, as SAME_STEP asks (Gymnasium 1.0; before it the name was "
                "'final_observation')"
            )
        found = each(np.zeros_like, like)
        for row in np.flatnonzero(ended):
            given = info["final_obs"][row]
            shown = given if self._encoding is None else self._encoding.observation(given, None)
            each(lambda into, final, row=row: into.__setitem__(row, final), found, shown)
        return found


def _with_rows(which: NDArray[np.bool_], old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
    """``old`` with ``new`` in the rows ``which``."""
    return np.where(which.reshape(-1, *(1,) * (old.ndim - 1)), new, old)


def _failures(info: dict[str, Any]) -> tuple[NDArray[np.bool_] | None, tuple[str, ...]]:
    """Rows whose step failed, and the reasons of all failures, those of resets too (see ``RestartingEnv``)."""
    of_step = info.get("final_info")
    both = [of_step if isinstance(of_step, dict) else {}, info]  # an array of a vector class before Gymnasium 1.0
    reasons = [reason for of in both if FAILURE in of for reason in of[FAILURE][of[f"_{FAILURE}"]].tolist()]
    return both[0].get(f"_{FAILURE}"), tuple(reasons)


@contained(making=True)
def user_vector(target: UserFactory, num_envs: int) -> VectorEnv[Any, Any, Any]:
    """``num_envs`` environments of ``target``. Raises EnvironmentProblem when it fails or gives anything else."""
    try:
        vector = target.make(num_envs=num_envs, **target.kwargs)
    except PLUGIN_FAILURES as error:
        raise EnvironmentProblem(f"environment {short(target.id)!r}: the factory failed: {told(error)}") from error
    if not isinstance(vector, VectorEnv) or vector.num_envs != num_envs:
        raise EnvironmentProblem(
            f"environment {short(target.id)!r}: with num_envs={num_envs} the factory returned {type(vector).__name__}; it "
            f"must return a gymnasium.vector.VectorEnv of {num_envs}"
        )
    return vector


@dataclass(frozen=True, slots=True)
class DeviceVector:
    """A vector environment on a device, as its author gives it. ``spec``: its observations have a stack of one frame.

    ``actions``: for each of our actions the one of ``env``, empty for the same. ``reward_clipping``: whether training sees
    rewards clipped to [-1, 1].
    """

    spec: EnvironmentSpec
    env: VectorEnv[Any, Any, Any]
    actions: tuple[int, ...]
    reward_clipping: bool


def make_device_vector(spec: EnvironmentSpec, parameters: EnvironmentParameters, num_envs: int) -> DeviceVector | None:
    """``num_envs`` copies of the environment of ``spec`` on the device that its factory chooses; None for every other kind,
    and where ``backend`` or ``maxEpisodeSteps`` asks for plain environments. Raises EnvironmentProblem where it cannot be used as
    it is."""
    target, limited = resolve(spec.id, parameters), parameters.max_episode_steps
    if (
        not isinstance(target, UserFactory)
        or not target.on_device
        or parameters.backend not in ("Auto", "Native")
        or limited
    ):
        return None
    if spec.stack > 1:
        raise EnvironmentProblem(
            f"environment {short(spec.id)!r}: frames are not stacked on a device; write frameStack: 1, and put what was "
            "seen before into the observation itself"
        )
    if len(spec.observation) > 1 or spec.observation[0].sizes or len(spec.action_sizes) != 1 or spec.controls:
        raise EnvironmentProblem(
            f"environment {short(spec.id)!r}: on a device its observations have to be one Box, and its actions one Discrete; "
            "backend: Sync steps plain environments of any spaces"
        )
    env = user_vector(target, num_envs)
    mode = env.metadata.get("autoreset_mode")
    if mode != AutoresetMode.SAME_STEP:
        env.close()
        raise EnvironmentProblem(
            f"environment {short(spec.id)!r}: on a device it must reset with SAME_STEP, as its metadata's autoreset_mode says, "
            f"but that is {getattr(mode, 'value', mode)!r}"
        )
    return DeviceVector(spec, env, parameters.action_subset, clips_rewards(target.id, parameters))
