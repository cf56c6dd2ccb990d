"""Which network weights are of: the names and shapes of its state, and where two differ."""

from collections.abc import Mapping

from torch import nn

Shape = tuple[int, ...]


def shapes_of(module: nn.Module) -> dict[str, Shape]:
    """The shapes of a network's state by name, as weights for it have them."""
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


def first_difference(
    one: Mapping[str, Shape], other: Mapping[str, Shape]
) -> tuple[str, Shape | None, Shape | None] | None:
    """The first name with its shapes in both, None for one that lacks it; None where the two are the same."""
    for name in (*one, *other):
        if (shapes := (one.get(name), other.get(name)))[0] != shapes[1]:
            return name, *shapes
    return None


def words_of(shape: Shape | None) -> str:
    """A weight's shape in a message."""
    return "none" if shape is None else f"float32 {list(shape)}"
