"""Each field of a manifest earns its place: an example or a preset sets it, or a page says what it is for."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from rljob.api.document import parse_document
from rljob.api.paths import TypedPlace
from rljob.api.pods import RoleSpec
from rljob.api.presets.values import leaves, paths

from tests.support.documents import DOCUMENTS, blocks
from tests.support.paths import MANIFESTS, ROOT

CRD = ROOT / "manifests" / "crds" / "rljobs.rljob.dev.yaml"
LISTS = ("api-reference.md", "coming-from.md")
"""Pages that name fields whether or not somebody needs them."""
NAMED = re.compile(r"(?:`|--set )(?:spec\.)?([a-z][A-Za-z0-9.]*)(?=[`=: ])")
ROLES = re.compile(
    rf"^(?:learner|replay|actors|inference|evaluator)\.(?=(?:{'|'.join(TypedPlace(RoleSpec).field_names)})\b)"
)


def test_each_field_stands_in_an_example_a_preset_or_a_page() -> None:
    schema = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    fields = [*_leaves(schema["properties"]["spec"])]
    used = {*_in_examples(), *(path.removeprefix("spec.") for path in paths())}
    known = {
        _of_any_role(".".join(path.split(".")[:depth])) for path in used for depth in range(1, path.count(".") + 2)
    }
    pages = [_named(page) for page in DOCUMENTS if page.name not in LISTS]
    alone = Counter(path.rpartition(".")[2] for path in fields)
    missing = [
        path
        for path in fields
        if _of_any_role(path) not in known and not any(_tells(page, path, alone) for page in pages)
    ]
    assert missing == [], "say on a page what it is for, or remove it"


def _tells(names: set[str], path: str, alone: Mapping[str, int]) -> bool:
    """Whether a page names a field: by its path, by a name that no other field has, or by its name beside that of its section
    within one, as tables do."""
    *_, section, name = ["", *_of_any_role(path).split(".")]
    return bool({path, _of_any_role(path)} & names) or (
        name in names and (alone[name] == 1 or (path.count(".") > 1 and section in names))
    )


def _of_any_role(path: str) -> str:
    """What every role has is explained once."""
    return ROLES.sub("*.", path)


def _leaves(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    if "properties" not in schema:
        yield path.removeprefix(".")
    for name, below in schema.get("properties", {}).items():
        yield from _leaves(below, f"{path}.{name}")


def _in_examples() -> Iterator[str]:
    for file in MANIFESTS:
        yield from (path for path, _ in leaves(parse_document(file.read_bytes(), file.name)["spec"]))


def _named(page: Path) -> set[str]:
    """The fields that a page names in its sentences or sets in its blocks of YAML: their paths, and each part of these."""
    found = set(NAMED.findall(page.read_text()))
    for document in (each for block in blocks(page, "yaml") for each in yaml.safe_load_all(block)):
        if isinstance(document, dict) and isinstance(document.get("spec"), dict):
            found |= {path for path, _ in leaves(document["spec"])}
    found |= {".".join(path.split(".")[:depth]) for path in found for depth in range(1, path.count(".") + 1)}
    return {*found, *(_of_any_role(path) for path in found), *(part for path in found for part in path.split("."))}
