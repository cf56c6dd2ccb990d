"""``environment.register``: functions that register ids, for packages that do so only when they are asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rljob.api import EnvironmentParameters
from rljob.envs import EnvironmentProblem, describe_environment, describe_environment_apart

from tests.support import registering


def asked(*functions: str, **settings: Any) -> EnvironmentParameters:
    return EnvironmentParameters(register_functions=list(functions), **settings)


def test_a_function_registers_the_id_and_is_called_once() -> None:
    parameters = asked("tests.support.registering:on_request", kwargs={"length": 4})
    for _ in range(2):
        assert describe_environment("OnRequest-v0", parameters).observation_shape == (1, 2)
    assert registering.calls.count("on_request") == 1


def test_a_file_registers_too_and_is_tried_in_a_process_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "registers_a_game.py"
    file.write_text(
        "import os, gymnasium\n\n\ndef register():\n    print(os.getpid(), file=open(__file__ + '.pid', 'w'))\n"
        "    gymnasium.register('OfAFile-v0', 'tests.support.toys:Countdown')\n"
    )
    assert describe_environment_apart("OfAFile-v0", asked(f"{file}:register"), tried=True).num_actions == 3
    assert Path(f"{file}.pid").exists()
    with pytest.raises(EnvironmentProblem, match="is not known"):  # in this process nothing was called
        describe_environment("OfAFile-v0", EnvironmentParameters())


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("tests.support.registering:broken", "failed: registering.py:.*FileNotFoundError: levels.zip is missing"),
        ("tests.support.registering:on_reqest", "did you mean on_request"),
        ("no_such_module:register", "module 'no_such_module' cannot be imported"),
    ],
)
def test_a_function_that_fails_is_named(function: str, said: str) -> None:
    with pytest.raises(EnvironmentProblem, match=rf"environment\.register: '{function}'.* ?{said}"):
        describe_environment("CartPole-v1", asked(function))


def test_the_fingerprint_has_it_only_where_it_is_given() -> None:
    without, with_it = (
        describe_environment("CartPole-v1", parameters).fingerprint
        for parameters in (asked(), asked("tests.support.registering:on_request"))
    )
    assert without == describe_environment("CartPole-v1", EnvironmentParameters()).fingerprint
    assert without != with_it
