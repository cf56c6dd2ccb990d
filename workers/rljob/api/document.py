"""How manifests are read from YAML and written as YAML: a reader and a writer that agree with each other and with kubectl, and
every trap of YAML turned into a problem with a line and a column.

PyYAML follows YAML 1.1, where ``1e-4`` is a text, ``1:30`` the number 90 and ``2026-01-02`` a date. Here a plain word means
what ``kubectl`` makes of it, so that one manifest has the same values on a laptop and on a cluster: numbers with or without a
point or an exponent (``1e-4``, ``3E5``, ``.5``, ``1.``), with ``0x``, ``0o``, ``0b`` and underscores; ``yes``, ``no``, ``on``,
``off``, ``y`` and ``n`` as truth values; dates and ``1:30`` as texts. A number with a point or an exponent is a float (``2e6``,
``1.0``), also where it is whole; a cluster's JSON alone can't tell it from an integer. What has no such value, or not one only,
is refused: infinities and ``.nan``, which JSON lacks, integers with a leading zero, which kubectl reads as octal where their
digits allow it, and halves of a character.
"""

import json
import math
import re
from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import yaml
from yaml.reader import ReaderError

from rljob.api.problems import ABSENT, MOST_DIGITS, ManifestError, Problem, odd_character, plain

_PREFIX: Final = "tag:yaml.org,2002:"
STRING: Final = f"{_PREFIX}str"
MERGE: Final = f"{_PREFIX}merge"
NULL: Final = f"{_PREFIX}null"
_BOOLEAN, _INTEGER, _FLOAT = f"{_PREFIX}bool", f"{_PREFIX}int", f"{_PREFIX}float"
_SEQUENCE, _MAPPING = f"{_PREFIX}seq", f"{_PREFIX}map"

_WORDS: Final[dict[str, bool | None]] = {
    spelling: meaning
    for words, meaning in (
        (("y", "yes", "true", "on"), True),
        (("n", "no", "false", "off"), False),
        (("", "~", "null"), None),
    )
    for word in words
    for spelling in (word, word.capitalize(), word.upper())
}
_TAGS: Final = {bool: _BOOLEAN, type(None): NULL, int: _INTEGER, float: _FLOAT, str: STRING}
_NOT_FINITE: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WHOLE: Final = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+|[0-9]+)")
_DECIMAL: Final = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_LEADING_ZERO: Final = re.compile(r"[-+]?0[0-9]+")
_BETWEEN_DIGITS: Final = re.compile(r"(?<=[0-9])_(?=[0-9])")
_ENDLESS: Final = 2**31 - 1
"""Width of a line that is never folded."""


