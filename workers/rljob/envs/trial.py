"""A user's environment, tried for a few steps before anything is trained: which function, what was expected, what came. It runs
in a process of its own, as all code of a user's can: code that ends its process, such as a simulator that crashes, that takes
over signals or changes the folder does so only there, and the user reads what has happened."""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import itertools
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, TypeVar

import gymnasium
import numpy as np

from rljob.api import EnvironmentParameters
from rljob.api.environment import EnvironmentSource
from rljob.child import Child
from rljob.envs import single
from rljob.envs.base import EnvironmentProblem
from rljob.envs.encoding import Encoding, any_action, at, first_odd
from rljob.envs.factory import describe_environment
from rljob.envs.received import NOTHING, Received
from rljob.envs.spec import EnvironmentSpec, handed_over
from rljob.envs.target import AtariGame, RegisteredEnvironment, UserFactory, resolve
from rljob.loading import PLUGIN_FAILURES, authors_line, place_of, short, shown, told
from rljob.observation import each
from rljob.threads import start_contained

T = TypeVar("T")

_KNOWN_MAKERS: Final = ("gymnasium.", "ale_py.")
_LOOK_SECONDS: Final = 0.05
_LEAVE_SECONDS: Final = 2.0
SLOW_SECONDS: Final = 20.0


def environment_of(run_dir: Path, source: EnvironmentSource, *, tried: bool = False) -> EnvironmentSpec:
    """What ``source`` is, as it was handed over in ``run_dir``; where it was not, as on a cluster, it is described, and
    ``tried``, now. Raises EnvironmentProblem."""
    handed = handed_over(run_dir, source)
    return handed or describe_environment_apart(source.id, source.parameters, tried=tried)


def describe_environment_apart(
    environment_id: str, parameters: EnvironmentParameters, *, tried: bool = False, slow_seconds: float = SLOW_SECONDS
) -> EnvironmentSpec:
    """`describe_environment`, and where it shall be ``tried`` `try_environment`, `apart`. Raises EnvironmentProblem."""
    return apart(
        environment_id,
        functools.partial(_described, environment_id, parameters, tried),
        own=parameters.runs_foreign_code,
        slow_seconds=slow_seconds,
    )


def apart(environment_id: str, call: Callable[[], T], *, own: bool = False, slow_seconds: float = SLOW_SECONDS) -> T:
    """What ``call`` gives or raises, which makes the environment; called in a process that is begun for it, which takes about a
    second, unless it is Gymnasium's own code, or ALE's, that makes it, and nothing else of it is its user's ``own``.

    Arguments and answers can be pickled. A process that ends before it has answered is begun once more. It may take its time, as
    a simulator does that loads; where it is stands on stderr every ``slow_seconds``. What it has begun ends with it.
    """
    if not own and not _made_by_a_user(environment_id):
        return call()
    what, code = f"environment {short(environment_id)!r}", 0
    for _ in range(2):
        answer, code = _answer(what, call, slow_seconds)
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            return answer[0]
    raise EnvironmentProblem(
        f"{what}: the process that tried it ended by {_words(code)} while it was made or within its first steps, twice; what it "
        "printed is above"
    )


def _made_by_a_user(environment_id: str) -> bool:
    """Whether the code of a user, or of a package that the user installed, makes this environment."""
    registered = gymnasium.registry.get(environment_id)
    return ":" in environment_id if registered is None else not str(registered.entry_point).startswith(_KNOWN_MAKERS)


def _answer(what: str, call: Callable[[], T], slow_seconds: float) -> tuple[tuple[T] | Exception | None, int]:
    """(what came of the call, None where the process ended before it said; its exit code)."""
    process, answer = Child(__name__, what, call, slow_seconds, title=what, talks=True, orphaned=signal.SIGKILL), None
    try:
        # Not until the link is closed: processes that the call has begun may hold it open.
        while not process.link.poll(_LOOK_SECONDS) and process.poll() is None:
            pass
        with suppress(EOFError, OSError):
            if process.link.poll():
                answer = process.link.recv()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LEAVE_SECONDS)
    finally:
        process.leave()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return answer, process.returncode


