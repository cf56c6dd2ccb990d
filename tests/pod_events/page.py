"""The part of docs/pod-events.md that is made from the table: ``python -m tests.pod_events.page`` writes it."""

from pathlib import Path

from tests.pod_events.table import EVENTS, Event, Phase
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "pod-events.md"
BEGIN, END = "<!-- the table of tests/pod_events/table.py begins -->", "<!-- and ends -->"


def table() -> str:
    """In Markdown."""
    rows = [
        "| event | how | while the job runs | told in `status.failures` or a condition | while it is being suspended |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*rows, *map(_row, EVENTS)])


def with_table(text: str) -> str:
    """The page with the table as it is now. Raises ValueError where the page has no place for it."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} has no place for the table")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def _row(event: Event) -> str:
    if event.why_not:
        return f"| {event.name} | {event.done} | cannot happen: {event.why_not} | | |"
    words = (event.name, event.done, event.in_words(Phase.RUNNING), event.told or "-", event.in_words(Phase.SUSPENDING))
    return f"| {' | '.join(words)} |"


def main() -> None:
    path = Path(PAGE)
    path.write_text(with_table(path.read_text()))


if __name__ == "__main__":
    main()
