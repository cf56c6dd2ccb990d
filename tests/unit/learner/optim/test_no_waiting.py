"""An update asks its device for nothing: where a number would have to be waited for, the host could not run ahead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from rljob.algorithms import algorithm
from rljob.learner.optim.readback import LateNumber
from rljob.learner.optim.updater import AnyUpdater
from torch.utils._python_dispatch import TorchDispatchMode

from tests.support.devices import LateEvents, needs_cuda
from tests.unit.learner.learner_builders import IMAGES, batches, parameters, unroll_batches
from tests.unit.learner.optim.test_precision_parity import made, on

CUDA, CPU = torch.device("cuda"), torch.device("cpu")
WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "unique")
"""Operations whose result, or its shape, the host must know: ``item``, ``float``, ``bool``, ``tolist``, an index by a mask."""
OPTIMIZERS = ("Adam", "RMSProp", "CentredRMSProp")
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


def of_unrolls(device: torch.device, kind: str = "IMPALA", **changes: Any) -> tuple[AnyUpdater, list[Any]]:
    values = {"network": "Compact", "hidden_units": 8, "unroll_length": 4, "batch_size": 4, "gradient_clip_norm": 1.0}
    params = algorithm(kind).parameters.model_validate({**values, **changes})
    return made(kind, params, device), [on(device, batch) for batch in unroll_batches(params, 4, IMAGES)]


def of_transitions(device: torch.device, **changes: Any) -> tuple[AnyUpdater, list[Any]]:
    params = parameters(**changes)
    return made("ApeXDQN", params, device), [on(device, batch) for batch in batches(4, IMAGES)]


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
@pytest.mark.parametrize("changes", [{"target_update_tau": 0.1}, {"evaluation_weights_decay": 0.9}])
def test_transitions(optimizer: str, changes: dict[str, Any]) -> None:
    learner, data = of_transitions(CPU, optimizer=optimizer, **changes)
    as_on_a_device(learner)
    with Waits() as waits:
        for batch in data:
            list(learner.updates_from(batch, 0))
    assert waits.found == []


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("changes", UNROLLS)
def test_unrolls(optimizer: str, changes: dict[str, Any]) -> None:
    learner, data = of_unrolls(CPU, optimizer=optimizer, **changes)
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
    made_of = [
        of_transitions(CUDA, optimizer=optimizer),
        *(of_unrolls(CUDA, optimizer=optimizer, **c) for c in UNROLLS),
    ]
    for learner, data in made_of:
        list(learner.updates_from(data[0], 0))
        with waiting_is_an_error():
            for batch in data[1:]:
                list(learner.updates_from(batch, 0))
