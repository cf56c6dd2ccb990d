"""An operator that is killed anywhere in a turn leaves nothing that the next one could not go on with.

Here at every so many moments; `benchmarks/operator_killed.py` kills at each.
"""

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.killed_operators import SCENES, play, stage

MOST = 6
SHORT = ("makes the children", "counts the learner's end")


@pytest.mark.parametrize(
    "name", [*SHORT, *(pytest.param(each, marks=pytest.mark.long) for each in SCENES if each not in SHORT)]
)
def test_whoever_follows_finds_everything_once(cluster: ControlPlane, namespace: str, name: str) -> None:
    with stage(cluster, namespace) as at:
        assert play(at, name, step=3, most=MOST) >= 2
