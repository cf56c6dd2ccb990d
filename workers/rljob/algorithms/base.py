"""What the loops need of an algorithm. One from outside this package subclasses ``TransitionAlgorithm`` or ``UnrollAlgorithm``.

Actors, inference servers, evaluators and learners work with any object of these classes; which of the two it is says what actors
send and where it waits for the learner. An algorithm keeps no state: parameters and networks are passed to every call, and one
object may be used by several threads.

Shapes: N environments, K outputs of the network, A actions, B batch, T steps of an unroll, S frame stack, F frame shape, H units
of memory.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rljob.algorithms.batches import LossResult, Moments, Observation, TransitionBatch, UnrollBatch, as_batch
from rljob.algorithms.optimizer import Optimizer
from rljob.algorithms.trunk import FrameNetwork
from rljob.api import EnvironmentParameters
from rljob.api.parameters import (
    ActorCriticParameterSet,
    LearnerParameterSet,
    TransitionParameterSet,
    UnrollParameterSet,
)
from rljob.choices import HALF_LOG_2PI, Choices, RandomNumbers
from rljob.envs.spec import EnvironmentSpec
from rljob.experience import (
    ActionSpace,
    ColumnRole,
    Decision,
    SegmentLayout,
    batch_key,
    transition_arrays,
    transition_layout,
    unroll_arrays,
    unroll_layout,
)


class Inference(NamedTuple):
    """One forward pass for N observations: ``outputs`` float32 [N, K], of which ``Algorithm.decide`` makes actions, and
    ``state`` float32 [N, 2, H], the memory afterwards (H is 0 for a network without one)."""

    outputs: Tensor
    state: Tensor


class Game(Protocol):
    """One game that is being evaluated, as a policy sees it: its own random numbers, and room for a memory (None at first)."""

    random: np.random.Generator
    memory: Any


P = TypeVar("P", bound=LearnerParameterSet)
TransitionP = TypeVar("TransitionP", bound=TransitionParameterSet)
UnrollP = TypeVar("UnrollP", bound=UnrollParameterSet | ActorCriticParameterSet)
Network = TypeVar("Network", bound=FrameNetwork)


class ParameterGroup(NamedTuple):
    """Parameters that are moved together: by an optimiser of their own, at ``rate`` times the learning rate, along a gradient
    that is clipped to ``clip_norm`` (0: never) by itself, at every ``every``-th update.

    ``optimizer(weights, learning_rate)`` makes it, where it is not the one that the job's parameters name."""

    parameters: Sequence[Tensor]
    rate: float = 1.0
    clip_norm: float = 0.0
    every: int = 1
    optimizer: Callable[[Sequence[Tensor], float], Optimizer] | None = None


