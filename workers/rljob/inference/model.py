"""The network of an inference server: when it evaluates, and how many observations together (pure bookkeeping, without sockets or
a clock of its own); the weights in use; and one evaluation of a padded batch."""

from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rljob.acting.network import ActingNetwork, choose_compute
from rljob.algorithms.base import AnyAlgorithm
from rljob.algorithms.compute import Compute, DeviceCompute, Measured, let_round_to_tf32
from rljob.algorithms.registry import algorithm
from rljob.algorithms.shapes import shapes_of
from rljob.algorithms.trunk import FrameNetwork
from rljob.api import RLJob
from rljob.envs.spec import EnvironmentSpec
from rljob.observation import arrays_of, each, of_columns, rows_of, zeros
from rljob.weights.flat import Weights

SMALLEST_BUCKET = 4
"""Libraries multiply one or two rows with other kernels, which round differently: from four rows on, an observation's
result does not depend on the batch that it came in."""

ACTIVE_SECONDS = 1.0
"""An actor that has not asked for so long is not waited for."""


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """Observations ``[n, S, *F*]`` (or a dict of such) of one group of one actor's environments, the memory ``state``
    ``[n, 2, H]`` before them, and when they arrived (seconds)."""

    actor: str
    incarnation: str
    group: int
    number: int
    observation: Any
    state: NDArray[np.float32]
    arrived: float

    @property
    def rows(self) -> int:
        """Observations in it."""
        return rows_of(self.observation)


def bucket_sizes(max_batch: int) -> tuple[int, ...]:
    """The batch sizes that are computed: powers of two from 4 on below ``max_batch``, and ``max_batch`` itself.

    A batch is padded to the next of them, so that there are a handful of static shapes. A ``max_batch`` below 4 still
    computes 4 rows.
    """
    powers = (SMALLEST_BUCKET << doublings for doublings in range(32))
    return (*takewhile(lambda size: size < max_batch, powers), max(max_batch, SMALLEST_BUCKET))


MAX_WAIT_SECONDS: Final = 0.002
"""Longest that an observation waits for others: less than a step of most environments takes."""


class Batcher:
    """A queue of requests that says when a batch is due: it is full, its oldest request has waited long enough, or every
    actor that asked lately is waiting already, so that nothing can be gained by waiting for more."""

    def __init__(self, max_batch: int, max_wait_seconds: float) -> None:
        self.max_batch, self.max_wait_seconds = max_batch, max_wait_seconds
        self.rows = 0
        self._queue: deque[Request] = deque()
        self._asked: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, request: Request) -> None:
        """Queue a request; it may not have more rows than a batch."""
        self._queue.append(request)
        self.rows += request.rows
        # Moved to the end, so that the actors stand in the order in which they last asked.
        self._asked.pop(request.actor, None)
        self._asked[request.actor] = request.arrived

    def due_in(self, now: float) -> float | None:
        """Seconds until a batch must be taken, 0 for at once; None while nothing is queued."""
        if not self._queue:
            return None
        while self._asked and next(iter(self._asked.values())) < now - ACTIVE_SECONDS:
            del self._asked[next(iter(self._asked))]
        if self.rows >= self.max_batch or self._asked.keys() <= {request.actor for request in self._queue}:
            return 0.0
        return max(0.0, self._queue[0].arrived + self.max_wait_seconds - now)

    def take(self) -> list[Request]:
        """The oldest requests that fit one batch together, in order of arrival."""
        taken: list[Request] = []
        rows = 0
        while self._queue and rows + self._queue[0].rows <= self.max_batch:
            request = self._queue.popleft()
            rows += request.rows
            taken.append(request)
        self.rows -= rows
        return taken


