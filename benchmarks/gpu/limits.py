"""Step 0, half a minute: what this GPU can do at most, which every later figure is compared with.

Products of large matrices in each arithmetic, copies within the device, and from the host's memory, pageable and pinned.
"""

from __future__ import annotations

import torch
from rljob.algorithms.compute import let_round_to_tf32, native_arithmetic

from benchmarks.gpu.bench import begin, options, rate

_TYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def main() -> None:
    arguments = options(__doc__, 30.0).parse_args()
    figures = begin("limits", arguments)
    device = torch.device(arguments.device)
    cuda = device.type == "cuda"
    side, size = (8192, 256 << 20) if cuda else (128, 1 << 20)
    each = arguments.seconds / 12
    for arithmetic in native_arithmetic(device):
        with figures.trying("products", arithmetic=arithmetic):
            if cuda:
                let_round_to_tf32(arithmetic)
            left, right = (torch.randn(side, side, device=device).to(_TYPES[arithmetic]) for _ in range(2))
            found = rate(lambda a=left, b=right: a @ b, each, device)
            figures.write("products", arithmetic=arithmetic, teraflops=found * 2 * side**3 / 1e12, side=side)
    with figures.trying("copy within the device"):
        source = torch.zeros(size, dtype=torch.uint8, device=device)
        into = torch.empty_like(source)
        found = rate(lambda: into.copy_(source), each, device)
        figures.write("copy within the device", gigabytes_per_second=2e-9 * size * found)  # read and written
    for pinned in (False, True) if cuda else (False,):
        with figures.trying("copy from the host", pinned=pinned):
            host = torch.zeros(size // 8, dtype=torch.uint8)
            host = host.pin_memory() if pinned else host
            found = rate(lambda h=host: h.to(device, non_blocking=True), each, device)
            figures.write("copy from the host", pinned=pinned, gigabytes_per_second=1e-9 * size / 8 * found)


if __name__ == "__main__":
    main()