class Algorithm(ABC, Generic[P, Network]):
    """Acting and being evaluated, which is the same for both kinds."""

    name: str = ""
    """What messages call it. (Manifests and checkpoints name one from outside this package by its factory.)"""
    parameters: type[P]
    """Its parameter set, a ``rljob.api.parameters.ParameterSet``."""
    takes: frozenset[str] = frozenset()
    """What it can be trained on beyond one Discrete action of which all values are allowed: "choices" (actions of several
    choices, ``action`` is then [N, choices]), "controls" (continuous numbers beside choices or alone, ``control`` [N, C]),
    "masks" (its network gives ``FrameNetwork.masked`` numbers), "critic" (its loss sees ``FrameNetwork.critic_row``)."""
    metrics: tuple[str, ...] = ()
    """Names of the ``LossResult.metrics`` that are reported, in this order, behind ``loss`` and ``gradient_norm``."""

    def metrics_of(self, online: Network) -> tuple[str, ...]:
        """Those of ``metrics`` that the losses of this network have; all unless it is overridden."""
        return self.metrics

    # ----------------------------------------------------------------------------------------------------------- network

    @abstractmethod
    def build(self, spec: EnvironmentSpec, params: P, env_params: EnvironmentParameters) -> Network:
        """The network for this environment, float32, initialised from torch's global generator (seeded by the caller).

        Raises ValueError when the network asked for cannot see frames of this shape.
        """

    acting: str = ""
    """The submodule of what ``build_learner`` gives that acts: what ``build`` gives elsewhere, and all that is published. Empty
    where the same network does both."""

    def build_learner(self, spec: EnvironmentSpec, params: P, env_params: EnvironmentParameters) -> Network:
        """The network that learns, where it has parts that acting does not need; as ``build`` in all else."""
        return self.build(spec, params, env_params)

    def memory_units(self, params: P) -> int:
        """H of a recurrent state [2, H]; 0 where the network has no memory."""
        return 0

    # ------------------------------------------------------------------------------------------------------------ acting

    def output_size(self, params: P, num_actions: int) -> int:
        """K: how many numbers ``infer`` gives for each observation; A unless it is overridden. They may travel from an inference
        server to an actor. ``num_actions``: A, one for each value of each choice, and two for each continuous number, its mean
        and its deviation."""
        return num_actions

    @abstractmethod
    def infer(self, net: Network, observation: Observation, state: Tensor | NDArray[Any]) -> Inference:
        """One forward pass without a gradient: ``observation`` uint8|float32 [N, S, *F], or a dict of such by column, of torch or
        numpy, ``state`` float32 [N, 2, H].

        Gives outputs float32 [N, K] and the memory afterwards, on the device of ``net``. What is passed in is only read. A row's
        result must not depend on the other rows.
        """

    @abstractmethod
    def decide(
        self,
        outputs: NDArray[np.float32],
        epsilon: NDArray[np.floating[Any]] | float,
        generator: RandomNumbers,
        choices: Choices,
    ) -> Decision:
        """Actions from ``outputs`` [N, K], on the host. ``epsilon``: what ``exploration`` gave, float [N], or one number.
        ``choices``: what there is to choose from, in these environments now.

        The generator must advance by the same amount whatever the outcome, so that a run replays from its seed.
        """

    @abstractmethod
    def random_decision(self, num_envs: int, choices: Choices, generator: RandomNumbers) -> Decision:
        """What an actor without weights does; unknown values are NaN."""

    @abstractmethod
    def state_values(self, outputs: NDArray[np.float32], choices: Choices) -> NDArray[np.float32]:
        """The values of states, float32 [N], of ``outputs`` [N, K]: what a truncated episode is bootstrapped with."""

    def preferences(self, outputs: Tensor) -> Tensor:
        """How much the policy prefers each action, float32 [N, A], of ``outputs`` [N, K]: the largest is what it does when it
        does not explore. ``outputs`` as they are unless it is overridden, which is right where they are action values or logits
        alone.

        Computed of tensors, so that it becomes part of an exported policy.
        """
        return outputs

    def exploration(self, params: P, slot: int, slots: int, num_envs: int) -> NDArray[np.float32]:
        """How the environments of the ``slot``-th of ``slots`` actors explore, float32 [N], handed to ``decide`` as ``epsilon``.

        All zeros unless it is overridden: the policy explores by itself.
        """
        return np.zeros(num_envs, np.float32)

    # -------------------------------------------------------------------------------------------------------- evaluation

    @abstractmethod
    def evaluation_action(self, params: P, net: Network, observation: Observation, games: Sequence[Game]) -> Any:
        """The action of each game that is being evaluated, int64 [N] (or [N, choices]); ``observation`` [N, S, *F]. With
        continuous numbers it is what ``Choices.action`` gives.

        Each game draws from its own random numbers and keeps its own memory, so that it does not matter which are played
        together.
        """

    def evaluation_epsilon(self, params: P) -> float:
        """Share (0..1) of random actions while a policy is evaluated; the scorer makes them."""
        return 0.0

    # ---------------------------------------------------------------------------------------------------------- learning

    def groups(self, params: P, online: Network) -> Sequence[ParameterGroup]:
        """How the parameters of ``online`` are moved, each once; all together unless it is overridden.

        The losses of several groups are added up in one ``LossResult.value``: what one group's loss computes with another's
        parameters it takes from them detached.
        """
        return (ParameterGroup(tuple(online.parameters()), 1.0, params.gradient_clip_norm),)

    def target_divergence(self, params: P) -> float:
        """Where above 0: the learning rate is lowered while a batch's mean ``LossResult.divergence``, in nats, is above this."""
        return 0.0

    @abstractmethod
    def layout(self, spec: EnvironmentSpec, params: P) -> SegmentLayout:
        """The columns that actors record, with their shapes."""

    @abstractmethod
    def example(self, spec: EnvironmentSpec, params: P, online: Network, device: torch.device) -> Any:
        """What one update of the job's own shape learns from, to time updates of ``online`` with, which is on ``device``. Leaves
        torch's global generator alone."""

    @abstractmethod
    def steps_per_batch(self, params: P) -> int:
        """Agent steps that a batch is learned from, repeats included."""


