"""The documents: what they link to or name by its path exists, and docs/pod-events.md is the table of tests/pod_events."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pod_events.page import PAGE, with_table
from tests.support.documents import DOCUMENTS, prose
from tests.support.paths import ROOT

OF_THE_ROOT = ("index.md", "changelog.md", "contributing.md", "release.md", "security-policy.md")
"""Pages of the site that .ci/site_pages.py makes of those beside docs/."""
SOURCES = ("workers", "operator", "tests", "benchmarks", "docs", "manifests", "examples")
"""Folders whose files are called by their whole path."""


def words_of(document: Path) -> str:
    """Its prose without words of code."""
    return re.sub(r"`[^`\n]*`", "", prose(document))


def links(document: Path) -> Iterator[str]:
    """Targets within the project, as they are written; those in words of code are none."""
    words = words_of(document)
    targets = re.findall(r"\]\(([^)\s]+)(?: \"[^\"]*\")?\)|^\[[^\]]+\]: (\S+)", words, re.MULTILINE)
    return (one or other for one, other in targets if not re.match(r"[a-z]+:", one or other))


def anchors(document: Path) -> set[str]:
    """What the headings of a document can be linked to as, in the way of GitHub: one that comes again is numbered."""
    headings = re.findall(r"^#+ +(.+?) *$", prose(document), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    found: Counter[str] = Counter()
    names = []
    for name in (re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain):
        names.append(f"{name}-{found[name]}" if found[name] else name)
        found[name] += 1
    return set(names)


def missing(document: Path) -> Iterator[str]:
    for link in links(document):
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            yield link


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(document: Path) -> None:
    assert list(missing(document)) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_path_of_a_source_is_one(document: Path) -> None:
    named = re.findall(rf"`((?:{'|'.join(SOURCES)})/[\w./*-]*)`", document.read_text())
    assert [path for path in named if not any(ROOT.glob(path.rstrip("/")))] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_a_tag_that_no_reader_sees(document: Path) -> None:
    assert re.findall(r"<[a-z][^>\n]*>", words_of(document)) == []


def test_the_site_has_every_page_once_in_its_tree() -> None:
    tree = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1]
    written = {path.relative_to(ROOT / "docs").as_posix() for path in DOCUMENTS if ROOT / "docs" in path.parents}
    pages = [page for page in re.findall(r": (\S+\.md)$", tree, re.MULTILINE) if page not in OF_THE_ROOT]
    assert sorted(pages) == sorted(page for page in written if not page.startswith(("decisions/", "performance/")))


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    links = """
## Here it is
[a](there.md) [b](there.md#what-is-there) [c](there.md#what-is-there-1) [d](#here-it-is) [e](https://gone.example/x) `[f](g)`
[h](gone.md), [i](there.md#not-this), [j](#nor-here)
[k]: away/gone.md
"""
    (tmp_path / "there.md").write_text("# What is *there*\n# What is there\n```\n# not this\n```\n")
    (tmp_path / "links.md").write_text(links)
    assert list(missing(tmp_path / "links.md")) == ["gone.md", "there.md#not-this", "#nor-here", "away/gone.md"]


def test_the_page_has_the_table_as_it_is() -> None:
    text = Path(PAGE).read_text()
    assert with_table(text) == text, "python -m tests.pod_events.page writes it anew"
