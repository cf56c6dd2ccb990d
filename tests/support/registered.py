"""An environment that Gymnasium knows once this module was imported."""

from __future__ import annotations

import gymnasium

gymnasium.register("Countdown-v0", "tests.support.toys:Countdown", max_episode_steps=50)