class TransitionAlgorithm(Algorithm[TransitionP, Network]):
    """Learns from n-step transitions, sampled many times from the replay service, against a target network."""

    @abstractmethod
    def loss(self, params: TransitionP, online: Network, target: Network, batch: TransitionBatch) -> LossResult:
        """The loss of a batch, to be differentiated by ``online``; ``target`` is an older copy of it, without gradients.

        The result has ``td_abs``. ``batch`` may be a part of the sampled one: the loss must be a mean or a sum over rows.
        Tensors are of static shape and nothing may be read back to the host, so that the loss can be compiled.
        """

    def noise(self, params: TransitionP, online: Network) -> tuple[int, ...]:
        """The shape, for each transition, of ``TransitionBatch.noise``; none unless it is overridden. A loss draws nothing
        itself: parts of a batch are learned from by several threads, and an update may be replayed."""
        return ()

    def priorities(self, td_abs: Tensor) -> Tensor:
        """New priorities float32 [B] of transitions from the absolute temporal-difference errors of a loss."""
        return priorities(td_abs)

    def importance_weights(self, probability: NDArray[np.floating[Any]], exponent: float) -> NDArray[np.float32]:
        """``TransitionBatch.weight`` float32 [B] in (0, 1] from the chances float64 [B] in the draw; ``exponent`` is beta."""
        return importance_weights(probability, exponent)

    def layout(self, spec: EnvironmentSpec, params: TransitionP) -> SegmentLayout:
        return transition_layout(
            params.chunk_length,
            spec.columns,
            params.n_step,
            ActionSpace(spec.action_sizes, spec.controls),
            spec.lines,
        )

    def example(
        self, spec: EnvironmentSpec, params: TransitionP, online: Network, device: torch.device
    ) -> TransitionBatch:
        layout = self.layout(spec, params)
        arrays = transition_arrays(layout, params.batch_size) | {"weight": np.ones(params.batch_size, np.float32)}
        if shape := self.noise(params, online):
            arrays["noise"] = np.zeros((params.batch_size, *shape), np.float32)
        return as_batch(TransitionBatch, _example(layout, arrays, device))

    def steps_per_batch(self, params: TransitionP) -> int:
        return params.batch_size


