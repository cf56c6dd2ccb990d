"""Randomised tests draw the same in every `make test`, so that a verdict is no matter of luck, and afresh in every round of
`make fuzz`, which looks for what the fixed draws miss.

Those of hypothesis follow its profile. Those that draw for themselves take their seeds from the fixture `any_seed`. What a
round finds is mended and pinned beside its test, as an `@example` or a row of a table.

Unit tests come first. Where several processes run tests, half of them begin with those that wait for processes.
"""

import asyncio
import inspect
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings
from xdist.scheduler import LoadScopeScheduling

pytest.register_assert_rewrite("tests.support")  # so that its assertions show their values, as those of tests do

# Threads of torch wait for each other by spinning, unless they are told not to. Where processes outnumber cores, that takes
# the core from the one that is waited for: 46 seconds of processor time in place of 8, in one test. Read when torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# One thread for whoever does not choose a number: many processes compute beside each other here.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Below a test's own folder lie unix sockets, whose paths have 107 bytes: pytest's part of such a path is up to 90 of them.
if len(os.fsencode(tempfile.gettempdir())) > 12:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/tmp")

TESTS = Path(__file__).parent
# What torch has compiled for AVX2 (ATEN_CPU_CAPABILITY) is found, without it, by the same key in its cache, which all of a user's
# processes share; it computes nonsense there, or aborts.
_CAPABILITY = os.environ.get("ATEN_CPU_CAPABILITY", "native")
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(TESTS.parent / ".pytest_cache" / f"torchinductor-{_CAPABILITY}"))
FUZZ_SEED = os.environ.get("RLJOB_FUZZ_SEED")
"""Set by `tests/fuzz.py`: the seed of its round."""
FUZZ_UNTIL = float(os.environ.get("RLJOB_FUZZ_UNTIL", "inf"))
"""Set by `tests/fuzz.py`: the monotonic second after which no further test begins."""

# How long an example takes says more about the machine than about the code.
for profile, fixed in (("fixed", True), ("fuzz", False)):
    settings.register_profile(
        profile, derandomize=fixed, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
    )
settings.load_profile("fuzz" if FUZZ_SEED else "fixed")


class UnitTestsFirst(LoadScopeScheduling):
    """A process is given a file at a time; all of `tests/e2e`, which needs the one cluster, is one.

    As many processes as there are cores begin with the unit tests, which compute; the others begin with those that start roles
    and mostly wait. Who has done its part takes of the other.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return "tests/e2e" if file.startswith("tests/e2e/") else file

    def _assign_work_unit(self, node: Any) -> None:
        computes = int(node.gateway.id.removeprefix("gw")) < len(os.sched_getaffinity(0))
        mine = (scope for scope in self.workqueue if scope.startswith("tests/unit/") == computes)
        if scope := next(mine, None):
            self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def schedule(self) -> None:
        """A process begins a test once it knows the next one, so one that takes the place of another is given two units, too."""
        super().schedule()
        for node in self.nodes if self.collection else ():
            self._reschedule(node)

    def remove_node(self, node: Any) -> str | None:
        """A test that ended its process has failed and is not given to another process, which it would end, too.

        Nor are the files that the process had done: xdist would hand them on without a test, and who is given two such files with
        one test left to run waits for the next one for ever.
        """
        units = self.assigned_work[node]
        running = next((test for unit in units.values() for test, completed in unit.items() if not completed), None)
        for scope, unit in list(units.items()):
            if running in unit:
                unit[running] = True
            if all(unit.values()):
                del units[scope]
        super().remove_node(node)
        return running


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> UnitTestsFirst:
    config.option.loadscopereorder = False  # the files' order is right
    return UnitTestsFirst(config, log)


def pytest_configure(config: pytest.Config) -> None:
    from tests.record import Record  # here: it imports tests.support, which the line above has to precede

    config.pluginmanager.register(Record(config))


class AnySeed:
    """Seeds for tests that must hold whatever is drawn."""

    fresh = FUZZ_SEED is not None
    """Whether the draws are fresh. A test may claim of the fixed ones alone that they reach every branch."""

    def __call__(self, number: int) -> int:
        """``number`` in `make test`; in `make fuzz` one that is another in each round."""
        return crc32(f"{FUZZ_SEED} {number}".encode()) if self.fresh else number


@pytest.fixture(scope="session")
def any_seed() -> AnySeed:
    return AnySeed()


@pytest.fixture
def closes() -> Iterator[Callable[[Any], Any]]:
    """Gives back what it is given, and closes it at the end of the test, the last one first."""
    with ExitStack() as stack:
        yield lambda it: stack.enter_context(closing(it))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--draw-long", metavar="SEED", help="of the tests marked long, run one in four, drawn by SEED")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With --draw-long, of the long tests those that are drawn. In `make fuzz`: the randomised tests alone, folder by folder in
    an order of the round's own, so that short rounds reach all of them in time."""
    if (seed := config.getoption("--draw-long")) is not None:
        left = {
            item for item in items if item.get_closest_marker("long") and crc32(f"{seed} {item.nodeid}".encode()) % 4
        }
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]
    if FUZZ_SEED is None:
        items.sort(key=lambda item: TESTS / "unit" not in item.path.parents)
        return
    config.hook.pytest_deselected(items=[item for item in items if not _randomised(item)])
    rank = random.Random(FUZZ_SEED)
    order = {path: rank.random() for path in sorted({item.path for item in items})}
    items[:] = sorted((item for item in items if _randomised(item)), key=lambda item: order[item.path])


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine function runs in the event loop of its fixtures, ``runner``, or in one of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    run = pyfuncitem.funcargs["runner"].run if "runner" in pyfuncitem.funcargs else asyncio.run
    run(pyfuncitem.obj(**given))
    return True


def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.monotonic() > FUZZ_UNTIL:
        pytest.skip("the time of this round is over")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if FUZZ_SEED is None:
        return
    found = [
        report.nodeid.split("[")[0] for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, [])
    ]
    for name in dict.fromkeys(found):
        terminalreporter.write_line(f"To see it again: make fuzz SEED={FUZZ_SEED} TESTS={name}")


def _randomised(item: pytest.Item) -> bool:
    return is_hypothesis_test(getattr(item, "obj", None)) or "any_seed" in getattr(item, "fixturenames", ())