def meaning(text: str) -> bool | int | float | str | None:
    """What a word without quotes and without a tag is. ValueError says what to write instead of one that is refused."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _NOT_FINITE.fullmatch(text):
        raise ValueError("allowed: a finite number")
    # Underscores count nothing: anywhere in a number, or between two digits where it begins with a point.
    plain = _BETWEEN_DIGITS.sub("", text) if text.startswith(".") else text.replace("_", "")
    if _LEADING_ZERO.fullmatch(plain):
        words = "a number without a leading zero, which kubectl reads as octal; quote it if it is a text"
        raise ValueError(f"allowed: {words}")
    if _WHOLE.fullmatch(plain):
        if len(plain) > MOST_DIGITS:
            raise ValueError(f"allowed: an integer of up to {MOST_DIGITS} digits; quote it if it is a text")
        return int(plain, 0)
    # A number beyond the range of floats is a text: no field of numbers takes it, and nothing else should lose its digits.
    number = float(plain) if _DECIMAL.fullmatch(plain) else math.inf
    return number if math.isfinite(number) else text


def scalar(node: yaml.ScalarNode) -> Any:
    """The value of a scalar whose tag has been resolved. ValueError says what to write instead of one that is refused."""
    if node.tag == STRING:
        try:
            return node.value.encode("utf-16", "surrogatepass").decode("utf-16")  # JSON escapes an emoji as two halves
        except UnicodeDecodeError:
            raise ValueError("allowed: text that is valid Unicode") from None
    value = meaning(node.value)
    if isinstance(value, str) or isinstance(value, bool) != (node.tag == _BOOLEAN):  # a tag says otherwise
        raise ValueError("allowed: true or false" if node.tag == _BOOLEAN else "allowed: a number")
    return value


def dump_document(document: Any) -> str:
    """Plain values (those of JSON) as YAML that `rljob.api.document` and kubectl read back as the same values."""
    return yaml.dump(document, Dumper=_Writer, sort_keys=False, width=118)


def in_one_line(value: Any) -> str:
    """Plain values as YAML on one line: ``0.001``, ``[0, 2, 3]``, ``{cpu: '2'}``."""
    text: str = yaml.dump(value, Dumper=_Writer, sort_keys=False, default_flow_style=True, width=_ENDLESS)
    return text.removesuffix("...\n").strip()


def _tag(text: str) -> str:
    """What an unquoted scalar is; one that is refused is a number until it is read."""
    try:
        return MERGE if text == "<<" else _TAGS[type(meaning(text))]
    except ValueError:
        return _INTEGER


class _Dialect:
    """What reader and writer share: the meaning of a scalar without quotes and without a tag."""

    def resolve(self, kind: type[yaml.Node], value: str, implicit: tuple[bool, bool] | bool) -> str:
        """The tag of a node; ``implicit`` of a scalar: whether it stands without quotes, whether with."""
        if kind is yaml.ScalarNode:
            assert isinstance(implicit, tuple)
            return _tag(value) if implicit[0] else STRING
        return _SEQUENCE if kind is yaml.SequenceNode else _MAPPING


if TYPE_CHECKING:
    _Dumper = yaml.SafeDumper
    _Loader = yaml.SafeLoader
else:  # libyaml's, where PyYAML was built with it, takes a sixth of the time; an operator writes a thousand jobs
    _Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    _Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


_SCALARS: Final = (STRING, NULL, _BOOLEAN, _INTEGER, _FLOAT)


class OwnReader(_Dialect, _Loader):
    """Reads what `dump_document` has written, as `Reader` would; of other texts its refusals are not as clear."""

    yaml_constructors = {  # noqa: RUF012 - PyYAML's own attribute, replaced as a whole
        _MAPPING: yaml.SafeLoader.construct_yaml_map,
        _SEQUENCE: yaml.SafeLoader.construct_yaml_seq,
        **dict.fromkeys(_SCALARS, lambda reader, node: scalar(node)),
        None: yaml.SafeLoader.construct_undefined,
    }


class Reader(_Dialect, yaml.SafeLoader):
    """Makes mappings, lists, texts, numbers, truth values and nulls, and collects what is wrong with all else as ``problems``."""

    def __init__(self, text: str, source: str) -> None:
        super().__init__(text)
        self.source = source
        self.problems: list[Problem] = []

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Each key once, and only texts."""
        first: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            if key.tag not in (STRING, MERGE):
                shown = key.value if isinstance(key, yaml.ScalarNode) else "a list or mapping"
                self._refuse(key, shown, "allowed as a key: a string; quote it")
            elif key.value in first:
                line = first[key.value][0].start_mark.line + 1
                self._refuse(key, key.value, f"allowed: each key once; this one is also in line {line}")
            else:
                first[key.value] = key, value
        node.value = list(first.values())
        return super().construct_mapping(node, deep)

    def scalar(self, node: yaml.Node) -> Any:
        """The value of a scalar."""
        try:
            return scalar(node) if isinstance(node, yaml.ScalarNode) else self.other(node)
        except ValueError as error:
            self._refuse(node, node.value, str(error))

    def other(self, node: yaml.Node) -> None:
        """What has a tag that no manifest needs."""
        shown = node.value if node.tag == MERGE else node.tag.replace(_PREFIX, "!!")
        allowed = "texts, numbers, true, false, null, lists and mappings"
        self._refuse(node, shown, f"allowed: {allowed}; leave the tag out, or quote what is a text")

    def _refuse(self, node: yaml.Node, shown: Any, message: str) -> None:
        self.problems.append(Problem(_place(self.source, node.start_mark), shown, message))

    yaml_constructors = {  # noqa: RUF012 - as above
        **OwnReader.yaml_constructors,
        **dict.fromkeys(_SCALARS, scalar),
        None: other,
    }


