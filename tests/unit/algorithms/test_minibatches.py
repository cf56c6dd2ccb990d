"""The parts of a batch: single steps with their own targets, whole unrolls with their time together."""

import pytest
import torch
from rljob.algorithms.batches import UnrollBatch, minibatches_of_steps, minibatches_of_unrolls

STEPS, UNROLLS = 5, 4
NUMBERS = torch.arange(STEPS * UNROLLS).view(STEPS, UNROLLS)
"""A name for every step: t * B + b."""


def batch(*, targets: bool = True) -> UnrollBatch:
    """A batch of random numbers; the actions name the steps."""
    random = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random)

    return UnrollBatch(
        observation={"one": normal(UNROLLS, STEPS + 1, 1, 4), "two": normal(UNROLLS, STEPS + 1, 2, 3, 3)},
        action=NUMBERS,
        reward=normal(STEPS, UNROLLS),
        discount=torch.full((STEPS, UNROLLS), 0.9),
        log_prob=-normal(STEPS, UNROLLS).abs(),
        final_value=normal(STEPS, UNROLLS),
        ended=torch.zeros(STEPS, UNROLLS, dtype=torch.uint8),
        state=normal(UNROLLS, 2, 3),
        advantage=normal(STEPS, UNROLLS) if targets else None,
        value_target=normal(STEPS, UNROLLS) if targets else None,
        steps=torch.tensor(70.0),
        control=normal(STEPS, UNROLLS, 2),
    )


def test_passes_over_single_steps_visit_each_once_with_its_own_columns() -> None:
    given = batch()
    torch.manual_seed(0)
    found = list(minibatches_of_steps(given, 2, 4))
    assert [len(part.action) for part in found] == [5] * 8
    for epoch in (found[:4], found[4:]):
        assert sorted(int(a) for part in epoch for a in part.action) == NUMBERS.flatten().tolist()
    assert found[0].action.tolist() != found[4].action.tolist()
    for part in found:
        assert (part.single_steps, part.steps) == (True, given.steps)
        for row, name in enumerate(part.action.tolist()):
            t, b = divmod(name, UNROLLS)
            for column in ("one", "two"):
                assert torch.equal(part.observation[column][row], given.observation[column][b, t])
            for column in ("advantage", "value_target", "log_prob", "control"):
                assert torch.equal(getattr(part, column)[row], getattr(given, column)[t, b])


def test_what_does_not_divide_evenly_is_left_out_of_a_pass() -> None:
    found = list(minibatches_of_steps(batch(), 1, 3))
    assert [len(part.action) for part in found] == [6, 6, 6]
    assert len({int(a) for part in found for a in part.action}) == 18


def test_single_steps_need_targets() -> None:
    with pytest.raises(ValueError, match=r"single steps need advantage \[T, B\] of the batch, \[5, 4\] here, got None"):
        next(minibatches_of_steps(batch(targets=False), 1, 2))


@pytest.mark.parametrize("targets", [True, False])
def test_passes_over_unrolls_keep_time_together(targets: bool) -> None:
    given = batch(targets=targets)
    found = list(minibatches_of_unrolls(given, 2, 2))
    assert len(found) == 4
    for epoch in (found[:2], found[2:]):
        assert sorted(int(a) for part in epoch for a in part.action[0]) == list(range(UNROLLS))
    for part in found:
        assert not part.single_steps
        assert (part.advantage is None) != targets
        for column, b in enumerate(part.action[0].tolist()):
            for name in ("action", "reward", "discount", "log_prob", "final_value", "advantage", "value_target"):
                values = getattr(part, name)
                assert values is None or torch.equal(values[:, column], getattr(given, name)[:, b])
            assert torch.equal(part.observation["two"][column], given.observation["two"][b])
            assert torch.equal(part.state[column], given.state[b])


def test_one_minibatch_is_the_batch_itself() -> None:
    given = batch()
    assert all(part is given for part in minibatches_of_unrolls(given, 3, 1))
