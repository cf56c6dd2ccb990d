"""What the documents tell a user to type can be typed: commands and options exist, manifests are right. Nothing is executed.

That the fields which they name exist is tested in ``tests/unit/api/test_catalogue.py``; here, that each field of a manifest earns
its place: an example or a preset sets it, or a page says what it is for."""

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from rljob.api import ManifestError, parse_job
from rljob.api.document import parse_document
from rljob.api.fields import TypedPlace
from rljob.api.presets import by_path, leaves
from rljob.api.roles import RoleSpec
from rljob_operator.cli import app, plugin

from tests.support.documents import DOCUMENTS, LOGS, blocks, inline_code
from tests.support.paths import MANIFESTS, ROOT

PAGES = tuple(document for document in DOCUMENTS if LOGS not in document.parents)
RLJOB: Any = typer.main.get_command(app)
KUBECTL_RLJOB: Any = typer.main.get_command(plugin)
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
ENDS = re.compile(r"^(\||\|\||&&|;|&|>|>>|<<.*|<)$")
"""Words of the shell behind which another command, or none, begins."""
EXCEPTIONS: dict[str, str] = {}
"""What is found wrong and stands in a document for a reason: the words, and the reason."""


def commands(script: str) -> Iterator[list[str]]:
    """The words of each command of ours in a block of shell: ``rljob``, ``kubectl rljob``, ``make``, and our benchmarks."""
    script = re.sub(r"<<(\w+)\n.*?^\1$", "", script.replace("\\\n", " "), flags=re.MULTILINE | re.DOTALL)
    for line in script.splitlines():
        words: list[str] = []
        split = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        split.whitespace_split = True
        for word in [*split, ";"]:
            if not ENDS.match(word):
                words.append(word)
            elif words:
                yield words
                words = []


def problem(words: Sequence[str]) -> str | None:
    """Why a command can't be typed so; None where it can, or is not ours."""
    name, *rest = words
    if name.removeprefix(".venv/bin/") == "rljob":
        return refused(RLJOB, rest)
    if name == "kubectl" and rest[:1] == ["rljob"]:
        return refused(KUBECTL_RLJOB, rest[1:])
    if name == "make":
        return next((f"there is no target {word}" for word in rest if "=" not in word and word not in TARGETS), None)
    if name.removeprefix(".venv/bin/") == "python" and rest[:1] == ["-m"] and rest[1].startswith("benchmarks."):
        return None if (ROOT / f"{rest[1].replace('.', '/')}.py").is_file() else f"there is no {rest[1]}"
    return None


def refused(command: Any, words: Sequence[str]) -> str | None:
    """What the command line says of the words, without doing what they ask for; and files of ours that are not there."""
    for word in words:
        if word.startswith("manifests/") and not (ROOT / word).exists():
            return f"there is no {word}"
    try:
        context = command.make_context("rljob", list(words))
        while hasattr(command, "resolve_command") and (words := [*context._protected_args, *context.args]):
            name, command, words = command.resolve_command(context, list(words))
            context = command.make_context(name, list(words), parent=context)
    except typer.Exit:  # --help
        return None
    except Exception as error:  # noqa: BLE001 - whatever it is, the words can't be typed so
        return str(getattr(error, "message", "") or error)
    return None


def wrong(document: Path) -> list[tuple[str, str]]:
    found = []
    for block in blocks(document, "sh"):
        for words in commands(block):
            text = " ".join(words)
            if (why := problem(words)) is not None and text not in EXCEPTIONS:
                found.append((text, why))
    return found


def named_in_sentences(document: Path) -> Iterator[tuple[str, list[str]]]:
    """Command and options of each ``rljob ...`` between backticks, where the rest may be left open."""
    for text in inline_code(document):
        if found := re.match(r"(?:\.venv/bin/)?rljob ([a-z][a-z-]*)(?![\w:-])(.*)", text):
            yield found[1], re.findall(r"(?<![\w-])--[a-z-]+", found[2])


def options(name: str) -> set[str]:
    return {"--help"}.union(*(parameter.opts for parameter in RLJOB.commands[name].params))


@pytest.mark.parametrize("document", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_can_be_typed_so(document: Path) -> None:
    assert wrong(document) == []


@pytest.mark.parametrize("document", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_in_a_sentence_exists_with_its_options(document: Path) -> None:
    for name, given in named_in_sentences(document):
        assert name in RLJOB.commands, f"rljob {name}"
        assert set(given) <= options(name), f"rljob {name}: {sorted(set(given) - options(name))}"


def manifests(document: Path) -> Iterator[dict[str, Any]]:
    """RLJobs in a document's blocks of YAML and in what its commands are given on standard input; parts of a spec in a job of
    their own."""
    texts = [*blocks(document, "yaml")]
    for block in blocks(document, "sh"):
        texts += re.findall(r"kubectl apply -f - <<(?:EOF|'EOF')\n(.*?)^EOF$", block, re.MULTILINE | re.DOTALL)
    for text in texts:
        found = parse_document(text.encode(), document.name)
        if "kind" not in found:
            spec = found.get("spec", found)
            # A part of a spec is of a job that names what it needs beside: an environment, or a preset.
            began: dict[str, Any] = {"environment": {"id": "CartPole-v1"}} if "algorithm" in spec else {}
            began |= {} if {"preset", "algorithm"} & spec.keys() else {"preset": "CartPoleIMPALA"}
            head = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": "from-a-page"}}
            yield {**head, "spec": {**began, **spec}}
        elif found["kind"] == "RLJob":
            yield found


@pytest.mark.parametrize("document", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_manifest_is_right(document: Path) -> None:
    for each in manifests(document):
        parse_job(each)


def test_there_are_commands_and_manifests_at_all() -> None:
    typed = [words for page in PAGES for block in blocks(page, "sh") for words in commands(block)]
    assert sum(words[0].endswith("rljob") for words in typed) > 25
    assert sum(1 for page in PAGES for _ in manifests(page)) > 3
    assert sum(1 for page in PAGES for _ in named_in_sentences(page)) > 25


def test_what_can_not_be_typed_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("""
`rljob gone` and `rljob get --gone`
```sh
rljob run manifests/examples/pong-vtrace.yaml --set a=b  # right
rljob run manifests/examples/gone.yaml && rljob evaluate x | rljob get \\
  --gone
kubectl rljob top --all-gone
rljob --debug eval runs/x --episodes many
make gone; python -m benchmarks.gone
kubectl apply -f - <<EOF
kind: RLJob
spec: {preset: Gone}
EOF
```
""")
    assert [text for text, _ in wrong(page)] == [
        "rljob run manifests/examples/gone.yaml",
        "rljob evaluate x",
        "rljob get --gone",
        "kubectl rljob top --all-gone",
        "rljob --debug eval runs/x --episodes many",
        "make gone",
        "python -m benchmarks.gone",
    ]
    assert list(named_in_sentences(page)) == [("gone", []), ("get", ["--gone"])]
    (manifest,) = manifests(page)
    with pytest.raises(ManifestError, match="Gone"):
        parse_job(manifest)


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
    used = {*_in_examples(), *(path.removeprefix("spec.") for path in by_path())}
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
