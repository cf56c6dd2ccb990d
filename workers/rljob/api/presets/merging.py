"""A manifest laid over the preset that it names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rljob.api.document import plain_copy
from rljob.api.presets import PRESETS


def with_preset(document: dict[str, Any]) -> dict[str, Any]:
    """``document`` with the values of its preset where it says nothing itself; itself where it names none that is known.

    Mappings are laid over each other deeply; everything else, lists included, is taken whole from the manifest. Works on a
    document that has not been checked yet: what has another shape than expected is left for the check.
    """
    preset = preset_of(document)
    if preset is None:
        return document
    spec = document["spec"]
    return {**document, "spec": _laid_over(spec, _that_fits(preset, spec))}


def preset_of(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The spec of the preset that ``document`` names; None where it names none that is known."""
    name = value_at(document, "spec.preset")
    return PRESETS[name].spec if isinstance(name, str) and name in PRESETS else None


def value_at(document: Any, path: str) -> Any:
    """What a document has at ``path`` (``spec.learner.resources``), None where it has nothing there."""
    for part in path.split("."):
        document = document.get(part) if isinstance(document, Mapping) else None
    return document


def _laid_over(given: Any, base: Any) -> Any:
    if not isinstance(given, dict) or not isinstance(base, Mapping):
        return given
    return {
        **{key: plain_copy(item) for key, item in base.items() if key not in given},
        **{key: _laid_over(item, base.get(key)) for key, item in given.items()},
    }


def _that_fits(preset: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The preset without what makes no sense beside the manifest: nobody could leave out of a manifest what is not in it."""
    for (section, field, value), paths in _GIVES_WAY.items():
        written = given.get(section)
        if isinstance(written, Mapping) and written.get(field) == value:
            for path in paths:
                preset = _without(preset, path)
    return preset


def _without(node: Mapping[str, Any], path: Sequence[str]) -> Mapping[str, Any]:
    head, *rest = path
    if head not in node:
        return node
    if rest:
        return {**node, head: _without(node[head], rest)}
    return {key: value for key, value in node.items() if key != head}


_GIVES_WAY: Mapping[tuple[str, str, Any], Sequence[Sequence[str]]] = {
    # Only an evaluator could see either.
    ("evaluator", "enabled", False): (("evaluator", "triggerReturn"), ("successPolicy", "targetReturn")),
    # An inference server answers every step with its newest weights.
    ("actors", "inference", "Central"): (("algorithm", "impala", "weightsRefreshSteps"),),
}
"""(section, field, value) in a manifest -> what of any preset then does not count."""
