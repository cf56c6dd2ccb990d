"""Hook of MkDocs: what the pages need that lies outside of docs/.

The README is the first page, and the other pages of the checkout's root stand beside it. A file that a page links to becomes a
page below ``source/``, so that every link of the checkout works on the site, and none needs the address of the repository.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "RELEASE.md": "release.md",
    "SECURITY.md": "security-policy.md",
}
"""A page of the root -> where it is on the site."""
LANGUAGES = {".py": "python", ".yaml": "yaml", ".json": "json"}
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add the root's pages and every file that is linked to."""
    for name, uri in PAGES.items():
        files.append(File.generated(config, uri, content=(ROOT / name).read_text()))
    waiting = [
        *(DOCS / file.src_uri for file in files.documentation_pages() if file.abs_src_path),
        *map(ROOT.joinpath, PAGES),
    ]
    for page in waiting:
        for target in linked(page, page.read_text()):
            uri = place(target)
            if target.is_file() and files.get_file_from_path(uri) is None:
                files.append(File.generated(config, uri, content=shown(target)))
                waiting += [target] if target.suffix == ".md" else []
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page with its links as they are on the site."""
    source, here = origin(page.file.src_uri), Path(page.file.src_uri).parent
    return in_prose(LINK, lambda found: os.path.relpath(place(aim(source, found[1])), here), markdown)


def linked(page: Path, text: str) -> Iterator[Path]:
    return (aim(page, link) for link in LINK.findall(FENCE.sub("", text)))


def aim(page: Path, link: str) -> Path:
    """The file that a link of ``page`` means; of a folder its first page."""
    target = (page.parent / link).resolve()
    return next(iter(sorted(target.glob("*.md"))), target) if target.is_dir() else target


def place(target: Path) -> str:
    """Where a file of the checkout is on the site."""
    if target.is_relative_to(DOCS):
        return target.relative_to(DOCS).as_posix()
    path = target.relative_to(ROOT).as_posix()
    return PAGES.get(path) or f"source/{path.removesuffix('.md')}.md"


def origin(uri: str) -> Path:
    """The file of the checkout that a page of the site shows."""
    names = {place: name for name, place in PAGES.items()}
    if uri in names:
        return ROOT / names[uri]
    if not uri.startswith("source/"):
        return DOCS / uri
    path = ROOT / uri.removeprefix("source/")
    return path if path.exists() else path.with_suffix("")


def shown(file: Path) -> str:
    text = file.read_text()
    return text if file.suffix == ".md" else f"# {file.name}\n\n````{LANGUAGES.get(file.suffix, '')}\n{text}\n````\n"


def in_prose(pattern: re.Pattern[str], replacement: Any, text: str) -> str:
    """``text`` with ``pattern`` replaced outside of its blocks of code."""
    parts, at = [], 0
    for fence in FENCE.finditer(text):
        parts += [pattern.sub(replacement, text[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*parts, pattern.sub(replacement, text[at:])])
