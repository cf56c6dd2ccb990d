"""How many updates a second Stable-Baselines3's SAC makes, or SBX's, with the environment left out: its ``train`` alone.

Runs in a virtual environment of its own; ``sac_update.py`` starts it beside rljob. Prints one JSON line: updates a second with
one update a call, as a run with an update a step has them, and with 32 a call, which SBX compiles into one function.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time

import gymnasium
import torch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--module", choices=("stable_baselines3", "sbx"), required=True)
    parser.add_argument("--environment", required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    sac = importlib.import_module(arguments.module).SAC
    # An update in the middle of these steps makes what ``train`` needs beside the network: a logger, and a jitted function.
    model = sac("MlpPolicy", gymnasium.make(arguments.environment), learning_starts=1_000, device="cpu")
    model.learn(1_010)
    found = {}
    for updates_a_call in (1, 32):
        model.train(updates_a_call, arguments.batch)
        updates, began = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - began) < arguments.seconds:
            model.train(updates_a_call, arguments.batch)
            updates += updates_a_call
        found[f"{updates_a_call} a call"] = updates / elapsed
    print(json.dumps(found))


if __name__ == "__main__":
    main()
