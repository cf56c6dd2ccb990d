"""Functions that register an environment with Gymnasium when they are called, and not when this module is imported."""

import gymnasium

calls: list[str] = []


def on_request() -> None:
    calls.append("on_request")
    gymnasium.register("OnRequest-v0", "tests.support.toys:Countdown", max_episode_steps=50)


def broken() -> None:
    raise FileNotFoundError("levels.zip is missing")
