"""CleanRL's PPO with the settings that it is given: agent steps a second in a time window.

CleanRL is single files: `--script` is one of a checkout of github.com/vwxyzjn/cleanrl, `ppo.py` or `ppo_continuous_action.py`,
which is run as it is. Only its TensorBoard writer is another one, which notes the steps after each iteration and writes
nothing, and, with `--envpool`, its vector of environments is EnvPool's. Runs in a virtual environment of its own (torch,
gymnasium[mujoco], tyro, tensorboard, envpool); `ppo_peers.py` starts it beside rljob. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import runpy
import sys
from importlib.metadata import version
from typing import Any

import gymnasium
import numpy as np
import torch
import torch.utils.tensorboard
from window import Window


class Over(Exception):
    """The window is over."""


class Noted:
    """A writer of TensorBoard's interface. ``window`` is set before it is made."""

    window: Window

    def __init__(self, *_: Any) -> None:
        pass

    def add_text(self, *_: Any) -> None:
        pass

    def add_scalar(self, name: str, _value: float, steps: int) -> None:
        if name == "charts/SPS" and self.window.note(steps, steps):
            raise Over

    def close(self) -> None:
        pass


def envpool_vector(environment: str, count: int) -> Any:
    """EnvPool's vector as CleanRL asks for one of Gymnasium's."""
    import envpool

    found = envpool.make(environment, env_type="gymnasium", num_envs=count)
    plain = found.step

    def step(actions: Any) -> Any:
        seen, reward, terminated, truncated, _ = plain(actions.astype(np.int32))
        return seen, reward, terminated, truncated, {}

    def reset(seed: int) -> Any:
        return plain_reset()

    plain_reset, found.step, found.reset = found.reset, step, reset
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--script", required=True)
    parser.add_argument("--environment", required=True)
    parser.add_argument("--warm-up-seconds", type=float, default=3)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--envs", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--minibatches", type=int, required=True)
    parser.add_argument("--envpool", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    Noted.window = Window(arguments.warm_up_seconds, arguments.seconds)
    torch.utils.tensorboard.SummaryWriter = Noted  # type: ignore[misc]
    if arguments.envpool:
        gymnasium.vector.SyncVectorEnv = lambda made, **_: envpool_vector(  # type: ignore[assignment,misc]
            arguments.environment, len(made)
        )
    options = {
        "env-id": arguments.environment,
        "total-timesteps": 1_000_000_000,
        "num-envs": arguments.envs,
        "num-steps": arguments.steps,
        "num-minibatches": arguments.minibatches,
        "update-epochs": arguments.epochs,
    }
    sys.argv = [arguments.script, *(word for name, value in options.items() for word in (f"--{name}", str(value)))]
    with contextlib.suppress(Over), contextlib.redirect_stdout(io.StringIO()):
        runpy.run_path(arguments.script, run_name="__main__")
    versions = {name: version(name) for name in ("torch", "gymnasium", "numpy")}
    vector = "EnvPool" if arguments.envpool else "Sync"
    print(json.dumps({"peer": "CleanRL PPO", **Noted.window.result, "vector": vector, "versions": versions}))


if __name__ == "__main__":
    main()
