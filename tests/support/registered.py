"""An environment that Gymnasium knows, with and without a version, once this module was imported."""

import gymnasium

for name in ("Countdown-v0", "Unversioned"):
    gymnasium.register(name, "tests.support.toys:Countdown", max_episode_steps=50)
