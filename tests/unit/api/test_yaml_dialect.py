"""What words without quotes mean, against a table and against kubectl itself; and that what is written is read back."""

import json
import os
import random
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from rljob.api import ManifestError
from rljob.api.document import dump_document, parse_document

from tests.support.jobs import manifest_of

# As `kubectl annotate --local -o json` of Kubernetes 1.36 reads them, but for whole floats, which its JSON has as integers.
MEANINGS: dict[str, Any] = {
    "1e-4": 0.0001,
    "3E5": 300_000.0,
    ".5": 0.5,
    "-.5e1": -5.0,
    "1.": 1.0,
    "1.e2": 100.0,
    "1e+3": 1000.0,
    "2.0": 2.0,
    "-0.0": -0.0,
    "1.5": 1.5,
    "9007199254740993": 9_007_199_254_740_993,
    "1_000": 1000,
    "1_0.5": 10.5,
    "0x1F": 31,
    "-0X1f": -31,
    "0o17": 15,
    "0b11": 3,
    "0": 0,
    "1e400": "1e400",
    "1:30": "1:30",
    "1:30.5": "1:30.5",
    "2026-01-02": "2026-01-02",
    "2026-13-45": "2026-13-45",
    "2026-01-02T10:00:00Z": "2026-01-02T10:00:00Z",
    "=": "=",
    "1e": "1e",
    ".e5": ".e5",
    "_1": "_1",
    ".5_0": 0.5,
    "._5": "._5",
    "0o18": "0o18",
    "1.2.3": "1.2.3",
    "+": "+",
    "yes": True,
    "Off": False,
    "y": True,
    "N": False,
    "TRUE": True,
    "tRUE": "tRUE",
    "~": None,
    "Null": None,
    "nULL": "nULL",
    '"1e-4"': "1e-4",
    "'yes'": "yes",
    "!!str 1": "1",
}
PLAIN_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.text(alphabet="0123456789.+-_eExob:~=<#nysNYS ", max_size=8)
    | st.sampled_from([text for text in MEANINGS if "'" not in text] + ["017", "08", ".inf", ".nan", "<<", "", "null"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=20,
)


def read(text: str) -> Any:
    return parse_document(f"value: {text}".encode(), "m.yaml")["value"]


@pytest.mark.parametrize(("text", "meaning"), MEANINGS.items(), ids=repr)
def test_a_word_means_what_kubectl_makes_of_it(text: str, meaning: Any) -> None:
    assert read(text) == meaning
    assert type(read(text)) is type(meaning)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("017", "without a leading zero"),
        ("-08", "without a leading zero"),
        ("0_7", "without a leading zero"),
        (".inf", "a finite number"),
        ("-.INF", "a finite number"),
        (".nan", "a finite number"),
        ("1" * 5_000, "an integer of up to 300 digits"),
        ("!!bool 1", "true or false"),
        ('"\\ud83d"', "text that is valid Unicode"),
        ("!!float x", "allowed: a number"),
        ("!!timestamp 2026-01-02", "leave the tag out"),
        ("!!set {a, b}", "leave the tag out"),
    ],
)
def test_what_has_no_single_value_is_refused_in_its_place(text: str, words: str) -> None:
    with pytest.raises(ManifestError, match=f"^m.yaml:2:8: .*{re.escape(words)}") as caught:
        parse_document(f"a: 1\nb: [x, {text}]\n".encode(), "m.yaml")
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize("key", ["y", "on", "1e-4", "~", "1.5", "017"])
def test_a_key_that_is_no_text_is_refused(key: str) -> None:
    with pytest.raises(ManifestError, match="allowed as a key: a string; quote it"):
        parse_document(f"{{x: 1, {key}: 2}}".encode(), "m.yaml")


def test_json_escapes_a_character_beyond_16_bits_as_two_halves() -> None:
    emoji = {"\U0001f600": "\U0001f600"}
    assert read(json.dumps(emoji)) == emoji
    with pytest.raises(ManifestError, match="valid Unicode"):
        read('{"\\ude00": 1}')


@given(st.dictionaries(st.text(max_size=6), PLAIN_VALUES, max_size=5))
def test_what_is_written_is_read_back(document: dict[str, Any]) -> None:
    again = parse_document(dump_document({"all": document}).encode(), "m.yaml")["all"]
    assert again == document
    assert json.dumps(again, sort_keys=True) == json.dumps(document, sort_keys=True), "types too"


def kubectl() -> str | None:
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    return shutil.which("kubectl", path=folder) if folder else shutil.which("kubectl")


def words() -> list[str]:
    """The table's words and thousands that look like numbers, truth values or dates, the same ones in every run."""
    chosen = random.Random(22)
    made = {"".join(chosen.choices("0123456789.+-_eExob:yYnN", k=chosen.randint(1, 7))) for _ in range(6000)}
    made |= {
        f"{a}{b}{c}"
        for a in ("", "+", "-")
        for b in ("0x", "0o", "0b", "0", "1", ".")
        for c in ("1", "7e2", "1_0", "F")
    }
    return [*MEANINGS, *sorted(made)]


def refusal(text: str) -> str:
    """Why a word is refused; empty where it has a value."""
    try:
        read(text)
    except ManifestError as error:
        return str(error)
    return ""


def same(ours: Any, theirs: Any) -> bool:
    """The same value of the same type, as far as kubectl's JSON has types of numbers."""
    return bool(ours == theirs) and (type(ours) is type(theirs) or (isinstance(ours, float) and ours.is_integer()))


def spec_of_kubectl(folder: Path, manifest: str) -> dict[str, Any]:
    """The spec of a manifest as kubectl reads it."""
    (folder / "m.yaml").write_text(manifest)
    command = [str(kubectl()), "annotate", "--local", "-f", str(folder / "m.yaml"), "a=b", "-o", "json"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)["spec"]


@pytest.mark.skipif(kubectl() is None, reason="kubectl is neither in $KUBEBUILDER_ASSETS nor on the PATH")
def test_kubectl_reads_the_same(tmp_path: Path) -> None:
    refused = {text: why for text in words() if (why := refusal(text))}
    assert all("a leading zero" in why or "not valid YAML" in why for why in refused.values()), refused
    ours = {text: read(text) for text in words() if text not in refused}
    written = "".join(f"  k{number}: {text}\n" for number, text in enumerate(ours))
    head = "apiVersion: rljob.dev/v1alpha1\nkind: RLJob\nmetadata: {name: a}\nspec:\n"
    theirs = spec_of_kubectl(tmp_path, f"{head}{written}")
    different = {
        text: (value, theirs.get(f"k{number}"))
        for number, (text, value) in enumerate(ours.items())
        if not same(value, theirs.get(f"k{number}"))
    }
    assert len(ours) > 3000
    assert different == {}


@pytest.mark.skipif(kubectl() is None, reason="kubectl is neither in $KUBEBUILDER_ASSETS nor on the PATH")
def test_kubectl_reads_what_is_written(tmp_path: Path) -> None:
    texts = words()
    assert spec_of_kubectl(tmp_path, dump_document(manifest_of({"texts": texts})))["texts"] == texts
