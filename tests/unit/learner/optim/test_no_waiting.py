"""An update asks its device for nothing: where a number would have to be waited for, the host could not run ahead."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from rljob.learner.optim.on_device import LateNumber
from rljob.learner.optim.updater import AnyUpdater
from torch.utils._python_dispatch import TorchDispatchMode

from tests.support.devices import LateEvents, needs_cuda
from tests.unit.learner.learner_builders import (
    CPU,
    IMAGES,
    OPTIMIZERS,
    ORDERED,
    batches_of,
    image_parameters,
    on,
    parameters,
    updater,
)

CUDA = torch.device("cuda")
WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "unique")
"""Operations whose result, or its shape, the host must know: ``item``, ``float``, ``bool``, ``tolist``, an index by a mask."""
UNROLLS: list[dict[str, Any]] = [
    {"minibatches": 2},
    {"recurrent": "LSTM", "lstm_units": 6},
    {"epochs": 2, "minibatches": 4, "target_policy_kl": 0.02},
    {"kind": "PPO", "epochs": 2, "minibatches": 4, "target_kl": 0.02},
]


class Waits(TorchDispatchMode):
    """Counts operations that a device would be waited for, here on a CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        by_mask = name in ("index", "index_put_") and any(i is not None and i.dtype == torch.bool for i in args[1])
        if name in WAITING or by_mask:
            self.found.append(name)
        return func(*args, **(kwargs or {}))


Data = tuple[Any, list[Any]]


def ready(params: Any, device: torch.device = CPU) -> Data:
    """A learner, and four batches."""
    learner = updater(params, IMAGES, plan=ORDERED, device=device)
    return learner, [on(device, batch) for batch in batches_of(params, 4, IMAGES)]


def of_unrolls(kind: str = "IMPALA", **changes: Any) -> Any:
    return image_parameters(kind, gradient_clip_norm=1.0, **changes)


def as_on_a_device(learner: AnyUpdater) -> LateEvents:
    """The ways that an updater takes only where it computes on a GPU; the ends of its copies, of which none comes by itself."""
    events = LateEvents()
    learner.optimizer._skips_on_device = True
    learner._divergence, learner._early_end = LateNumber(CPU, events), LateNumber(CPU, events)
    return events


def test_the_count_finds_what_it_looks_for() -> None:
    with Waits() as waits:
        number = torch.ones(3).sum()
        float(number), bool(number > 0), number.item(), torch.ones(3)[torch.ones(3) > 0]
    assert len(waits.found) >= 4


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(
    ("make", "changes"),
    [
        (parameters, {"target_update_tau": 0.1}),
        (parameters, {"evaluation_weights_decay": 0.9}),
        *((of_unrolls, each) for each in UNROLLS),
    ],
)
def test_nothing_is_waited_for(optimizer: str, make: Callable[..., Any], changes: dict[str, Any]) -> None:
    learner, data = ready(make(optimizer=optimizer, **changes))
    events = as_on_a_device(learner)
    with Waits() as waits:
        for batch in data:
            list(learner.updates_from(batch, 0))
    assert waits.found == []
    if changes.get("target_kl"):  # each update's counts, and the host is not far ahead of the oldest
        assert len(events.made) == learner.updates
    else:
        assert len(events.made) == (len(data) if learner.learning_rate.target > 0.0 else 0)
        assert not any(event.waited_for for event in events.made), "a batch's divergence counts once it has arrived"


@contextmanager
def waiting_is_an_error() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@needs_cuda
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_on_a_gpu_torch_itself_finds_no_wait(optimizer: str) -> None:
    for params in (parameters(optimizer=optimizer), *(of_unrolls(optimizer=optimizer, **each) for each in UNROLLS)):
        learner, data = ready(params, CUDA)
        list(learner.updates_from(data[0], 0))
        with waiting_is_an_error():
            for batch in data[1:]:
                list(learner.updates_from(batch, 0))