class _Writer(_Dialect, _Dumper):
    """Quotes each text that would be something else without quotes, writes a value that is there twice twice, a list of scalars
    on one line, and a text of many lines as these."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _list(writer: _Writer, data: list[Any]) -> yaml.Node:
    plain = not any(isinstance(item, dict | list) for item in data)
    return writer.represent_sequence(_SEQUENCE, data, flow_style=True if plain else None)


def _text(writer: _Writer, data: str) -> yaml.Node:
    return writer.represent_scalar(STRING, data, style="|" if "\n" in data else None)


_Writer.add_representer(list, _list)
_Writer.add_representer(str, _text)


MAX_BYTES = 1 << 19
"""Largest manifest read. A cluster keeps a job's spec twice, as it was written and as it is in force, in an object of 1.5 MB."""
_TAB = "found character '\\t' that cannot start any token"
"""How PyYAML's message about a tab ends."""


def parse_document(text: bytes, source: str) -> dict[str, Any]:
    """Parse one YAML (or JSON) document that is a mapping. ``source`` names the text in problems. Raises ManifestError.

    Refused, each with its place: bytes that are no UTF-8, malformed YAML, nothing at all, several documents, something
    else than a mapping, the same key twice, keys that are no strings, numbers that JSON lacks or that have a leading zero, and
    aliases that contain themselves or unfold beyond 100,000 values.
    """
    if len(text) > MAX_BYTES:
        raise _refused(source, f"has {len(text):,} bytes; allowed: up to {MAX_BYTES:,}")
    try:
        decoded = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = _at(source, text[: error.start].split(b"\n"))
        raise _refused(place, f"byte 0x{text[error.start]:02x} is not UTF-8; save the file as UTF-8") from None
    if decoded.lstrip()[:1] == "{":
        with suppress(ValueError, RecursionError):  # JSON has tabs between values, YAML has none
            json.loads(decoded)
            decoded = decoded.replace("\t", " ")
    try:
        return _mapping(Reader(decoded, source), source)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(part for part in (error.context, error.problem) if part)
        if what.endswith(_TAB):
            what = "a tab; indent with spaces"
        elif mark is not None:
            begun = max((error.context_mark or mark).line - 1, 0)
            lines = "".join(decoded.splitlines(keepends=True)[begun : mark.line + 1])
            what += (odd := odd_character(lines, unseen=True)) and f"; there is {odd}, which YAML takes for text"
        raise _refused(_place(source, mark), f"not valid YAML: {what}") from None
    except ReaderError as error:
        place = _at(source, decoded[: error.position].split("\n"))
        raise _refused(
            place, f"not valid YAML: the character U+{ord(decoded[error.position]):04X}; delete it"
        ) from None
    except RecursionError:
        raise _refused(source, "is nested too deeply; an RLJob needs about ten levels") from None


def parse_value(text: str) -> Any:
    """The value of one override: a YAML scalar or a one-line list or mapping. ValueError if it is neither."""
    try:
        found = parse_document(f"value: {plain(text)}".encode(), "value")
    except ManifestError as error:
        raise ValueError(error.problems[0].message) from None
    if len(found) > 1:
        raise ValueError("allowed: one value; quote a text of several lines")
    return found["value"]


def _mapping(loader: Reader, source: str) -> dict[str, Any]:
    nodes: list[yaml.Node] = []
    while loader.check_node() and (node := loader.get_node()) is not None:
        nodes.append(node)
    # Like kubectl: Helm's output and a last "---" leave documents without anything in them.
    nodes = [node for node in nodes if not (isinstance(node, yaml.ScalarNode) and node.tag == NULL)]
    if not nodes:
        raise _refused(source, "is empty; allowed: one RLJob document")
    if len(nodes) > 1:
        place = _place(source, nodes[1].start_mark)
        raise _refused(place, f"has {len(nodes)} documents; allowed: one RLJob a file")
    (node,) = nodes
    if not isinstance(node, yaml.MappingNode):
        found = "a list" if isinstance(node, yaml.SequenceNode) else "a single value"
        allowed = "allowed: a mapping with apiVersion, kind, metadata and spec"
        raise _refused(_place(source, node.start_mark), f"is {found}; {allowed}")
    document = loader.construct_document(node)
    if loader.problems:
        raise ManifestError(loader.problems)
    # An alias may contain itself, or unfold to more than there is room for.
    return dict(plain(document, (source,)))


def _refused(place: str, message: str) -> ManifestError:
    return ManifestError([Problem(place, ABSENT, message)])


def _at(source: str, before: Sequence[str] | Sequence[bytes]) -> str:
    """The place after the lines ``before``."""
    return f"{source}:{len(before)}:{len(before[-1]) + 1}"


def _place(source: str, mark: yaml.Mark | None) -> str:
    return source if mark is None else f"{source}:{mark.line + 1}:{mark.column + 1}"
