"""An environment of the user's own is tried before anything is trained: what is wrong with it is told in its author's words."""

import itertools
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from rljob.api import EnvironmentParameters
from rljob.api.environment import EnvironmentSource
from rljob.envs import EnvironmentProblem, describe_environment, make_single_environment, trial, try_environment
from rljob.envs.received import picture_rate, pictures

from tests.support.documents import block

ENVIRONMENT = block("python", "class Corridor(")
DRAWING = """
import gymnasium, numpy as np

class Drawing(gymnasium.Env):
    metadata = {'render_modes': ['rgb_array'], 'render_fps': 5}
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    picture = np.zeros((8, 6, 3), np.uint8)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 1.0, False, False, {}

    def render(self):
        return self.picture

def make(render_mode=None):
    return Drawing()
"""
OBSERVED = "np.array([self.place / self.length], np.float32)"
_numbers = itertools.count()


def tried(folder: Path, *changes: tuple[str, str], **parameters: Any) -> None:
    """As ``rljob run`` does with the page's environment, with some of its text replaced."""
    text = ENVIRONMENT
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    file = folder / f"corridor_{next(_numbers)}.py"
    file.write_text(text)
    env_params = EnvironmentParameters(**parameters)
    try_environment(f"{file}:make", env_params, describe_environment(f"{file}:make", env_params))


def test_the_pages_example_is_whole(tmp_path: Path) -> None:
    tried(tmp_path, kwargs={"length": 3})


