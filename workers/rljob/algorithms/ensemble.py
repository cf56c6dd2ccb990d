"""Several dense networks of one shape, computed together: one product a layer for all of them."""

from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional


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
