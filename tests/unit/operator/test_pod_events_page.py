"""docs/pod-events.md says what the table of tests/pod_events says."""

from __future__ import annotations

from pathlib import Path

from tests.pod_events.page import PAGE, with_table


def test_the_page_has_the_table_as_it_is() -> None:
    text = Path(PAGE).read_text()
    assert with_table(text) == text, "python -m tests.pod_events.page writes it anew"