class UnrollAlgorithm(Algorithm[UnrollP, Network]):
    """Learns from unrolls, which wait in a first-in-first-out queue inside the learner and are each learned from once."""

    @abstractmethod
    def loss(self, params: UnrollP, online: Network, batch: UnrollBatch) -> LossResult:
        """The loss of one minibatch, to be differentiated by ``online``.

        ``batch`` may be a part of a minibatch: the loss must be a mean or a sum over unrolls (or single steps). Tensors are of
        static shape and nothing may be read back to the host, so that the loss can be compiled.
        """

    def minibatches(self, params: UnrollP, online: Network, batch: UnrollBatch) -> Iterator[UnrollBatch]:
        """What to learn from a batch, update for update; the whole batch, once, unless it is overridden. ``online`` is as it is
        whenever the next one is asked for."""
        yield batch

    def prepared(self, params: UnrollP, minibatch: UnrollBatch, moments: Moments) -> UnrollBatch:
        """A minibatch as the loss takes it, where that depends on the whole of it: a learner of several processes has a part in
        each, over which ``moments`` goes. Itself unless it is overridden."""
        return minibatch

    def passes(self, params: UnrollP) -> int:
        """How often ``minibatches`` goes through a batch: for the count of samples, and for how frames are laid out."""
        return 1

    def refresh_steps(self, params: UnrollP) -> int:
        """Steps between two looks for newer weights inside an unroll; 0 looks only between unrolls, as iterations need it."""
        return 1 if self.iteration_lag(params) is None else 0

    def iteration_lag(self, params: UnrollP) -> int | None:
        """Where it learns in iterations, each from a batch of unrolls of one version of the weights and followed by the next
        version: how many versions the unrolls may be old, 0 or 1. None: from whatever comes."""
        return None

    def largest_divergence(self, params: UnrollP) -> float:
        """Where above 0: a batch is left early once the ``LossResult.divergence`` of an update is above this, in nats. On a GPU
        it arrives a few updates late."""
        return 0.0

    def layout(self, spec: EnvironmentSpec, params: UnrollP) -> SegmentLayout:
        return unroll_layout(
            params.unroll_length,
            spec.columns,
            self.memory_units(params),
            ActionSpace(spec.action_sizes, spec.controls),
            spec.lines,
        )

    def example_batch(self, spec: EnvironmentSpec, params: UnrollP, device: torch.device) -> UnrollBatch:
        """A whole batch of the job's own shape, of which ``example`` is the first minibatch."""
        layout = self.layout(spec, params)
        arrays = unroll_arrays(layout, params.batch_size)
        arrays["discount"] += np.float32(params.gamma)
        arrays["log_prob"] -= np.float32(np.log(spec.action_sizes).sum() + HALF_LOG_2PI * spec.controls)
        return as_batch(UnrollBatch, _example(layout, arrays, device))

    def example(self, spec: EnvironmentSpec, params: UnrollP, online: Network, device: torch.device) -> UnrollBatch:
        with torch.random.fork_rng([]):  # shuffles of the real training must not depend on this one
            minibatch = next(iter(self.minibatches(params, online, self.example_batch(spec, params, device))), None)
        if minibatch is None:
            raise ValueError("it has to yield at least one batch, and yielded none")
        return minibatch

    def steps_per_batch(self, params: UnrollP) -> int:
        return params.batch_size * params.unroll_length * self.passes(params)


def _example(layout: SegmentLayout, arrays: dict[str, NDArray[Any]], device: torch.device) -> dict[str, Tensor]:
    """The tensors of an example: ``arrays``, random bytes for observations, and the steps that schedules go by."""
    generator = torch.Generator().manual_seed(1)
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items() if name != "policy_version"}
    for column in layout.with_role(ColumnRole.STACK):
        for observed in layout.observation:
            name = batch_key(layout, column.name, observed)
            least, most = (0, min(observed.most) + 1) if observed.most else (1, 255)  # a mask allows everything
            drawn = torch.randint(least, most, tensors[name].shape, generator=generator)
            tensors[name] = drawn.to(tensors[name].dtype)
    return {name: tensor.to(device) for name, tensor in (tensors | {"steps": torch.zeros(())}).items()}


AnyAlgorithm: TypeAlias = Algorithm[Any, Any]


PRIORITY_OFFSET = 1e-3  # keeps a transition that is predicted perfectly in the draw


def importance_weights(probability: NDArray[np.floating[Any]], exponent: float) -> NDArray[np.float32]:
    """``(N P)^-beta``, divided by the largest of the batch: float32 [B] in (0, 1].

    ``probability`` float64 [B] is each item's chance in one draw over everything stored, in whatever shard (Schaul et al. 2016,
    3.4; the maximum is over the batch, as in Ape-X and SEED, not over the buffer). The number N of stored items cancels in that
    division. ``exponent`` is beta; 0 gives ones.
    """
    weight = np.power(np.asarray(probability, np.float64), -exponent)
    relative: NDArray[np.float32] = (weight / weight.max()).astype(np.float32)
    return relative


def priorities(td_abs: Tensor) -> Tensor:
    """New priorities float32 [B] of a batch that has been learned from: ``|td| + 1e-3``, the rule the actors use too."""
    return td_abs + PRIORITY_OFFSET
