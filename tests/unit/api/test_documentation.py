"""What the documentation says of manifests: that its manifests are right, and that the fields it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rljob.api import parse_job
from rljob.api.catalogue import explained
from rljob.api.document import parse_document

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
MANIFESTS = [
    (page.name, block)
    for page in PAGES
    for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
    if "kind: RLJob" in block
]


@pytest.mark.parametrize(("page", "block"), MANIFESTS, ids=[name for name, _ in MANIFESTS])
def test_a_manifest_in_it_is_right(page: str, block: str) -> None:
    spec = parse_job(parse_document(block.encode(), page)).spec
    assert spec.preset or spec.algorithm.type == "Custom"


def test_there_are_manifests_in_it() -> None:
    assert {"README.md", "running-locally.md"} <= {name for name, _ in MANIFESTS}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_field_that_it_names_exists(page: Path) -> None:
    for path in set(FIELD.findall(page.read_text())):
        if not path.endswith(FILES):
            explained(path)


def test_fields_are_found_in_it() -> None:
    assert sum(len(set(FIELD.findall(page.read_text()))) for page in PAGES) > 40
