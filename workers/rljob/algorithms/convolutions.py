"""The convolutions of the built-in networks: (out channels, kernel, stride) of each layer. Which sees frames of which shape
is in ``rljob.api.networks``."""

Layers = tuple[tuple[int, int, int], ...]

NATURE: Layers = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Mnih et al. 2015, for 84x84."""

OVERLAPPING_COMPACT: Layers = ((16, 6, 4), (32, 3, 2))
"""``Compact`` of Ape-X DQN, for about 42x42: neighbouring fields of the first layer share pixels."""

TILED_COMPACT: Layers = ((16, 6, 6), (32, 3, 1))
"""``Compact`` of IMPALA, for about 42x42: the first layer sees every pixel once, the second all that it gives."""

SMALL: Layers = ((16, 3, 1),)
"""For grids of a few cells; the network of Young and Tian 2019 ("MinAtar")."""

NONE: Layers = ()
"""For vectors."""

OF_TRANSITIONS = {"Nature": NATURE, "Compact": OVERLAPPING_COMPACT, "Small": SMALL, "MLP": NONE}
"""By the names that Ape-X and SAC, which learn from replayed transitions, have for them."""
