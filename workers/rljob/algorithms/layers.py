"""The convolutions of the built-in networks, (out channels, kernel, stride) of each layer; and dense layers of several networks.

Which convolutions see frames of which shape is in ``rljob.api.networks``. Networks of one shape are computed together: one
product a layer for all of them.
"""

from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional

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


class DenseEnsemble(nn.Module):
    """``members`` networks of ``depth`` hidden layers of ``hidden`` units with ReLU, from ``width`` numbers to one each.

    Every member begins as torch's own linear layers do. ``layer_norm``: normalise before every ReLU.
    """

    def __init__(self, members: int, width: int, hidden: int, depth: int, *, layer_norm: bool = False) -> None:
        super().__init__()
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for inputs, outputs in zip([width] + [hidden] * depth, [hidden] * depth + [1], strict=True):
            bound = 1.0 / sqrt(inputs)
            self.weights.append(torch.empty(members, inputs, outputs).uniform_(-bound, bound))
            self.biases.append(torch.empty(members, 1, outputs).uniform_(-bound, bound))
        self.norm = layer_norm

    def forward(self, x: Tensor, *, detached: bool = False, half: torch.dtype | None = None) -> Tensor:
        """What each member says of ``x`` float32 [B, width]: float32 [members, B]. ``detached``: its own weights get no gradient.
        ``half``: what hidden layers are computed in, where that is not float32; the last one always is."""
        weights, biases = list(self.weights), list(self.biases)
        if detached:
            weights, biases = [each.detach() for each in weights], [each.detach() for each in biases]
        x = x.expand(len(weights[0]), *x.shape)
        *hidden, last = zip(weights, biases, strict=True)
        with torch.autocast(x.device.type, half or torch.bfloat16, enabled=half is not None):
            for weight, bias in hidden:
                x = torch.baddbmm(bias, x, weight)
                x = functional.relu(functional.layer_norm(x, x.shape[-1:]) if self.norm else x)
        return torch.baddbmm(last[1], x.float(), last[0]).squeeze(-1)
