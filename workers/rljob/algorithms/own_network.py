"""A network of the user's own in the place of the built-in convolutions: ``network: module:factory`` or ``file.py:factory``.

``factory(inputs, parameters)`` gives a module from observations to features; the dense layers, a memory and the heads behind it
are the algorithm's. ``inputs`` is what it sees of one observation: (channels, height, width) of an image, stacked frames beside
each other, or (values,) of a vector or of what is one-hot. Where an observation has several leaves ``inputs`` is a dict of such,
by their paths. It is called with float32 ``[B, *inputs]``, scaled, or a dict of these, and may give features of any shape
``[B, ...]``. The type of the argument ``parameters``, a ``ParameterSet``, says which ``networkParameters`` a manifest may give; a
factory without that argument takes none.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, get_type_hints

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from rljob.algorithms.trunk import FrameNetwork, row_width, seen_by_convolutions
from rljob.api.networks import resolved_network
from rljob.api.parameters import ParameterSet
from rljob.api.problems import ABSENT, ManifestError, Problem
from rljob.api.structure import structural_problems
from rljob.loading import PLUGIN_FAILURES, PluginProblem, loaded, short, told
from rljob.observation import each

_ROWS = 2
Inputs = tuple[int, ...] | dict[str, tuple[int, ...]]


class NoParameters(ParameterSet):
    """Those of a factory that takes none."""


def network_parameters(name: str, given: Mapping[str, Any], path: str) -> ParameterSet:
    """The parameters ``given`` at ``path`` of a manifest, as the type that the network ``name`` declares. Raises ManifestError
    for what that type does not take, and PluginProblem."""
    kind = parameters_type(name)
    if given and not kind.model_fields:
        why = "its factory has no second argument" if kind is NoParameters else f"{kind.__name__} has no fields"
        raise ManifestError([Problem(path, ABSENT, f"not allowed: {short(name)} takes no parameters, since {why}")])
    try:
        return kind.model_validate(dict(given), by_alias=True, by_name=False)
    except ValidationError as error:
        problems = structural_problems(error, kind)
        raise ManifestError(Problem(f"{path}.{each.path}", each.value, each.message) for each in problems) from None
    except PLUGIN_FAILURES as error:
        raise PluginProblem(f"network {short(name)}: its parameters can't be checked: {told(error)}") from error


def parameters_type(name: str) -> type[ParameterSet]:
    """The type of the parameters of the network ``name``. Raises PluginProblem."""
    factory = loaded(name)
    takes = _arguments(name, factory)
    if len(takes) == 1:
        return NoParameters
    called = factory.__init__ if inspect.isclass(factory) else factory
    try:
        kind = get_type_hints(called).get(takes[1])
    except PLUGIN_FAILURES as error:
        raise PluginProblem(
            f"network {short(name)}: the types of its arguments can't be read: {told(error)}"
        ) from error
    if not (isinstance(kind, type) and issubclass(kind, ParameterSet)):
        raise PluginProblem(
            f"network {short(name)}: the type of its second argument, {takes[1]!r}, has to be a subclass of "
            f"rljob.plugins.ParameterSet, but is {getattr(kind, '__name__', kind) if kind is not None else 'not written'}"
        )
    return kind


def encoded(
    network: FrameNetwork,
    kind: str,
    own: Mapping[str, Any],
    shape: Sequence[int],
    smallest: Mapping[str, int],
    layers: Callable[[str, int, tuple[int, ...]], tuple[nn.Sequential, int]],
) -> tuple[str, int]:
    """Give ``network`` its layers for pictures: those of the user's own that ``kind`` names, with the parameters ``own``, or for
    each picture ``layers(kind, stack, shape)`` of the built-in kind that sees it (`rljob.api.networks`). Gives the kind for
    ``shape``, which is that of the first picture, and how many features there are of an observation."""
    found = resolved_network(smallest, kind, shape)
    if ":" not in kind:
        return found, network.encode(lambda stack, each: layers(resolved_network(smallest, kind, each), stack, each))
    network.convolutions, width = own_layers(kind, own, network)
    network.named = True
    return found, width


def own_layers(name: str, given: Mapping[str, Any], network: FrameNetwork) -> tuple[nn.Sequential, int]:
    """The layers that ``name`` makes of ``given`` parameters for what ``network`` sees, and the number of features they leave.

    Raises PluginProblem and ManifestError.
    """
    seen: dict[str, tuple[int, ...]] = {
        leaf.path: seen_by_convolutions(network.stack, leaf.shape) for leaf in network.pictures
    }
    seen |= {leaf.path: (row_width([leaf]),) for leaf in network.vectors}
    inputs: Inputs = seen if len(seen) > 1 else next(iter(seen.values()))
    parameters = network_parameters(name, given, "networkParameters")
    factory = loaded(name)
    arguments = (inputs, parameters)[: len(_arguments(name, factory))]
    try:
        module: Any = factory(*arguments)
    except PLUGIN_FAILURES as error:
        raise PluginProblem(f"network {short(name)}: it can't be made for inputs {inputs}: {told(error)}") from error
    if not isinstance(module, nn.Module):
        raise PluginProblem(
            f"network {short(name)}: a torch.nn.Module was expected of it, what came is {type(module).__name__}"
        )
    width = _features(name, module, inputs)
    return nn.Sequential(module), width


def _features(name: str, module: nn.Module, inputs: Inputs) -> int:
    """How many features it gives, tried with frames in each order in memory that it will be shown."""
    formats = [torch.contiguous_format]
    if len(inputs) == 3 and not isinstance(inputs, dict):
        formats.append(torch.channels_last)
    width, shown = 0, each(lambda shape: (_ROWS, *shape), inputs)
    zeros = each(torch.zeros, shown)
    for order in formats:
        try:
            with torch.no_grad():
                found: Any = module(each(partial(torch.Tensor.contiguous, memory_format=order), zeros))
        except PLUGIN_FAILURES as error:
            how = f"float32 {shown}" + (" in channels-last order" if order is torch.channels_last else "")
            raise PluginProblem(f"network {short(name)}: it failed on {how}: {told(error)}") from error
        if not isinstance(found, Tensor) or found.dim() < 2 or len(found) != _ROWS:
            came = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise PluginProblem(
                f"network {short(name)}: for inputs {shown} features [{_ROWS}, ...] were expected, what came is {came}"
            )
        width = found.flatten(1).shape[1]
    return width


def _arguments(name: str, factory: Callable[..., Any]) -> list[str]:
    try:
        takes = list(inspect.signature(factory).parameters)
    except (TypeError, ValueError) as error:
        raise PluginProblem(f"network {short(name)}: its arguments can't be read: {error}") from error
    if len(takes) not in (1, 2):
        raise PluginProblem(
            f"network {short(name)}: it has to take (inputs) or (inputs, parameters), but takes ({', '.join(takes)})"
        )
    return takes


def own_network_problems(parameters: Any, path: str) -> list[Problem]:
    """What is wrong with the network of an algorithm's ``parameters``, which lie at ``path``; nothing where it is a built-in one
    and has no parameters. Raises PluginProblem."""
    network, given = getattr(parameters, "network", ""), getattr(parameters, "network_parameters", {})
    place = f"{path}.networkParameters"
    if ":" not in str(network):
        message = f"allowed: only beside a network of one's own (module:factory); {network} takes none"
        return [Problem(place, ABSENT, message)] if given else []
    try:
        network_parameters(network, given, place)
    except ManifestError as error:
        return list(error.problems)
    return []
