"""How manifests are read from YAML and written as YAML: a reader and a writer that agree with each other and with kubectl.

PyYAML follows YAML 1.1, where ``1e-4`` is a text, ``1:30`` the number 90 and ``2026-01-02`` a date. Here a plain word means
what ``kubectl`` makes of it, so that one manifest has the same values on a laptop and on a cluster: numbers with or without a
point or an exponent (``1e-4``, ``3E5``, ``.5``, ``1.``), with ``0x``, ``0o``, ``0b`` and underscores; ``yes``, ``no``, ``on``,
``off``, ``y`` and ``n`` as truth values; dates and ``1:30`` as texts. A number with a point or an exponent is a float (``2e6``,
``1.0``), also where it is whole; a cluster's JSON alone can't tell it from an integer. What has no such value, or not one only,
is refused: infinities and ``.nan``, which JSON lacks, integers with a leading zero, which kubectl reads as octal where their
digits allow it, and halves of a character.
"""

import re
from typing import TYPE_CHECKING, Any, Final

import yaml

from rljob.api.plain import MOST_DIGITS

_PREFIX: Final = "tag:yaml.org,2002:"
STRING: Final = f"{_PREFIX}str"
MERGE: Final = f"{_PREFIX}merge"
NULL: Final = f"{_PREFIX}null"
_BOOLEAN, _INTEGER, _FLOAT = f"{_PREFIX}bool", f"{_PREFIX}int", f"{_PREFIX}float"
_SEQUENCE, _MAPPING = f"{_PREFIX}seq", f"{_PREFIX}map"

_NULLS: Final = frozenset(("", "~", "null", "Null", "NULL"))
_TRUTHS: Final = {
    spelling: meaning
    for words, meaning in ((("y", "yes", "true", "on"), True), (("n", "no", "false", "off"), False))
    for word in words
    for spelling in (word, word.capitalize(), word.upper())
}
_NOT_FINITE: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WHOLE: Final = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+|[0-9]+)")
_DECIMAL: Final = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_LEADING_ZERO: Final = re.compile(r"[-+]?0[0-9]+")
_BETWEEN_DIGITS: Final = re.compile(r"(?<=[0-9])_(?=[0-9])")
_ENDLESS: Final = 2**31 - 1
"""Width of a line that is never folded."""


def scalar(node: yaml.ScalarNode) -> Any:
    """The value of a scalar whose tag has been resolved. ValueError says what to write instead of one that is refused."""
    text: str = node.value
    if node.tag == NULL:
        return None
    if node.tag == _BOOLEAN:
        if text not in _TRUTHS:
            raise ValueError("allowed: true or false")
        return _TRUTHS[text]
    if node.tag in (_INTEGER, _FLOAT):
        return _number(text)
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")  # JSON escapes an emoji as two halves
    except UnicodeDecodeError:
        raise ValueError("allowed: text that is valid Unicode") from None


def dump_document(document: Any) -> str:
    """Plain values (those of JSON) as YAML that `rljob.api.document` and kubectl read back as the same values."""
    return yaml.dump(document, Dumper=_Writer, sort_keys=False, width=118)


def in_one_line(value: Any) -> str:
    """Plain values as YAML on one line: ``0.001``, ``[0, 2, 3]``, ``{cpu: '2'}``."""
    text: str = yaml.dump(value, Dumper=_Writer, sort_keys=False, default_flow_style=True, width=_ENDLESS)
    return text.removesuffix("...\n").strip()


def _number(text: str) -> int | float:
    plain = _digits(text)
    if _NOT_FINITE.fullmatch(text):
        raise ValueError("allowed: a finite number")
    if _LEADING_ZERO.fullmatch(plain):
        raise ValueError(
            "allowed: a number without a leading zero, which kubectl reads as octal; quote it if it is a text"
        )
    if _WHOLE.fullmatch(plain):
        if len(plain) > MOST_DIGITS:
            raise ValueError(f"allowed: an integer of up to {MOST_DIGITS} digits; quote it if it is a text")
        return int(plain, 0)
    if not _DECIMAL.fullmatch(plain):  # a tag says that it is one
        raise ValueError("allowed: a number")
    return float(plain)


def _digits(text: str) -> str:
    """A number without its underscores: anywhere in it, or between two digits where it begins with a point."""
    return _BETWEEN_DIGITS.sub("", text) if text.startswith(".") else text.replace("_", "")


def _tag(text: str) -> str:
    """What an unquoted scalar is."""
    if text in _NULLS:
        return NULL
    if text in _TRUTHS:
        return _BOOLEAN
    if text == "<<":
        return MERGE
    if text[0] not in "+-.0123456789":
        return STRING
    plain = _digits(text)
    if _WHOLE.fullmatch(plain):
        return _INTEGER
    if _NOT_FINITE.fullmatch(text):
        return _FLOAT
    # A number beyond the range of floats is a text: no field of numbers takes it, and nothing else should lose its digits.
    return _FLOAT if _DECIMAL.fullmatch(plain) and abs(float(plain)) < float("inf") else STRING


class _Dialect:
    """What reader and writer share: the meaning of a scalar without quotes and without a tag."""

    def resolve(self, kind: type[yaml.Node], value: str, implicit: tuple[bool, bool] | bool) -> str:
        """The tag of a node; ``implicit`` of a scalar: whether it stands without quotes, whether with."""
        if kind is yaml.ScalarNode:
            assert isinstance(implicit, tuple)
            return _tag(value) if implicit[0] else STRING
        return _SEQUENCE if kind is yaml.SequenceNode else _MAPPING


class Reader(_Dialect, yaml.SafeLoader):
    """Makes mappings, lists, texts, numbers, truth values and nulls, and refuses every other tag."""

    yaml_constructors = {  # noqa: RUF012 - PyYAML's own attribute, replaced as a whole
        _MAPPING: yaml.SafeLoader.construct_yaml_map,
        _SEQUENCE: yaml.SafeLoader.construct_yaml_seq,
        **dict.fromkeys((STRING, NULL, _BOOLEAN, _INTEGER, _FLOAT), lambda reader, node: scalar(node)),
        None: yaml.SafeLoader.construct_undefined,
    }


if TYPE_CHECKING:
    _Dumper = yaml.SafeDumper
    _Loader = yaml.SafeLoader
else:  # libyaml's, where PyYAML was built with it, takes a sixth of the time; an operator writes a thousand jobs
    _Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    _Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class OwnReader(_Dialect, _Loader):
    """Reads what `dump_document` has written, as `Reader` would; of other texts its refusals are not as clear."""

    yaml_constructors = Reader.yaml_constructors


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
