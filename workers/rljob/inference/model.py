"""The network of an inference server: the weights in use, and one evaluation of a padded batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rljob.actor.compute import Compute, acting_copy
from rljob.envs.spec import EnvironmentSpec
from rljob.inference.batching import bucket_sizes
from rljob.learner.flat import Weights


class ServedModel:
    """A network that is evaluated in a few static batch sizes. One thread loads and evaluates.

    ``evaluate`` is the algorithm's: (network, observations) -> float32 ``[B, W]``, what an actor needs to choose actions.
    ``version`` is 0 until there are weights. Weights are replaced between two evaluations, whole: they come as an immutable
    copy (``Weights``), so the optimiser that goes on updating the learner's own network is never seen half-way.
    """

    def __init__(
        self,
        network: nn.Module,
        spec: EnvironmentSpec,
        evaluate: Callable[[nn.Module, Tensor], Tensor],
        compute: Compute,
        max_batch: int,
        device: torch.device,
    ) -> None:
        self.shape = tuple(spec.observation_shape)
        self.dtype = np.dtype(spec.frame_dtype)
        self.max_batch = max_batch
        self.buckets = bucket_sizes(max_batch)
        self.compute = compute
        self.version = 0
        self.epoch = 0
        self._evaluate = evaluate
        self._device = device
        staging = torch.zeros((self.buckets[-1], *self.shape), dtype=getattr(torch, spec.frame_dtype))
        self._staging = staging.pin_memory() if device.type == "cuda" else staging
        self._rows: NDArray[Any] = self._staging.numpy()
        self._acting = acting_copy(network.to(device), compute, self._staging[:1].to(device))

    def load(self, weights: Weights) -> None:
        """Evaluate with ``weights`` from now on. Raises ``WeightsProblem`` when they belong to another network."""
        weights.load_into(self._acting)
        self.version, self.epoch = weights.version, weights.epoch

    def bucket(self, rows: int) -> int:
        """The batch size in which ``rows`` observations are computed."""
        return next(size for size in self.buckets if size >= rows)

    def evaluate(self, observations: list[NDArray[Any]]) -> NDArray[np.float32]:
        """Outputs float32 ``[n, W]`` for the n observations of several requests, in their order.

        What pads the bucket is left over from earlier batches; no row of a result depends on another.
        """
        end = 0
        for observation in observations:
            self._rows[end : end + len(observation)] = observation
            end += len(observation)
        batch = self._staging[: self.bucket(end)].to(self._device, non_blocking=True)
        with torch.inference_mode():
            outputs: NDArray[np.float32] = self._evaluate(self._acting, batch)[:end].float().cpu().numpy()
        return outputs
