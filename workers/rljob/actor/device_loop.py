"""The actor's loop where the simulator runs on a device: a turn is a whole chunk, which the host sees only at its end.

Steps are gathered on the device and copied to the host a chunk at a time.
"""

import math
import threading
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from rljob.actor.device import DeviceDecision, DeviceEnvironment, DevicePolicy, DeviceStep
from rljob.actor.figures import ActorFigures
from rljob.actor.loop import LocalLoop
from rljob.actor.shards import MultiShard
from rljob.api.episode_metrics import LARGEST
from rljob.envs import EnvironmentProblem, EnvironmentSpec, Observation, StepResult
from rljob.envs.meter import EpisodeMeter
from rljob.envs.received import expect_finite
from rljob.envs.restarting import KeepsFailing
from rljob.experience import Decision, SegmentBuilder
from rljob.loading import short
from rljob.observation import Array
from rljob.weights.flat import WeightSource


class DeviceLoop(LocalLoop):
    """Steps ``environment`` ``length`` times a turn and then records those steps at once, as ``ActorLoop`` does one by one.

    Observations, actions and memories stay on the environment's device; ``Block`` copies to the host what is sent. Newer weights
    are taken between two turns. On a GPU the host runs ahead of the device, and its wait for the copies counts as ``encode``.

    Raises ``KeepsFailing`` where the simulator fails: it begins anew with its actor.
    """

    def __init__(
        self,
        environment: DeviceEnvironment,
        policy: DevicePolicy,
        builder: SegmentBuilder,
        sink: MultiShard,
        weights: WeightSource,
        figures: ActorFigures,
        length: int,
    ) -> None:
        """``length``: steps of a chunk or of an unroll, as the job's layout has it."""
        super().__init__(policy, builder, sink, weights, figures)
        self._environment, self._acting = environment, policy
        self._block = Block(length, environment.num_envs, environment.spec, policy, environment.device)
        self._meter = EpisodeMeter(environment.num_envs)
        self._between_blocks = True

    def turn(self, stop: threading.Event) -> None:
        """A block of steps, cut short by ``stop``; or none, when ``stop`` was set while waiting for credit."""
        clock = self._figures.clock
        clock.enter("send")
        self._between_blocks, self._next_exchange = True, 0.0
        self._exchange()
        if not self._may_go_on(stop):
            return
        self._between_blocks = False
        try:
            self._play(stop)
            clock.enter("encode")
            for decision, result, final_values in self._block.fetch(
                self._meter, reward_clipping=self._environment.reward_clipping
            ):
                self._record(decision, result, final_values)
        except EnvironmentProblem as problem:
            raise KeepsFailing(f"{problem}; a simulator on a device restarts with its actor") from problem

    def _play(self, stop: threading.Event) -> None:
        clock, block, policy = self._figures.clock, self._block, self._acting
        block.begin()
        while block.steps < block.length and not stop.is_set():
            clock.enter("infer")
            actions = block.decided(policy.act(block.observation()))
            clock.enter("env")
            ended = block.put(self._environment.step(actions))
            clock.enter("infer")
            policy.ended(ended)
            clock.enter("send")
            self._exchange()

    def _reset(self) -> Observation:
        self._block.begin(self._environment.reset())
        return self._block.observation().cpu().numpy()

    def _may_refresh(self) -> bool:
        return self._between_blocks


