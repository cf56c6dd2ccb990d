"""The actor's loop where the simulator runs on a device: a turn is a whole chunk, which the host sees only at its end."""

import threading

from rljob.actor.block import Block
from rljob.actor.device_environment import DeviceEnvironment
from rljob.actor.device_policy import DevicePolicy
from rljob.actor.figures import ActorFigures
from rljob.actor.loop import LocalLoop
from rljob.actor.shards import MultiShard
from rljob.envs.base import EnvironmentProblem, Observation
from rljob.envs.meter import EpisodeMeter
from rljob.envs.restarting import KeepsFailing
from rljob.experience import SegmentBuilder
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
        self._environment = environment
        self._acting = policy
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
        first: Observation = self._block.observation().cpu().numpy()
        return first

    def _may_refresh(self) -> bool:
        return self._between_blocks
