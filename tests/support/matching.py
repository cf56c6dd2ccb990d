"""An environment of a nested Dict and a Tuple of choices that is soon learned: each part of an action matches what is shown."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

LENGTH = 8


class Matching(gymnasium.Env[Any, Any]):
    """A point for the choice that is the mode shown, for each of two bits that is the sign of a number shown, and for the third
    where it says whether the camera sees light."""

    observation_space = spaces.Dict(
        {
            "board": spaces.Dict({"mode": spaces.Discrete(3, start=1), "numbers": spaces.Box(-1, 1, (2,), np.float64)}),
            "camera": spaces.Box(0, 255, (16, 16), np.uint8),
        }
    )
    action_space = spaces.Tuple((spaces.Discrete(3), spaces.MultiBinary(3)))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._left = LENGTH
        return self._shown(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        mode, bits = action
        points = int(mode == self._mode) + int((np.array([*(self._numbers > 0), self._lit]) == bits).sum())
        self._left -= 1
        return self._shown(), float(points), self._left == 0, False, {}

    def _shown(self) -> Any:
        self._mode, self._lit = int(self.np_random.integers(3)), bool(self.np_random.integers(2))
        self._numbers = self.np_random.uniform(-1, 1, 2)
        camera = np.full((16, 16), 200 if self._lit else 20, np.uint8)
        return {"board": {"mode": self._mode + 1, "numbers": self._numbers}, "camera": camera}
