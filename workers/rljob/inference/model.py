"""The network of an inference server: the weights in use, and one evaluation of a padded batch."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

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
from rljob.inference.batching import Request, bucket_sizes
from rljob.observation import arrays_of, each, of_columns, zeros
from rljob.weights.flat import Weights


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
        *,
        always_int8: bool = False,
    ) -> None:
        self.columns = spec.columns
        self.state_shape = (2, memory)
        self.max_batch = max_batch
        self.buckets = bucket_sizes(max_batch)
        self.version = 0
        self.epoch = 0
        self._device = device = measured.place.device
        size = self.buckets[-1]
        staged = [self._staging((size, *column.observed), getattr(torch, str(column.dtype))) for column in self.columns]
        self._observations = of_columns(self.columns, staged)
        self._states = self._staging((size, *self.state_shape), torch.float32)
        self.acting = ActingNetwork(network, method, spec.all_choices, measured, always=always_int8)
        self._stream: Any = None
        if device.type == "cuda":
            let_round_to_tf32(measured.place.compute.arithmetic)
            self._stream = torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]
            self._stream.wait_stream(torch.cuda.current_stream(device))

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the weights that it can evaluate with, by name."""
        return shapes_of(self.acting.network)

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
    memory, most, own = method.memory_units(parameters), job.spec.inference.max_batch_size, job.spec.actors.precision
    measured = Measured(DeviceCompute(devices[0], compute or Compute()), {})
    if compute is None:
        actors = -(-job.spec.requested_actors // max(1, job.spec.inference.replicas))
        sample = each(torch.from_numpy, zeros(spec.columns, min(most, job.spec.actors.envs_per_actor * max(1, actors))))
        measured = choose_compute(network, method.infer, sample, memory, parameters.precision, devices, own=own)
    return ServedModel(network, spec, method, memory, measured, most, always_int8=own == "INT8")
