"""What a run of the tests says about itself: how long it takes and what is left out, each failure at once, the slowest files."""

import os
from collections import Counter
from pathlib import Path
from time import monotonic
from zlib import crc32

import pytest

from tests.support.chart import find_program

HERE = Path(__file__).parent
FIRST_TIME = "ten minutes on two cores at rest, the first time"
SHORT_SECONDS = 60.0
"""Of a run that is over sooner, nobody asks how long it takes."""
SLOWEST = 10


def missing(folder: Path) -> str | None:
    """What the tests of a folder need and do not find here."""
    for name in {"cluster": ["KUBEBUILDER_ASSETS"], "e2e": ["RLJOB_E2E_KUBECONFIG", "RLJOB_E2E_IMAGE"]}.get(
        folder.name, []
    ):
        if not os.environ.get(name):
            return f"{name} is not set"
    return "helm is not on the PATH" if folder.name == "chart" and find_program("helm") is None else None


class Record:
    """A plugin of pytest. Processes that run tests for another one (xdist) only leave out what it leaves out."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.tells = not hasattr(config, "workerinput") and not config.option.collectonly
        self.named = [Path(arg.partition("::")[0]).resolve() for arg in config.args]
        self.seconds: Counter[str] = Counter()
        self.begin = monotonic()

    @property
    def terminal(self) -> pytest.TerminalReporter:
        return self.config.pluginmanager.get_plugin("terminalreporter")

    @property
    def key(self) -> str:
        """Where pytest's cache has how long such a run took the last time: of the same tests on as many cores."""
        options = self.config.option
        chosen = (
            options.markexpr,
            options.keyword,
            options.maxfail,
            getattr(options, "lf", False),
            bool(options.draw_long),
        )
        return f"rljob/seconds/{crc32(repr((self.config.args, chosen, len(os.sched_getaffinity(0)))).encode())}"

    def left_out(self, folder: Path) -> bool:
        """Whether a folder's tests are not even looked for: a need is missing, and nobody named them."""
        below = any(folder == named or folder in named.parents for named in self.named)
        return not below and missing(folder) is not None

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        return True if collection_path.parent == HERE and self.left_out(collection_path) else None

    def pytest_sessionstart(self) -> None:
        cache = getattr(self.config, "cache", None)
        if not self.tells or cache is None:
            return
        whole = HERE in self.named
        seconds = cache.get(self.key, None)
        length = FIRST_TIME if whole else ""
        if seconds and seconds > SHORT_SECONDS:
            length = f"{seconds / 60:.0f} minutes, as the last time"
        folders = sorted(HERE.iterdir()) if whole else ()
        left = [f"tests/{folder.name} ({missing(folder)})" for folder in folders if self.left_out(folder)]
        left += ["runs that take long (make test-all)"] * ("not long" in self.config.option.markexpr)
        parts = [f"It takes {length}."] * bool(length) + [f"Left out: {', '.join(left)}."] * bool(left)
        if parts:
            self.terminal.write_line(" ".join(parts))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not self.tells:
            return
        self.seconds[report.nodeid.partition("::")[0]] += report.duration
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            why = crash.message.splitlines()[0] if crash and crash.message else report.when
            self.terminal.write_line(f"\nFAILED {report.nodeid}: {why}")

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Keep how long it took, and in the file that CI names the slowest files."""
        if not self.tells:
            return
        cache = getattr(self.config, "cache", None)
        if cache is not None and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            cache.set(self.key, monotonic() - self.begin)
        # Not of a run that a test has begun.
        if (file := os.environ.get("RLJOB_TEST_RECORD")) and "PYTEST_CURRENT_TEST" not in os.environ:
            with Path(file).open("a") as record:
                record.writelines(
                    f"  {seconds:6.0f} s  {name}\n" for name, seconds in self.seconds.most_common(SLOWEST)
                )