class ServedModel:
    """A network that is evaluated in a few static batch sizes. One thread loads and evaluates.

    ``memory`` is H of a recurrent network's memory ``[B, 2, H]``. ``measured``: where and how it computes.
    ``version`` is 0 until there are weights. Weights are replaced between two evaluations, whole: they come as an immutable
    copy (``Weights``), so the optimiser that goes on updating the learner's own network is never seen half-way. On a GPU all
    of it happens in a stream of its own, before what waits there of the learner: actors stand still meanwhile, updates do not.
    """

    def __init__(
        self,
        network: FrameNetwork,
        spec: EnvironmentSpec,
        method: AnyAlgorithm,
        memory: int,
        measured: Measured,
        max_batch: int,
    ) -> None:
        self.columns = spec.columns
        self.state_shape = (2, memory)
        self.max_batch = max_batch
        self.buckets = bucket_sizes(max_batch)
        self.version = self.epoch = 0
        self._device = device = measured.place.device
        size = self.buckets[-1]
        staged = [self._staging((size, *column.observed), getattr(torch, str(column.dtype))) for column in self.columns]
        self._observations = of_columns(self.columns, staged)
        self._states = self._staging((size, *self.state_shape), torch.float32)
        self.acting = ActingNetwork(network, method, spec.all_choices, measured)
        self.shapes = shapes_of(self.acting.network)
        """The shapes of the weights that it can evaluate with, by name."""
        self._stream: Any = None
        if device.type == "cuda":
            let_round_to_tf32(measured.place.compute.arithmetic)
            self._stream = torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]
            self._stream.wait_stream(torch.cuda.current_stream(device))

    def load(self, weights: Weights) -> None:
        """Evaluate with ``weights`` from now on. Raises ``WeightsProblem`` when they belong to another network."""
        with self._on_stream():
            self.acting.load(weights)
        self.version, self.epoch = weights.version, weights.epoch

    def bucket(self, rows: int) -> int:
        """The batch size in which ``rows`` observations are computed."""
        return next(size for size in self.buckets if size >= rows)

    def evaluate(self, requests: Sequence[Request]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Outputs float32 ``[n, K]`` and memories float32 ``[n, 2, H]`` for the n observations of ``requests``, in order.

        What pads the bucket is left over from earlier batches; no row of a result depends on another.
        """
        staged, states = [part.numpy() for part in arrays_of(self._observations)], self._states.numpy()
        end = 0
        for request in requests:
            begin, end = end, end + request.rows
            for buffer, given in zip(staged, arrays_of(request.observation), strict=True):
                buffer[begin:end] = given
            states[begin:end] = request.state
        size, device = self.bucket(end), self._device
        with self._on_stream():
            outputs, after = self.acting.infer(
                each(lambda part: part[:size].to(device, non_blocking=True), self._observations),
                self._states[:size].to(device, non_blocking=True),
            )
            outputs, after = (part[:end].float().to("cpu", non_blocking=True) for part in (outputs, after))
        if self._stream is not None:
            self._stream.synchronize()  # the one wait of a batch: both copies, into pinned memory, are done
        # Copied out of the buffers: a network without a memory hands back the one that it was given.
        return outputs.numpy(), after.numpy().copy()

    def _on_stream(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def _staging(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A buffer that requests are gathered in, page-locked where a device copies from it."""
        buffer = torch.zeros(shape, dtype=dtype)
        return buffer.pin_memory() if self._device.type == "cuda" else buffer


def served_model(
    job: RLJob, spec: EnvironmentSpec, devices: Sequence[torch.device], compute: Compute | None = None
) -> ServedModel:
    """The job's network for the environment of ``spec``, to be served on one of ``devices``, the first to be preferred; on that
    with ``compute``, which None chooses by a short measurement, of a batch of all observations that may wait at once."""
    parameters, environment_parameters = job.spec.algorithm.parameters, job.spec.environment.parameters
    method = algorithm(job.spec.algorithm.name)
    network = method.build(spec, parameters, environment_parameters)
    memory, most = method.memory_units(parameters), job.spec.inference.max_batch_size
    precision = job.spec.actors.precision or parameters.precision
    measured = Measured(DeviceCompute(devices[0], compute or Compute()), {})
    if compute is None:
        actors = -(-job.spec.requested_actors // max(1, job.spec.inference.replicas))
        sample = each(torch.from_numpy, zeros(spec.columns, min(most, job.spec.actors.envs_per_actor * max(1, actors))))
        measured = choose_compute(network, method.infer, sample, memory, precision, devices)
    return ServedModel(network, spec, method, memory, measured, most)
