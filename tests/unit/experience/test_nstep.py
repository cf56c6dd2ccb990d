"""The vectorised n-step sum against explicit loops."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from rljob.experience.transitions import n_step_windows


@given(
    steps=st.lists(st.tuples(st.floats(-10, 10), st.booleans()), max_size=30),
    n_step=st.integers(1, 12),
    gamma=st.floats(0, 1),
)
def test_equals_explicit_sums(steps: list[tuple[float, bool]], n_step: int, gamma: float) -> None:
    reward = np.array([r for r, _ in steps], np.float32)
    closes = np.array([c for _, c in steps], bool)
    total, length = n_step_windows(reward, closes, n_step, gamma)
    for start in range(len(steps)):
        expected, taken = 0.0, 0
        for k in range(start, min(start + n_step, len(steps))):
            expected += gamma**taken * float(reward[k])
            taken += 1
            if closes[k]:
                break
        assert length[start] == taken
        np.testing.assert_allclose(total[start], expected, rtol=1e-9, atol=1e-9)
