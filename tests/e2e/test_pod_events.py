"""Ten cells of the table of tests/pod_events, drawn anew for each commit: what happens to pods on a real cluster."""

import os
import random
import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e.cluster import Namespace
from tests.e2e.nodes import FAULT
from tests.e2e.operator_process import OperatorProcess
from tests.pod_events.on_cluster import PodEvents
from tests.pod_events.table import cells
from tests.support.paths import ROOT

DRAWN = 10
SEED = (
    os.environ.get("RLJOB_E2E_SEED")
    or subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
)
CELLS = random.Random(SEED).sample(cells(), DRAWN)


@pytest.fixture(scope="module")
def events(bare_namespace: Namespace, operator: OperatorProcess) -> Iterator[PodEvents]:
    """The job that everything happens to."""
    found = PodEvents(bare_namespace, os.environ["RLJOB_E2E_IMAGE"])
    found.start()
    yield found
    bare_namespace.delete_jobs()


@pytest.mark.parametrize(
    ("event", "role", "phase"),
    CELLS,
    ids=[f"{event.name}-{role}-{phase}".replace(" ", "_") for event, role, phase in CELLS],
)
def test_what_happens_to_a_pod_ends_as_the_table_says(events: PodEvents, event, role, phase) -> None:  # type: ignore[no-untyped-def]
    if event.needs_faults and not os.environ.get(FAULT):
        pytest.skip(f"{FAULT} is not set")
    try:
        print(events.check(event, role, phase))
    except AssertionError:
        events.recover()
        raise