class Block:
    """Room for ``length`` steps of N environments. ``put`` fills it on the device, ``fetch`` gives it to the host.

    ``frames`` [length + 1, N, *F*]: row t is what step t acts on, and the row behind the last step what the next block begins
    with. Final frames [length, N, *F*] and, for a recurrent network, the memory behind each step stay on the device, but for the
    rows whose episode ended. The copies go into page-locked memory where a GPU makes them, and the host waits twice a block: for
    all columns, and then for what those say ended.
    """

    def __init__(
        self, length: int, num_envs: int, spec: EnvironmentSpec, policy: DevicePolicy, device: torch.device
    ) -> None:
        self.length, self._policy, self._device = length, policy, device
        self._environment_id = spec.id
        (column,) = spec.columns
        dtype = getattr(torch, str(column.dtype))
        rows = (length, num_envs)

        def room(kind: torch.dtype, *shape: int) -> Tensor:
            return torch.zeros(shape, dtype=kind, device=device)

        self.frames = room(dtype, length + 1, num_envs, *column.shape)
        self.action = room(torch.int64, *rows)
        self._final_frames = room(dtype, *rows, *column.shape)
        self._memory = room(torch.float32, *rows, *policy.memory.shape[1:])
        columns = {name: room(torch.float32, *rows) for name in ("reward", "taken", "value")}
        columns |= {name: room(torch.bool, *rows) for name in ("terminated", "truncated")}
        self._columns = {"frames": self.frames[1:], "action": self.action, **columns}
        pinned = device.type == "cuda"
        self._host = {
            name: torch.empty_like(column, device="cpu", pin_memory=pinned) for name, column in self._columns.items()
        }
        self.steps = 0
        """Steps in it."""
        self._version = 0
        self._memory_before: Tensor | None = None

    def begin(self, frames: Tensor | None = None) -> None:
        """Forget the steps; the first one acts on ``frames`` [N, *F*], or on what the last one left."""
        self.frames[0].copy_(self.frames[self.steps] if frames is None else frames)
        self.steps = 0
        self._version = self._policy.version
        self._memory_before = self._policy.memory if self._policy.remembers else None

    def observation(self) -> Tensor:
        """[N, 1, *F*]: what the next step acts on."""
        return self.frames[self.steps].unsqueeze(1)

    def decided(self, decision: DeviceDecision) -> Tensor:
        """Keep what the policy has decided for the next step; its actions int64 [N], to be only read."""
        t = self.steps
        self.action[t].copy_(decision.action)
        self._columns["taken"][t].copy_(decision.taken)
        self._columns["value"][t].copy_(decision.value)
        if self._policy.remembers:
            self._memory[t].copy_(self._policy.memory)
        return self.action[t]

    def put(self, step: DeviceStep) -> Tensor:
        """Keep the step that was taken; where an episode ended, bool [N]."""
        t = self.steps
        self.frames[t + 1].copy_(step.frames)
        self._final_frames[t].copy_(step.final_frames)
        for name in ("reward", "terminated", "truncated"):
            self._columns[name][t].copy_(getattr(step, name))
        self.steps = t + 1
        return self._columns["terminated"][t] | self._columns["truncated"][t]

    def fetch(
        self, meter: EpisodeMeter, *, reward_clipping: bool
    ) -> Iterator[tuple[Decision, StepResult, Array | None]]:
        """What each step decided and returned, oldest first, with the values of the final observations of episodes that ran out
        of
        time: what a loop records that steps one by one. The arrays are valid until the next ``fetch``.

        Raises EnvironmentProblem where a reward or an observation is not finite.
        """
        steps = self.steps
        for name, to in self._host.items():
            to[:steps].copy_(self._columns[name][:steps], non_blocking=True)
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        columns = {name: tensor.numpy()[:steps] for name, tensor in self._host.items()}
        self._expect_finite("rewards [step, environment]", columns["reward"], LARGEST)
        self._expect_finite("observations [step, environment, ...]", columns["frames"])
        # Both at once is possible in Gymnasium; there is then nothing to bootstrap from.
        truncated = columns["truncated"] & ~columns["terminated"]
        ends, environments = np.nonzero(columns["terminated"] | truncated)
        if len(ends):
            last_frames, last_values = self.final(ends, environments, truncated[ends, environments])
        count = self.action.shape[1]
        nothing: Array = np.zeros(count, np.bool_)
        before = None if self._memory_before is None else self._memory_before.cpu().numpy()
        for t in range(steps):
            reward, terminated = columns["reward"][t], columns["terminated"][t]
            final_frames: Array | None = None
            final_values: Array | None = None
            first, last = np.searchsorted(ends, (t, t + 1))
            if first < last:  # of meaning where an episode ended
                rows = environments[first:last]
                final_frames = np.zeros((count, *last_frames.shape[1:]), last_frames.dtype)
                final_values = np.full(count, np.nan, np.float32)
                final_frames[rows], final_values[rows] = last_frames[first:last], last_values[first:last]
            result = StepResult(
                observation=columns["frames"][t][:, None],
                reward=np.clip(reward, -1.0, 1.0) if reward_clipping else reward,
                terminated=terminated,
                truncated=truncated[t],
                life_lost=nothing,
                final_observation=None if final_frames is None else final_frames[:, None],
                raw_frames=len(reward),
                episodes=meter.step(reward, 1, terminated, truncated[t]),
            )
            # A memory is asked for where an unroll begins, which is where a block does.
            state = before if t == 0 else None
            yield (
                Decision(columns["action"][t], columns["taken"][t], columns["value"][t], self._version, state),
                result,
                final_values,
            )

    def final(self, step: Array, environment: Array, truncated: Array) -> tuple[Array, Array]:
        """The last frames [M, *F*] of the episodes that ended in ``environment`` i8 [M] with step ``step`` i8 [M], and the values
        f4 [M] of those that are ``truncated`` b1 [M], NaN for the others."""
        at = torch.from_numpy(step).to(self._device), torch.from_numpy(environment).to(self._device)
        frames = self._final_frames[at]
        on_host = frames.cpu().numpy()
        self._expect_finite("observations of ends [end, ...]", on_host)
        values: Array = np.full(len(step), np.nan, np.float32)
        if truncated.any():
            which = torch.from_numpy(np.flatnonzero(truncated)).to(self._device)
            memory = self._memory[at[0][which], at[1][which]]
            values[truncated] = self._policy.values(frames[which].unsqueeze(1), memory).cpu().numpy()
        return on_host, values

    def _expect_finite(self, what: str, numbers: Array, largest: float = math.inf) -> None:
        try:
            expect_finite(what, numbers, largest)
        except ValueError as error:
            raise EnvironmentProblem(f"environment {short(self._environment_id)!r}: step: {error}") from error