@pytest.mark.parametrize("environment_id", ["CartPole-v1", "MountainCar-v0", "tests.support.toys:vector_only"])
def test_what_others_wrote_passes(environment_id: str) -> None:
    try_environment(environment_id, EnvironmentParameters())


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "return self.seen(), {}\n",
            "return self.seen()\n",
            r"reset\(seed=..., options=...\) gives \(observation, info\), got an array float32 \[1\]",
        ),
        (
            "self.place == self.length, False, {}",
            "self.place == self.length, {}",
            r"step failed: ValueError: not enough values .*; step\(action\) gives \(observation, reward, terminated, ",
        ),
        (
            "def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None)",
            "def reset(self)",
            r"reset failed: TypeError: .*unexpected keyword argument 'seed'; reset\(seed=..., options=...\) gives",
        ),
        ("        self.place = 0\n", "        self.place = nowhere\n", r"reset failed: corridor_\d+.py:\d+, in reset: NameError"),
        ("        self.place = max(", "        self.place = left(", r"step failed: corridor_\d+.py:\d+, in step: NameError"),
        ("        self.place = max(", "        exit(0)\n        self.place = max(", r"corridor_.*, in step: SystemExit: 0"),
        ("    return PerStep(", "    exit(5)\n    return PerStep(", r"cannot be made: corridor_.*, in make: SystemExit: 5"),
        (OBSERVED, "np.zeros(2, np.float32)", r"reset: expected an observation float32 \[1\], as .*, got an array float32 \[2\]"),
        (OBSERVED, "self.observation_space", r"reset: expected an observation float32 \[1\], as .*, got a Box"),
        (OBSERVED, "self.place", r"reset: expected an observation float32 \[1\], as observation_space says, got 0"),
        (OBSERVED, "self.place", r"^environment 'corridor_\d+.py:make': reset: expected"),  # as its author knows it
        (OBSERVED, "[[1], [2, 3]]", r"reset: expected an observation float32 \[1\], .* got \[\[1\], \[2, 3\]\]"),
        (OBSERVED, "np.array([np.nan])", r"reset: expected an observation of finite float32 numbers, got nan at \[0\]"),
        ("Box(0.0, 1.0, (1,), np.float32)", "Box(0, 9, (1,), np.uint8)", r"expected an observation uint8 \[1\], .* float32"),
        ("return reward / self.unwrapped.length", "return None", "step: reward: expected a finite number .* in size, got None"),
        ("return reward / self.unwrapped.length", "return np.float32('nan')", r"reward: .* in size, got nan \(float32\)"),
        ("return reward / self.unwrapped.length", "return 1e39", r"step: reward: .* number less than 1e\+15 in size, got 1e\+39"),
        ("return reward / self.unwrapped.length", "return np.ones(1)", r"step: reward: .*, got an array float64 \[1\]"),
        ("self.place == self.length, False, {}", "None, False, {}", "step: terminated: expected True or False, got None"),
        ("self.place == self.length, False, {}", "False, False, None", "step: info: expected a dict, got None"),
        ("return self.seen(), {}\n", "return self.seen(), []\n", r"reset: info: expected a dict, got \[\]"),
        ("    action_space = gymnasium.spaces.Discrete(2)\n", "", "its attribute action_space has to be .* is None"),
        ("        self.length, self", "        1 / 0\n        self.length, self", r"made: corridor_\d+.py:\d+, in __init__"),
        (
            "        self.length, self",
            "        raise type('Dumb', (Exception,), {'__str__': lambda _: 1 / 0})\n        self.length, self",
            r"in __init__: Dumb$",
        ),
        (
            "return self.seen(), {}\n",
            "return self.seen(), {'action_mask': [-np.inf, 0]}\n",
            r"expected a mask of 1 for what is allowed and 0 for what is not, got -inf at \[0\]",
        ),
        (
            "def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None)",
            "def reset(self, *, seed: int | None = None)",
            r"argument 'options'; reset\(seed=..., options=...\) gives \(observation, info\)$",
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_told_before_anything_is_trained(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(EnvironmentProblem, match=said):
        tried(tmp_path, (old, new))


def test_an_environment_may_fail_now_and_then(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As a job allows it to; one that always fails is found by the second trial."""
    # Its first step of all is taken to describe it, twice where it fails, without a trial.
    failures = "failures = iter(['the network was down', 'the plant was hot', 'the licence was taken'])"
    once = ("class Corridor(", f"{failures}\n\n\nclass Corridor(")
    tried(
        tmp_path,
        once,
        (
            "        self.place = max(",
            "        for why in failures:\n            raise OSError(why)\n        self.place = max(",
        ),
    )
    (record,) = caplog.records
    assert re.search("step failed: corridor_.*OSError: the licence was taken; a second trial went well", record.message)


def test_what_lies_outside_of_its_bounds_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tried(tmp_path, (OBSERVED, "np.array([self.place - 5], np.float32)"))
    (record,) = caplog.records
    assert "observation: -5.0 at [0] is outside of its bounds in observation_space, 0 to 1; it is" in record.message


@pytest.mark.parametrize(
    ("observed", "said"),
    [
        (
            "np.where(np.arange(7056).reshape(84, 84) == 85, np.nan, 0.0)",
            r"finite float32 numbers, got nan at \[1, 1\]$",
        ),
        ("np.zeros((84, 83)).tolist()", r"got \[\[0.0, 0.0, .* \.\.\. \(84 values\)$"),
    ],
)
def test_what_is_large_is_told_in_a_line(tmp_path: Path, observed: str, said: str) -> None:
    with pytest.raises(EnvironmentProblem, match=said) as caught:
        tried(
            tmp_path, (OBSERVED, observed), ("Box(0.0, 1.0, (1,), np.float32)", "Box(0.0, 1.0, (84, 84), np.float32)")
        )
    assert len(str(caught.value).replace(str(tmp_path), "")) < 400


def test_every_action_is_tried(tmp_path: Path) -> None:
    of_many = ("gymnasium.spaces.Discrete(2)", "gymnasium.spaces.Discrete(20)")
    refusing = (
        "        self.place = max(",
        "        assert action < 15, f'no action {action}'\n        self.place = max(",
    )
    with pytest.raises(EnvironmentProblem, match="in step: AssertionError: no action 15"):
        tried(tmp_path, of_many, refusing)
    tried(tmp_path, of_many, refusing, actions=(3, 1))


@pytest.mark.parametrize(("enough", "tried_steps"), [(0.0, 8), (60.0, 20)])
def test_of_a_slow_simulator_no_more_steps_are_tried_than_have_to_be(
    enough: float, tried_steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "_ENOUGH_SECONDS", enough)
    monkeypatch.setattr(trial, "_MORE_SECONDS", 0.0)
    steps: list[int] = []
    step = trial._Tried.step
    monkeypatch.setattr(trial._Tried, "step", lambda self, action: steps.append(action) or step(self, action))
    tried(tmp_path, ("gymnasium.spaces.Discrete(2)", "gymnasium.spaces.Discrete(20)"))
    assert steps == list(range(tried_steps))


def test_seeds_are_tried_as_large_as_they_will_be() -> None:
    with pytest.raises(
        EnvironmentProblem, match=r"reset failed: .*KeyError: 1234567890; with seed=0 .* take seed % n$"
    ):
        try_environment("tests.support.odd_environments:Scenarios", EnvironmentParameters())


@pytest.mark.parametrize(("written", "lines"), [({"frameStack": 4}, 1), ({"frameStack": 1}, 0), ({}, 0)])
def test_frames_that_are_not_stacked_are_told_to_whoever_asks_for_it(
    written: dict[str, int], lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    source = EnvironmentSource.model_validate({"id": "CartPole-v1", **written})
    try_environment(source.id, source.parameters)
    told = "its observation has observation: vector float32 [4]; frameStack 4 changes nothing"
    assert [told in record.message for record in caplog.records] == [True] * lines


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("return self.picture", "return self.picture.tolist()", "expected a picture, uint8 [height, width, 3], got a list of 8"),
        ("return self.picture", "return [self.picture]", "got a list of 1"),
        ("return self.picture", "return self.picture / 255", "got an array float64 [8, 6, 3]"),
        ("return self.picture", "return self.picture.transpose(2, 0, 1)", "got an array uint8 [3, 8, 6]"),
        ("return self.picture", "self.picture = self.picture.repeat(2, 0); return self.picture",
         "uint8 [height, width, 3], as large as before, [16, 6, 3], got an array uint8 [32, 6, 3]"),
        ("return self.picture", "return None", "uint8 [height, width, 3], got None"),
        ("'render_fps': 5", "'render_fps': None", "metadata: render_fps: expected a number above 0, got None"),
        ("= {'render_modes': ['rgb_array'], 'render_fps': 5}", "= None", "metadata: expected a dict, got None"),
    ],
)  # fmt: skip
def test_what_is_no_picture_is_told_and_is_no_reason_not_to_train(
    old: str, new: str, said: str, tmp_path: Path
) -> None:
    assert old in DRAWING
    file = tmp_path / f"drawing_{next(_numbers)}.py"
    file.write_text(DRAWING.replace(old, new))
    try_environment(f"{file}:make", EnvironmentParameters())
    env = make_single_environment(f"{file}:make", EnvironmentParameters(), for_scoring=True, render_mode="rgb_array")

    def look() -> None:
        picture_rate(env, "drawing")
        drawn = pictures(env, "drawing")
        for _ in range(2):
            env.step(0)
            next(drawn)

    env.reset()
    with closing(env), pytest.raises(EnvironmentProblem, match=re.escape(said)):
        look()
