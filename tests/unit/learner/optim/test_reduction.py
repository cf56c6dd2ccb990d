"""Two processes with a part of every batch learn what one learns from the whole of it."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from rljob.api import SACParameters
from rljob.learner import state
from rljob.learner.ranks import Ranks
from torch.utils._pytree import tree_map_only

from tests.support.rank import answers
from tests.unit.algorithms import test_sac as sac
from tests.unit.learner.learner_builders import batches, parameters, unroll_parameters, unrolls_with_ends, updater

LONG = 100
TINY = {"learning_rate": 1e-3, "gradient_clip_norm": 0.5}
CASES: dict[str, Any] = {
    "ApeXDQN": parameters(**TINY, evaluation_weights_decay=0.9),
    "SAC": SACParameters(batch_size=16, hidden_units=16, normalize_observations=True),
    "IMPALA": unroll_parameters(**TINY, target_policy_kl=1e-3),
    "IMPALA, summed": unroll_parameters(**TINY, loss_reduction="Sum", recurrent="LSTM", lstm_units=3),
    "PPO": unroll_parameters("PPO", **TINY, epochs=2, minibatches=1, target_kl=0.05, normalize_returns=True),
}
"""By name, parameters. Batches are parted unevenly, so that their masks, weights and ends are uneven, too."""


def learner(case: str) -> Any:
    params = CASES[case]
    return sac.updater(params) if case == "SAC" else updater(params)


def batch(case: str, number: int, rows: slice) -> Any:
    params = CASES[case]
    if case == "SAC":
        return sac.batch_of(16)._replace(n_step_return=torch.arange(16.0) - number)._rows(rows)
    if case == "ApeXDQN":
        return batches(1, size=16, seed=number)[0]._rows(rows)
    return unrolls_with_ends(params, seed=number).unrolls(slice(rows.start // 4, rows.stop // 4))


@contextmanager
def in_float64() -> Iterator[None]:
    """Networks and losses compute in float64 where they would in float32."""
    to = torch.Tensor.to

    def as_float64(self: torch.Tensor, *given: Any, **named: Any) -> torch.Tensor:
        return to(self, *(torch.float64 if each is torch.float32 else each for each in given), **named)

    torch.set_default_dtype(torch.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        patch.setattr(torch.Tensor, "to", as_float64)
        yield
    torch.set_default_dtype(torch.float32)


def trained(case: str, rows: slice, updates: int, exact: torch.dtype, ranks: Ranks | None = None) -> dict[str, Any]:
    """What an updater holds after so many batches, and what its last update reported. The third is of the last rank alone."""
    with in_float64() if exact is torch.float64 else nullcontext():
        return _trained(case, rows, updates, exact, ranks)


def _trained(case: str, rows: slice, updates: int, exact: torch.dtype, ranks: Ranks | None) -> dict[str, Any]:
    each = learner(case)
    if ranks is not None:
        each.join(ranks)
    figures = torch.zeros(())
    for number in range(updates):
        mine = batch(case, number, rows if number != 2 or ranks is not None else slice(4, 16))
        mine = tree_map_only(torch.Tensor, lambda of: of.to(exact) if of.is_floating_point() else of, mine)
        if ranks is not None:
            ranks.present = number != 2 or ranks.rank == 1
            if not ranks.present:
                mine = tree_map_only(torch.Tensor, lambda of: of * float("nan") if of.is_floating_point() else of, mine)
        if each.normalizer is not None:
            each.normalizer.take(mine)
        for _, reported in each.updates_from(mine, 0):
            figures = reported.clone()
        if each.normalizer is not None:
            each.normalizer.apply(each.networks().values())
    kept = {name: of for name, of in state.capture(each).items() if not name.startswith("random")}
    return {**kept, "figures": figures[:2], "updates": torch.tensor(each.updates)}


def of_a_rank(ranks: Ranks) -> dict[str, Any]:
    rows = slice(0, 4) if ranks.rank == 0 else slice(4, 16)
    found: dict[str, Any] = {}
    for case in CASES:
        found[f"{case} once"] = trained(case, rows, 1, torch.float32, ranks)
        found[f"{case} often"] = trained(case, rows, LONG, torch.float64, ranks)
    ranks.present = True
    each = learner("ApeXDQN")
    each.join(ranks)
    before = [of.clone() for of in each.online.parameters()]
    spoilt = batch("ApeXDQN", 0, rows)
    spoilt = spoilt._replace(weight=spoilt.weight * float("nan")) if ranks.rank == 0 else spoilt
    ((_, figures),) = each.updates_from(spoilt, 0)
    return {
        **found,
        "spoilt": figures[:2].isfinite().any(),
        "moved": not all(map(torch.equal, each.online.parameters(), before)),
    }


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return answers(f"{__name__}:of_a_rank", tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("times", "updates", "exact"), [("once", 1, torch.float32), ("often", LONG, torch.float64)])
def test_two_ranks_learn_what_one_process_does(
    case: str, times: str, updates: int, exact: torch.dtype, both: list[Any]
) -> None:
    expected = trained(case, slice(0, 16), updates, exact)
    for found in both:
        torch.testing.assert_close(found[f"{case} {times}"], expected, rtol=1e-6, atol=1e-6)


def test_a_gradient_that_is_not_finite_moves_no_rank(both: list[Any]) -> None:
    assert [(bool(each["spoilt"]), each["moved"]) for each in both] == [(False, False)] * 2
