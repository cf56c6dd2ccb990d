"""The fields of a manifest that the documentation names exist. (Its manifests: ``tests/unit/test_documented_commands.py``.)"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rljob.api.catalogue import explained

REPOSITORY = Path(__file__).parents[3]
ELSEWHERE = ("pong-presets.md", "api-reference.md")
"""A log, in the words of its time; and what is generated from the types."""
PAGES = [
    REPOSITORY / "README.md",
    *(page for page in sorted((REPOSITORY / "docs").glob("*.md")) if page.name not in ELSEWHERE),
    *(page for page in sorted((REPOSITORY / "docs" / "algorithms").glob("*.md")) if page.name not in ELSEWHERE),
]
SECTIONS = (
    "algorithm|environment|learner|replay|actors|inference|autoscaling|evaluator|checkpoint|successPolicy|failurePolicy"
)
FIELD = re.compile(rf"(?:`|--set )((?:spec\.|(?:{SECTIONS})\.)[a-zA-Z0-9.\[\]]*[a-zA-Z0-9])(?=[`=: ])")
FILES = (".md", ".py", ".yaml", ".json")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_field_that_it_names_exists(page: Path) -> None:
    for path in set(FIELD.findall(page.read_text())):
        if not path.endswith(FILES):
            explained(path)


def test_fields_are_found_in_it() -> None:
    assert sum(len(set(FIELD.findall(page.read_text()))) for page in PAGES) > 40