def main(to: Connection[Any, Any], what: str, call: Callable[[], object], slow_seconds: float) -> None:
    """Answer with what came of the call, in the process that was begun for it."""
    os.dup2(2, 1)
    faulthandler.enable(all_threads=False)
    caller = threading.current_thread().ident or 0

    def say_where() -> None:
        for times in itertools.count(1):
            time.sleep(slow_seconds)
            where = place_of(sys._current_frames()[caller])
            sys.stderr.write(
                f"rljob: {what}: its trial takes long, {times * slow_seconds:g} s so far, and is at {where}\n"
            )

    start_contained("slow-trial", say_where)
    try:
        to.send((call(),))
    except Exception as error:  # noqa: BLE001 (it is raised where it is waited for)
        to.send(that_travels(error))


def that_travels(error: Exception) -> Exception:
    """``error`` as it is, or in words where it can't be read back: whatever a user's code raises."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 (as above)
        return EnvironmentProblem(str(error))
    return error


def _described(environment_id: str, parameters: EnvironmentParameters, tried: bool) -> EnvironmentSpec:
    spec = describe_environment(environment_id, parameters)
    if tried:
        try_environment(environment_id, parameters, spec)
    return spec


def _words(exit_code: int) -> str:
    return f"exit code {exit_code}" if exit_code >= 0 else signal.Signals(-exit_code).name


log = logging.getLogger(__name__)

_LEAST_STEPS, _MOST_STEPS = 8, 64
_ENOUGH_SECONDS = 10.0
"""After this no more than the least steps are tried: 64 of a slow simulator would keep its user waiting for minutes."""
_MORE_SECONDS = 0.2
"""Until then more than one step an action is tried: many faults, such as numbers that drift, show later in an episode."""
_SEED = 1_234_567_890
_SEED_ADVICE = (
    "with seed=0 it does not fail: a seed may be any whole number below 2**31; where it is the number of one of n scenarios, "
    "take seed % n"
)
_GIVES = {
    "reset": "reset(seed=..., options=...) gives (observation, info)",
    "step": "step(action) gives (observation, reward, terminated, truncated, info)",
}
_VALUES = {"reset": 2, "step": 5}


def try_environment(
    environment_id: str, parameters: EnvironmentParameters, spec: EnvironmentSpec | None = None
) -> None:
    """Reset it once and step it with its actions in turn, eight times at least, 64 times where it is quick. Atari games, and
    what gives vector environments alone, are not tried.

    An environment may fail now and then (`RestartLimit`), so an exception counts only
    where a second trial, of a new environment, does not pass either. What is given wrongly is given wrongly each time.

    ``spec``: what it was described as; else it is described. Raises EnvironmentProblem, with the author's own line where an
    exception was raised.
    """
    target = resolve(environment_id, parameters)
    if isinstance(target, AtariGame) or (isinstance(target, UserFactory) and target.vector_only):
        return
    if parameters.encoder is not None:  # what is tried is what it encodes
        spec, parameters = None, parameters.model_copy(update={"encoder": None})
    spec = spec or describe_environment(environment_id, parameters)
    if "frame_stack" in parameters.model_fields_set and parameters.frame_stack > 1 and spec.stack == 1:
        log.warning(
            "environment %r: its observation has %s; frameStack %d changes nothing: only images are stacked, so put what was "
            "seen before into the observation itself (gymnasium.wrappers.FrameStackObservation in a module:factory of your own)",
            short(environment_id),
            ", ".join(map(str, spec.observation)),
            parameters.frame_stack,
        )
    try:
        _try_once(environment_id, target, parameters, spec)
    except GivenWrongly:
        raise
    except EnvironmentProblem as problem:
        _try_once(environment_id, target, parameters, spec)
        log.warning("%s; a second trial went well, so it is one of those that a job goes on after", problem)


class GivenWrongly(EnvironmentProblem):
    """Not an exception of the author's, which may come now and then: what was given is none of Gymnasium's contract."""


class _Tried(Received):
    """The guard of every role, whose problems say what the contract is: as its author knows the environment, which is one."""

    def _problem(self, where: str, error: BaseException, given: Any) -> EnvironmentProblem:
        of = f"environment {short(self._id)!r}"
        if given is NOTHING:
            # Where the user's own code is not to be seen, what it gave was wrong for a wrapper.
            contract = "" if authors_line(error) else f"; {_GIVES[where]}"
            return EnvironmentProblem(f"{of}: {where} failed: {told(error)}{contract}")
        if not isinstance(given, tuple) or len(given) != _VALUES[where]:
            return GivenWrongly(f"{of}: {_GIVES[where]}, got {shown(given)}")
        return GivenWrongly(f"{of}: {where}: {error}")

    def begin(self) -> Any:
        """The first observation of an episode."""
        try:
            return self.reset(seed=_SEED)[0]
        except GivenWrongly:
            raise
        except EnvironmentProblem as problem:
            try:
                self.env.reset(seed=0, options=None)  # nothing but the seed differs
            except PLUGIN_FAILURES:
                raise problem from problem.__cause__
            raise EnvironmentProblem(f"{problem}; {_SEED_ADVICE}") from problem.__cause__


class _Watched(Encoding):
    """Says once where an observation lies outside the bounds of its Box, which may be no more than what an author guessed."""

    def __init__(self, spec: EnvironmentSpec, parameters: EnvironmentParameters, space: gymnasium.Space[Any]) -> None:
        super().__init__(spec, parameters)
        leaves = [leaf for leaf in spec.observation if leaf.role != "mask"]
        self._boxes = [(leaf, box) for leaf in leaves if isinstance(box := at(space, leaf), gymnasium.spaces.Box)]

    def observation(self, given: Any, info: Any, rows: int | None = None) -> Any:
        found = super().observation(given, info, rows)
        for leaf, box in self._boxes:
            numbers = np.asarray(at(given, leaf))
            bounds = (box.low, box.high)
            within = (numbers >= box.low) & (numbers <= box.high)
            within |= np.logical_or.reduce([np.isclose(numbers, bound) for bound in bounds])
            if not within.all():
                where = tuple(np.argwhere(~within)[0])
                low, high = (f"{bound[where]:g}" for bound in bounds)
                log.warning(
                    "environment %r: %s: %s is outside of its bounds in observation_space, %s to %s; it is learned from as it "
                    "is, so correct the bounds or the observation",
                    short(self._spec.id),
                    leaf.path,
                    first_odd(numbers, within),
                    low,
                    high,
                )
                self._boxes = []
                break
        return found


def _try_once(
    environment_id: str,
    target: RegisteredEnvironment | UserFactory,
    parameters: EnvironmentParameters,
    spec: EnvironmentSpec,
) -> None:
    written = single.as_written(target)
    encoding = _Watched(spec, parameters, written.observation_space)
    with contextlib.closing(_Tried(written, encoding, environment_id, 0)) as env:
        generator, observation = np.random.default_rng(_SEED), env.begin()
        begun, actions = time.monotonic(), env.action_space
        due = min(max(_LEAST_STEPS, *spec.action_sizes, 0), _MOST_STEPS)
        in_turn = isinstance(actions, gymnasium.spaces.Discrete) and spec.mask is None
        for step in range(_MOST_STEPS):
            if step >= _LEAST_STEPS and time.monotonic() - begun > (_ENOUGH_SECONDS if step < due else _MORE_SECONDS):
                break
            # The actions of one Discrete in turn; of other spaces, and where a mask says which are allowed, any.
            row = each(lambda of: of[None], observation)
            action = step % int(actions.n) if in_turn else any_action(spec, row, generator)  # type: ignore[attr-defined]
            observation, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                observation = env.begin()
