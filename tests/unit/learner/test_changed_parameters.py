"""Which hyper-parameters a suspended job may change: a learner must be able to go on from the checkpoint with the new value.

The first-in-first-out table: order, bounds, and a conservation law that holds after every step.
"""

from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from pydantic import BaseModel
from rljob.api import ApeXDQNParameters, ImpalaParameters, PPOParameters
from rljob.api.fields import literal_values, mark_in, marker_of
from rljob.api.mutability import Mutability
from rljob.api.parameters import OF_THIS_NETWORK, ParameterSet
from rljob.api.types import Integer, Real, WordOrFactory
from rljob.checkpoints import store as checkpoint
from rljob.checkpoints.store import CheckpointProblem
from rljob.envs import EnvironmentSpec
from rljob.experience import Segment, unroll_layout
from rljob.learner import state
from rljob.learner.optim.updater import AnyUpdater
from rljob.learner.unroll_order import FifoTable
from rljob.observation import frames

from tests.support.experience import make_unroll
from tests.unit.learner.learner_builders import IMAGES, SPEC, batches_of, updater

MODELS: dict[str, type[ParameterSet]] = {"ApeXDQN": ApeXDQNParameters, "IMPALA": ImpalaParameters, "PPO": PPOParameters}
BASE: dict[str, dict[str, Any]] = {
    "ApeXDQN": {"batch_size": 16, "hidden_units": 16, "network": "MLP", "optimizer": "RMSProp"},
    "IMPALA": {"batch_size": 4, "unroll_length": 4, "hidden_units": 16, "network": "MLP", "recurrent": "LSTM", "lstm_units": 4,
               "minibatches": 2, "optimizer": "RMSProp"},
    "PPO": {"batch_size": 4, "unroll_length": 4, "hidden_units": 16, "network": "MLP", "recurrent": "LSTM", "lstm_units": 4,
            "minibatches": 2, "optimizer": "RMSProp"},
}  # fmt: skip
BESIDE: dict[str, dict[str, Any]] = {
    "learning_rate": {"learning_rate_final": 1e-6, "learning_rate_decay_steps": 100},
    "learning_rate_final": {"learning_rate_decay_steps": 100},
    "rho_clip": {"c_clip": 0.25},
    "separate_critic": {"recurrent": "None", "separate_critic": True},
}
"""What a value needs beside it to be allowed."""


def other(model: type[BaseModel], name: str, value: Any) -> Any:
    """Another value of a parameter that is allowed; of several that stand together, another of each."""
    if isinstance(value, BaseModel):
        inner = type(value)
        return value.model_copy(update={each: other(inner, each, getattr(value, each)) for each in inner.model_fields})
    field = model.model_fields[name]
    marker = marker_of(field)
    words = marker.words if isinstance(marker, WordOrFactory) else literal_values(field)
    if words:
        return next(word for word in words if word not in (value, "Nature", "Deep"))  # those are for 84x84
    if isinstance(value, bool) or (value is None and not isinstance(marker, Real)):
        return not value
    if isinstance(marker, Integer):
        larger = value + 1 if value < 2 else value * 2
        return larger if larger <= marker.high else value - 1
    assert isinstance(marker, Real), name
    return value / 2 if value else 0.25


def trained(updater: AnyUpdater, params: Any, spec: EnvironmentSpec) -> None:
    """Two more batches."""
    for batch in batches_of(params, 2, spec):
        list(updater.updates_from(batch, 0))
    assert all(torch.isfinite(weight).all() for weight in updater.online.parameters())


def gone_on(name: str, field: str, folder: Path) -> None:
    """Train, save, change ``field``, restore, train."""
    spec = IMAGES if field == "network" else SPEC  # an MLP is the only network for vectors
    base = MODELS[name].model_validate({**BASE[name], **BESIDE.get(field, {})})
    changed = base.updated(**{field: other(MODELS[name], field, getattr(base, field))})
    before = updater(base, spec)
    trained(before, base, spec)
    path, _ = checkpoint.write(folder, "step-2", state.capture(before), {})
    after = updater(changed, spec)
    state.restore(after, checkpoint.read(path), before.updates)
    trained(after, changed, spec)


FIELDS = [(name, field) for name, model in MODELS.items() for field in model.model_fields]
MARKED = [(name, field) for name, field in FIELDS if mark_in(MODELS[name].model_fields[field], Mutability) is not None]


OF_THE_USERS_NETWORK = "network_parameters"
"""What they mean is the user's: a learner tells whether a checkpoint fits the network that they make (`own_network`)."""


@pytest.mark.parametrize(
    ("name", "field"), [each for each in FIELDS if each not in MARKED and each[1] != OF_THE_USERS_NETWORK]
)
def test_what_may_change_leaves_the_checkpoint_usable(name: str, field: str, tmp_path: Path) -> None:
    gone_on(name, field, tmp_path)


@pytest.mark.parametrize(("name", "field"), MARKED)
def test_what_never_changes_would_not_have(name: str, field: str, tmp_path: Path) -> None:
    mark = mark_in(MODELS[name].model_fields[field], Mutability)
    if mark.why != OF_THIS_NETWORK:
        pytest.skip(f"it is about more than the checkpoint: {mark.why}")
    with pytest.raises(CheckpointProblem):
        gone_on(name, field, tmp_path)


LAYOUT = unroll_layout(3, frames((2,), np.float32))
RAW: Any = SimpleNamespace()


def unroll(number: int) -> Segment:
    return make_unroll("actor-0", number, LAYOUT)


@settings(max_examples=200)
@given(
    drops=st.booleans(),
    actions=st.lists(st.tuples(st.sampled_from(["insert", "take", "discard"]), st.integers(0, 4)), max_size=40),
)
def test_what_comes_in_is_taken_in_order_or_dropped_for_a_reason(drops: bool, actions: list[tuple[str, int]]) -> None:
    table = FifoTable(LAYOUT, 6, drops_oldest=drops)
    model: deque[int] = deque()
    number = 0
    for action, count in actions:
        if action == "insert":
            allowed = count if drops else min(count, 6 - len(model))
            assert drops or table.can_insert(allowed * 3)
            assert drops or allowed == count or not table.can_insert((allowed + 1) * 3)
            assert table.insert([(unroll(number + i), RAW) for i in range(allowed)]) == []
            model.extend(range(number, number + allowed))
            number += allowed
            while len(model) > 6:
                model.popleft()
        elif action == "take" and count <= len(model):
            assert [each.sequence for each in table.take(count)] == [model.popleft() for _ in range(count)]
        elif action == "discard":
            gone = [each for each in model if each % 5 == count]
            table.discard(lambda each, c=count: "odd" if each.sequence % 5 == c else None)
            model = deque(each for each in model if each not in gone)
        assert len(table) == len(model)
        assert table.accepted == number == table.taken + table.dropped.total() + len(table)
        assert table.head - table.oldest == len(table)
    assert set(table.dropped) <= ({"odd", "overflow"} if drops else {"odd"})
