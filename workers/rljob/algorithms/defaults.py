"""The defaults of a plug-in's parameters, which are its author's: a wrong one is no mistake in a manifest."""

from __future__ import annotations

from pydantic import ValidationError

from rljob.api.parameters import ParameterSet
from rljob.api.structure import structural_problems
from rljob.loading import PLUGIN_FAILURES, PluginProblem


def check_defaults(whose: str, kind: type[ParameterSet]) -> None:
    """Raise PluginProblem where a default of ``kind`` is none that its own type takes. A rule between several fields may ask for
    values that only a manifest can give, so it is no matter of defaults."""
    try:
        kind.model_validate({}, by_alias=True, by_name=False)
    except ValidationError as error:
        problems, places = structural_problems(error, kind)
        names = {field.alias or name: name for name, field in kind.model_fields.items()}
        for problem, place in zip(problems, places, strict=True):
            name = names.get(str(place[0]) if place else "")
            if name is not None and not kind.model_fields[name].is_required():
                raise PluginProblem(
                    f"{whose}: the default of {name} in {kind.__name__} is {problem.value!r}; {problem.message}"
                ) from None
    except PLUGIN_FAILURES:  # a check of the author's own that fails is told where it is asked about a manifest
        return
