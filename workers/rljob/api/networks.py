"""Which network sees frames of which shape: what ``network: Auto`` means, and what a named network needs. Knows no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

OF_TRANSITIONS: Mapping[str, int] = MappingProxyType({"Nature": 36, "Compact": 14, "Small": 3, "MLP": 1})
OF_UNROLLS: Mapping[str, int] = MappingProxyType({"Nature": 36, "Deep": 8, "Compact": 24, "Small": 3, "MLP": 1})
"""Networks of algorithms that learn from these, and the least height and width of which their convolutions leave something."""

NATURE_FROM_PIXELS = 64
"""Auto takes Nature from this side on. From 36 on its strides leave something, but of so little that Compact sees more."""
LARGEST_AUTO_PIXELS = 256
"""Auto takes no image with a longer side: behind Nature's strides a dense layer would have 100 million weights and more."""


class NetworkProblem(ValueError):
    """No network, or not the one that was asked for, sees frames of this shape. The message says what would be right."""


@dataclass(frozen=True, slots=True)
class Image:
    """A frame as an image: its sides, and ``channels`` values a pixel. ``channels_first``: [C, H, W], else [H, W(, C)]."""

    height: int
    width: int
    channels: int = 1
    channels_first: bool = False

    @classmethod
    def of(cls, frame_shape: Sequence[int]) -> Image | None:
        """A frame of two or three dimensions as an image, anything else as None.

        With three dimensions the channels are the first or the last: the one that differs from two equal ones, or else the
        shorter; where that leaves it open, the last, as Gymnasium's environments have it.
        """
        if len(frame_shape) == 2:
            return cls(frame_shape[0], frame_shape[1])
        if len(frame_shape) != 3:
            return None
        first, middle, last = frame_shape
        channels_first = middle == last != first or (first != middle and first < last)
        return cls(middle, last, first, True) if channels_first else cls(first, middle, last)


def resolved_network(smallest: Mapping[str, int], network: str, frame_shape: Sequence[int]) -> str:
    """``network``, which is one of ``smallest`` (such as `OF_TRANSITIONS`), with Auto decided by the shape of a frame: a vector
    gets an MLP, an image convolutions.

    Raises NetworkProblem for a network that is not known or cannot see such frames, and where Auto finds none: an image is
    never made a vector unless the job says so.
    """
    if ":" in network:  # one's own, which says itself what it can't see
        return network
    image = Image.of(frame_shape)
    frame = f"a frame of this environment has shape {tuple(frame_shape)}"
    if network == "Auto":
        if len(frame_shape) == 1:
            return "MLP"
        if (
            image is None
            or min(image.height, image.width) < smallest["Small"]
            or max(image.height, image.width) > LARGEST_AUTO_PIXELS
        ):
            raise NetworkProblem(
                f"network Auto takes vectors and images with sides from {smallest['Small']} to {LARGEST_AUTO_PIXELS} pixels, "
                f"but {frame}; give it another size (gymnasium.wrappers.ResizeObservation in a module:factory of your own), "
                "or name a network (network: MLP sees its values as a vector)"
            )
        side = min(image.height, image.width)
        return "Nature" if side >= NATURE_FROM_PIXELS else "Compact" if side >= smallest["Compact"] else "Small"
    if network not in smallest:
        raise NetworkProblem(f"network is {network!r}; it can be Auto, {', '.join(smallest)}")
    if network != "MLP" and (image is None or min(image.height, image.width) < smallest[network]):
        raise NetworkProblem(
            f"network {network} needs images of at least {smallest[network]}x{smallest[network]} pixels, but {frame}; "
            "network Auto finds one that sees it, or says why there is none"
        )
    return network
