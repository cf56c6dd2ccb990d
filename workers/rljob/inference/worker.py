"""The inference role: a server in a process of its own, which fetches the learner's weights like an actor would."""

from __future__ import annotations

import logging
import threading
import uuid
from typing import Any

import torch

from rljob.actor.compute import choose_compute
from rljob.algorithms import algorithm
from rljob.algorithms.compute import Compute, denormals_as_zero
from rljob.api import RLJob, quantity
from rljob.cli.announce import announce, write_final
from rljob.cli.options import RoleOptions
from rljob.envs import describe_environment
from rljob.inference.model import ServedModel
from rljob.inference.server import InferenceServer
from rljob.learner.weights import WeightClient
from rljob.telemetry.metrics import inference_registry
from rljob.telemetry.server import TelemetryServer
from rljob.wire import load_keys

log = logging.getLogger(__name__)

_LONGEST_TURN_SECONDS = 60.0


@denormals_as_zero()
def run_inference(options: RoleOptions, stop: threading.Event) -> None:
    """Answer actors until ``stop`` is set. Holds nothing that is lost with it: actors ask again.

    Raises ``EnvironmentProblem`` when the environment cannot be described and ``ValueError`` for an address that cannot be
    bound.
    """
    spec = options.job.spec
    torch.set_num_threads(max(1, round(quantity(spec.inference.resources.requests.get("cpu", "1")))))
    keys = load_keys(options.keys, "inference") if options.keys is not None else None
    model = served_model(options.job, torch.device("cpu"))
    weights = WeightClient(options.weights, options.notice, keys.client("learner") if keys else None)
    weights.shapes = model.shapes
    try:
        server = InferenceServer(
            options.inference[0],
            model,
            weights,
            spec.inference.max_wait_milliseconds / 1000,
            keys.server() if keys else None,
        )

        def status() -> dict[str, Any]:
            return {"role": "inference", "name": options.name, **server.status()}

        telemetry = TelemetryServer(
            "inference",
            options.metrics_port,
            status,
            lambda: server.state == "Serving",
            inference_registry(status),
            host=options.metrics_host,
        )
        announce(options, "inference", telemetry.url, uuid.uuid4().hex)
        with telemetry:
            server.run(stop, on_turn=lambda: telemetry.beat(_LONGEST_TURN_SECONDS))
        write_final(options, status())
    finally:
        weights.close()


def served_model(job: RLJob, device: torch.device, compute: Compute | None = None) -> ServedModel:
    """The job's network, to be served on ``device``; ``compute`` None chooses by a short measurement on this processor."""
    parameters, environment_parameters = job.spec.algorithm.parameters, job.spec.environment.parameters
    spec = describe_environment(job.spec.environment.id, environment_parameters)
    method = algorithm(job.spec.algorithm.type)
    network = method.build(spec, parameters, environment_parameters)
    if compute is None:
        size = min(job.spec.inference.max_batch_size, job.spec.actors.envs_per_actor)
        sample = torch.zeros((size, *spec.observation_shape), dtype=getattr(torch, spec.frame_dtype))
        compute = choose_compute(network, sample, parameters.precision)
    memory = method.memory_units(parameters)
    return ServedModel(network, spec, method.infer, memory, compute, job.spec.inference.max_batch_size, device)
