"""The inference role: a server in a process of its own, which fetches the learner's weights like an actor would."""

import threading
from typing import Any

import torch
from rljob.algorithms.compute import denormals_as_zero
from rljob.api import quantity
from rljob.envs import environment_of
from rljob.inference.model import MAX_WAIT_SECONDS, served_model
from rljob.inference.server import InferenceServer
from rljob.learner.device import devices
from rljob.roles.options import RoleOptions, serve, write_final
from rljob.telemetry.process import PROCESS
from rljob.weights.client import WeightClient
from rljob.wire import load_keys

_LONGEST_TURN_SECONDS = 60.0


@denormals_as_zero()
def run_inference(options: RoleOptions, stop: threading.Event) -> None:
    """Answer actors until ``stop`` is set. Holds nothing that is lost with it: actors ask again.

    Raises ``EnvironmentProblem`` when the environment cannot be described and ``ValueError`` for an address that cannot be
    bound, ``DeviceProblem`` when the device that the job asks for is missing.
    """
    spec = options.job.spec
    places = devices(spec.inference.accelerator, on_cluster=options.on_cluster, role="inference")
    torch.set_num_threads(max(1, round(quantity(spec.inference.resources.requests.get("cpu", "1")))))
    keys = load_keys(options.keys, "inference") if options.keys is not None else None
    model = served_model(options.job, environment_of(options.run_dir, spec.environment), places)
    weights = WeightClient(options.weights, options.notice, keys.client("learner") if keys else None)
    weights.shapes = model.shapes
    try:
        server = InferenceServer(
            options.inference[0],
            model,
            weights,
            MAX_WAIT_SECONDS,
            keys.server() if keys else None,
        )

        def status() -> dict[str, Any]:
            return {"role": "inference", "name": options.name, **server.status(), "process": PROCESS.now()}

        with serve(options, "inference", status, lambda: server.state == "Serving") as telemetry:
            server.run(stop, on_turn=lambda: telemetry.beat(_LONGEST_TURN_SECONDS))
        write_final(options, status())
    finally:
        weights.close()
