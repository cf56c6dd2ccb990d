"""Running statistics: against numpy, once a batch, one normaliser a version, exactly resumed, and clean whatever comes in."""

import copy
import dataclasses
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rljob.algorithms.batches import TransitionBatch, UnrollBatch
from rljob.algorithms.compute import Compute
from rljob.algorithms.registry import algorithm
from rljob.algorithms.trunk import STATISTICS
from rljob.api import EnvironmentParameters
from rljob.api.learner_status import Verdict
from rljob.checkpoints import store as checkpoint
from rljob.checkpoints.saved_policy import load_policy
from rljob.envs import describe_environment
from rljob.envs.spec import ActionLeaf, EnvironmentSpec, Leaf
from rljob.learner import state
from rljob.learner.loop import Learner
from rljob.learner.normalizer import LEAST_OF_OBSERVATIONS, LEAST_OF_RETURNS, Normalizer, RunningMoments
from rljob.learner.optim.updater import AnyUpdater
from rljob.policy.export import export
from rljob.policy.trained import load

from tests.unit.learner import learner_builders
from tests.unit.learner.learner_builders import (
    CPU,
    algorithm_of,
    assert_equal,
    parameters as of_apex,
    unroll_batches,
    unroll_parameters,
    unrolls_with_ends,
)
from tests.unit.learner.optim.test_no_waiting import Waits
from tests.unit.learner.optim.test_unroll_updater import learner, ready

SQUASHED = EnvironmentParameters(actions="Squashed")
PENDULUM = describe_environment("Pendulum-v1", SQUASHED)
NEITHER = {"normalize_observations": False, "normalize_returns": False}


def parameters(kind: str = "IMPALA", **changes: Any) -> Any:
    """Small ones that normalise both."""
    both = {"normalize_observations": True, "normalize_returns": True, **changes}
    if kind == "SAC":
        return algorithm("SAC").parameters.model_validate({"batch_size": 32, "hidden_units": 8, **both})
    return unroll_parameters(kind, **both)


def updater(params: Any, **changes: Any) -> AnyUpdater:
    of_sac = {"spec": PENDULUM, "env_params": SQUASHED} if algorithm_of(params).name == "SAC" else {}
    return learner_builders.updater(params, **{**of_sac, **changes})


def counted(one: AnyUpdater, *batches: Any) -> AnyUpdater:
    """``one``, whose networks have what was counted of ``batches``."""
    for batch in batches:
        one.normalizer.take(batch)
    one.normalizer.apply(one.networks().values())
    return one


def shifted(params: Any, count: int) -> list[Any]:
    """Batches of odd observations: of transitions, or of unrolls with some ends of episodes."""
    random = torch.Generator().manual_seed(3)
    if algorithm_of(params).name == "SAC":
        example = algorithm("SAC").example(PENDULUM, params, updater(params).online, CPU)
        pairs = [torch.randn(2, *example.observation.shape, generator=random) for _ in range(count)]
        place, size = torch.tensor([1e3, -3.0, 0.0]), torch.tensor([20.0, 1.0, 5e-2])
        return [example._replace(observation=place + size * a, next_observation=7.0 + b, noise=None) for a, b in pairs]
    place, size = torch.tensor([1e4, -3.0, 0.0, 5e-2]), torch.tensor([1e3, 1.0, 20.0, 0.5])
    found = []
    for batch in unroll_batches(params, count):
        ends = torch.rand(batch.discount.shape, generator=random) < 0.1
        final = torch.randn(batch.discount.shape, generator=random) * ends
        moved = batch._replace(observation=place + size * batch.observation, reward=30.0 * batch.reward)
        found.append(moved._replace(discount=batch.discount * ~ends, final_value=final))
    return found


def observed(batches: Sequence[Any]) -> np.ndarray:
    """What is counted, as numpy sees it: each observation that was acted in, once."""
    seen = [batch.observation.numpy() for batch in batches]
    replayed = isinstance(batches[0], TransitionBatch)
    rows = [each[:, 0] if replayed else each[:, :-1, 0].reshape(-1, each.shape[-1]) for each in seen]
    return np.concatenate(rows).astype(np.float64)


def returns(batch: UnrollBatch) -> np.ndarray:
    """Discounted rewards from each step of each unroll on."""
    reward, discount = (each.numpy().astype(np.float64) for each in (batch.reward, batch.discount))
    ahead, found = np.zeros(reward.shape[1]), []
    for step in reversed(range(len(reward))):
        ahead = reward[step] + discount[step] * ahead
        found.append(ahead)
    return np.concatenate(found)


def buffers(network: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in network.state_dict().items() if name in STATISTICS}


def assert_those_of(moments: dict[str, torch.Tensor], rows: np.ndarray, rtol: float = 1e-9) -> None:
    """The mean and the variance of ``rows``."""
    assert float(moments["count"]) == len(rows)
    np.testing.assert_allclose(moments["mean"].numpy(), rows.mean(axis=0), rtol=rtol)
    np.testing.assert_allclose((moments["m2"] / moments["count"]).numpy(), rows.var(axis=0), rtol=rtol)


# ------------------------------------------------------------------------------------------------------------ the numbers


def test_of_replayed_transitions_they_are_those_of_what_was_acted_in() -> None:
    params = parameters("SAC", normalize_returns=False, evaluation_weights_decay=0.9)
    own, batches = updater(params), shifted(params, 5)
    own.copy_online()
    for batch in batches:
        list(own.updates_from(batch, 0))
    counted(own, *batches)
    rows = observed(batches)
    assert_those_of(own.normalizer.state(), rows)
    names = ("policy.observation_mean", "observation_mean")
    places = {name: network.state_dict() for name, network in own.networks().items()}
    means = [state[name] for state in places.values() for name in names if name in state]
    assert len(means) == 5  # two of what learns, two of its target, and that of the policy that is judged
    for mean in means:
        np.testing.assert_allclose(mean.numpy(), rows.mean(0), rtol=1e-6)
    policy: Any = own.acting
    seen = policy.seen(torch.from_numpy(rows.astype(np.float32)).unsqueeze(1))
    torch.testing.assert_close(seen.mean(0), torch.zeros(3), rtol=0.0, atol=1e-3)
    torch.testing.assert_close(seen.std(0), torch.ones(3), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("actors", [1, 4])
def test_they_are_numpy_s_whoever_sends(actors: int) -> None:
    """Four actors send the same unrolls in an order of their own, so that other batches are made of them."""
    params = parameters(batch_size=8)
    whole = shifted(parameters(batch_size=8 * 40), 1)[0]
    order = torch.arange(8 * 40).reshape(actors, -1).T.flatten()
    batches = [whole.unrolls(order[start : start + 8]) for start in range(0, 8 * 40, 8)]
    one = counted(updater(params), *batches)
    seen, back = observed(batches), np.concatenate([returns(batch) for batch in batches])
    moments = one.normalizer.state()
    assert_those_of({name: each if name == "count" else each[:-1] for name, each in moments.items()}, seen)
    own = {name: each if name == "count" else each[-1] for name, each in moments.items()}
    assert_those_of(own, back, rtol=1e-5)  # returns are added up in float32
    found = buffers(one.online)
    np.testing.assert_allclose(found["observation_mean"].numpy(), seen.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(found["observation_scale"].numpy(), 1.0 / seen.std(axis=0), rtol=1e-6)
    np.testing.assert_allclose(float(found["return_scale"]), back.std(), rtol=1e-5)


def test_it_goes_on_counting_where_float32_would_stop() -> None:
    moments = RunningMoments(1, CPU)
    for mean in (0.0, 1.0):
        moments.merge(torch.tensor([[mean]]).double().expand(1 << 25, 1))
    moments.merge(torch.tensor([[0.5]]).double())
    assert float(moments.count) == 2**26 + 1
    assert float(moments.mean) == pytest.approx(0.5, abs=1e-12)
    assert float(moments.deviation(1e-6)) == pytest.approx(0.5, rel=1e-7)


@pytest.mark.parametrize("place", ["observation", "reward"])
@pytest.mark.parametrize("odd", [float("nan"), float("inf"), float("-inf")])
def test_a_batch_with_a_number_that_is_not_finite_is_left_out(place: str, odd: float) -> None:
    params = parameters()
    good, bad, more = shifted(params, 3)
    poisoned = getattr(bad, place).clone()
    poisoned[(0,) * poisoned.dim()] = odd
    bad = bad._replace(**{place: poisoned, "discount": torch.ones_like(bad.discount)})
    one, clean = counted(updater(params), bad), updater(params)
    assert_equal(buffers(one.online), buffers(clean.online))  # nothing has counted yet
    counted(one, good, bad, more), counted(clean, good, more)
    assert int(one.normalizer.left_out) == 2
    assert_equal(one.normalizer.state(), clean.normalizer.state())


ODD: dict[str, Callable[[UnrollBatch], dict[str, torch.Tensor]]] = {
    "nothing is rewarded": lambda batch: {"reward": 0.0 * batch.reward},
    "nor is an end worth anything": lambda batch: {"reward": 0.0 * batch.reward, "final_value": 0.0 * batch.reward},
    "a million": lambda batch: {"reward": 1e6 * (batch.reward + 1.0)},
    "huge": lambda batch: {"observation": 1e30 * (batch.observation.float() + 1.0)},
    "huge now and then": lambda batch: {"observation": torch.where(batch.observation > 1.0, 3e38, batch.observation)},
    "nothing changes": lambda batch: {"observation": 0.0 * batch.observation + 1.0, "reward": 0.0 * batch.reward},
}


@pytest.mark.parametrize("kind", ["IMPALA", "PPO"])
@pytest.mark.parametrize("change", ODD.values(), ids=ODD.keys())
def test_numbers_of_any_size_are_learned_from(
    kind: str, change: Callable[[UnrollBatch], dict[str, torch.Tensor]]
) -> None:
    params = parameters(kind)
    one = updater(params)
    for batch in (unrolls_with_ends(params, seed=seed) for seed in range(4)):
        batch = batch._replace(**change(batch))
        for _, figures in counted(one, batch).updates_from(batch, 0):
            assert figures.isfinite().all()
    assert all(each.isfinite().all() for each in (*one.normalizer.state().values(), *one.online.state_dict().values()))
    assert int(one.normalizer.left_out) == 0


def test_values_that_drift_do_not_drive_the_deviation() -> None:
    """Behind an end in time lies an observation that no step begins with, and what is expected there is what nothing corrects."""
    params = parameters(gamma=1.0)
    (batch,) = unroll_batches(params, 1)
    found = []
    for value in (0.0, 1e6):
        one = updater(params)
        one.online.value.bias.data.fill_(value)  # type: ignore[union-attr,operator]
        found.append(counted(one, batch._replace(final_value=torch.full_like(batch.reward, value))).normalizer.state())
    assert_equal(*found)


@pytest.mark.parametrize("kind", ["PPO", "IMPALA", "SAC"])
@pytest.mark.parametrize(("seen", "paid"), [(1e-6, 1.0), (1e6, 1.0), (1.0, 1e-6), (1.0, 1e6)])
def test_no_unit_of_observations_or_rewards_changes_what_is_learned(kind: str, seen: float, paid: float) -> None:
    first, *others = (said_after(kind, *units) for units in ((1.0, 1.0), (seen, paid)))
    assert first.std() > 0.03, "something is learned"
    torch.testing.assert_close(first, *others, rtol=0.02, atol=0.02)


def said_after(kind: str, seen: float, paid: float) -> torch.Tensor:
    """What the policy says that has learned from the same batches, in units of ``seen`` and ``paid``."""
    of_sac = kind == "SAC"
    params = parameters(kind, learning_rate=1e-2, precision="FP32", **({} if of_sac else {"optimizer": "Adam"}))
    one, reward = updater(params), "n_step_return" if of_sac else "reward"
    random = torch.Generator().manual_seed(2)
    batches = []
    for batch in shifted(params, 8) if of_sac else unroll_batches(params, 8):
        paid_there = paid * (1.0 + torch.randn(getattr(batch, reward).shape, generator=random))
        units = {name: seen * getattr(batch, name) for name in ("observation", "next_observation")[: 1 + of_sac]}
        batches.append(batch._replace(**units, **{reward: paid_there}))
    counted(one, batches[0])
    torch.manual_seed(1)
    for batch in batches:
        one.normalizer.take(batch)
        list(one.updates_from(batch, 0))
        one.normalizer.apply(one.networks().values())
    observation = batches[0].observation if of_sac else batches[0].observation[:, 0]
    method: Any = algorithm(kind)
    outputs = method.infer(one.acting, observation, torch.zeros(len(observation), 2, 0)).outputs
    return outputs if of_sac else outputs[:, :-1]  # the last is a value


def test_what_never_changes_is_divided_by_a_share_of_it() -> None:
    params = parameters()
    (batch,) = unroll_batches(params, 1)
    still = batch._replace(observation=torch.full_like(batch.observation, 5.0), reward=torch.zeros_like(batch.reward))
    one = updater(params)
    for paid in (0.0, 0.0, 3.0):
        each = still._replace(reward=still.reward + paid, discount=torch.zeros_like(still.reward))
        for _, figures in counted(one, each).updates_from(each, 0):
            assert figures.isfinite().all()
        assert paid or float(buffers(one.online)["return_scale"]) == 1.0, "no reward has told its unit"
    found = buffers(one.online)
    assert found["observation_mean"].tolist() == [5.0] * 4
    assert found["observation_scale"].tolist() == [pytest.approx(1 / (5.0 * LEAST_OF_OBSERVATIONS))] * 4
    alone = counted(updater(params), each)
    assert float(buffers(alone.online)["return_scale"]) == pytest.approx(3.0 * LEAST_OF_RETURNS)


def test_whole_numbers_beside_floats_are_not_touched() -> None:
    leaves = (
        Leaf(("count",), "vector", (2,), "int64", scale=1 / 9),
        Leaf(("joints",), "vector", (3,), "float64", offset=2),
    )
    spec = EnvironmentSpec("Test", leaves, (ActionLeaf((), "Discrete", (), "int64", (2,), (0,)),), 1, 1, "f")
    one = counted(updater(parameters(), spec=spec), *unroll_batches(parameters(), 1, spec))
    mean, scale = (buffers(one.online)[name].tolist() for name in STATISTICS[:2])
    assert (mean[:2], scale[:2]) == ([0.0, 0.0], [1.0, 1.0])
    assert not {0.0, 1.0} & {*mean[2:], *scale[2:]}


def test_a_job_that_normalises_nothing_counts_nothing() -> None:
    assert updater(parameters(**NEITHER)).normalizer is None
    assert updater(parameters(normalize_observations=False)).normalizer.state()["mean"].shape == (1,)


# ------------------------------------------------------------------------------------------------- networks that follow


def test_followers_and_copies_of_16_bits_have_the_buffers_and_no_mixture() -> None:
    params = parameters(evaluation_weights_decay=0.9)
    one = updater(params, plan=Compute("bf16"))
    for batch in shifted(params, 3):
        list(counted(one, batch).updates_from(batch, 0))
        for follower in (one.evaluation, one._computed.module):
            assert_equal(buffers(follower), buffers(one.online))


@pytest.mark.parametrize(
    "target", [{"target_update_interval": 1000}, {"target_update_tau": 0.01, "target_update_interval": 0}]
)
def test_a_target_network_has_them(target: dict[str, Any]) -> None:
    """Ape-X DQN normalises nothing; its updater leaves the buffers to who owns them."""
    one: Any = updater(of_apex(**target))
    for network in (one.online, one.target):
        network.normalized = network.vectors
        network.register_buffer("observation_mean", torch.zeros(4))
        network.register_buffer("observation_scale", torch.ones(4))
    one.normalizer = Normalizer(one.online)
    counted(one, unroll_batches(parameters(), 1)[0])
    assert (one.online.observation_scale != 1.0).all()
    assert_equal(buffers(one.target), buffers(one.online))


def test_nobody_waits_for_the_device() -> None:
    one, data = updater(parameters()), shifted(parameters(), 2)
    with Waits() as waits:
        counted(one, *data)
    assert waits.found == []


# --------------------------------------------------------------------------------------------------------------- the loop


def learn(one: Learner, params: Any, *batches: UnrollBatch) -> None:
    for batch in batches:
        one._learn(ready(params, batch))


def published(one: Learner) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in one._server.latest.state().items() if name in STATISTICS}


@pytest.mark.parametrize("batches_a_version", [1, 2])
def test_all_updates_from_a_batch_see_one_normaliser_and_a_version_brings_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches_a_version: int
) -> None:
    """An actor with a version normalises as the learner does until the next one."""
    params = parameters(epochs=3, minibatches=2, publish_interval=6 * batches_a_version)
    batches = shifted(params, 4)
    with learner(tmp_path, "Fail", params) as one:
        seen: list[dict[str, torch.Tensor]] = []
        own = one._updater.learn
        monkeypatch.setattr(
            one._updater, "learn", lambda *given: seen.append(buffers(one._updater.online)) or own(*given)
        )
        for number, batch in enumerate(batches, start=1):
            before = buffers(one._updater.online)
            learn(one, params, batch)
            assert (len(seen), one.counters.version) == (6 * number, number // batches_a_version)
            for each in seen[-6:]:
                assert_equal(each, before)
            after, due = buffers(one._updater.online), number % batches_a_version == 0
            assert [torch.equal(after[name], before[name]) for name in STATISTICS] == [not due] * len(STATISTICS)
            if due:
                assert_equal(published(one), after)
                mean = after["observation_mean"].numpy()
                np.testing.assert_allclose(mean, observed(batches[:number]).mean(axis=0), rtol=1e-6)
        assert float(one._updater.normalizer.state()["count"]) == 4 * 20, "each batch counts once, not once an update"


def test_an_input_is_centred_beside_returns_that_are_normalised(tmp_path: Path) -> None:
    """It was not, silently: the statistics took the place of the mean frame, and PPO on Pong learned from frames of 0 to 10."""
    params = parameters(normalize_observations=False)
    with learner(tmp_path, "Fail", params) as one:
        params = params.updated(batch_size=160)
        one._updater = updater(params, env_params=EnvironmentParameters(centre_input=True))
        one._config = dataclasses.replace(one._config, centred=True)
        batches = shifted(params, 4)  # three have the 2,048 frames that a mean is of
        coming = iter([ready(params, batch) for batch in batches])
        one._next = lambda: next(coming)  # type: ignore[method-assign]
        assert one._prepare(threading.Event()).batch is batches[3]  # type: ignore[union-attr]
        assert one.counters.version == 1
        rows = observed(batches[:3])
        np.testing.assert_allclose(one._updater.online.mean.numpy(), rows.mean(axis=0), rtol=1e-4)
        assert float(one._updater.normalizer.state()["count"]) == len(rows)
        assert float(one._updater.online.return_scale) != 1.0  # type: ignore[arg-type]


def test_a_batch_that_is_left_out_is_told(tmp_path: Path) -> None:
    params = parameters()
    with learner(tmp_path, "Ignore", params) as one:
        good, bad = shifted(params, 2)
        learn(one, params, good)
        before = published(one)
        learn(one, params, bad._replace(reward=bad.reward * torch.nan))
        assert one.status().left_out_batches == 1
        assert_equal(published(one), before)


# ------------------------------------------------------------------------------------------------------------ checkpoints


@pytest.mark.parametrize("interval", [1, 2])
def test_after_a_checkpoint_it_goes_on_to_the_bit(tmp_path: Path, interval: int) -> None:
    """With an interval of 2 the checkpoint has statistics that no version has yet."""
    params = parameters(publish_interval=interval, evaluation_weights_decay=0.9)
    batches = shifted(params, 6)
    with learner(tmp_path, "Fail", params) as one, learner(tmp_path, "Fail", params) as other:
        learn(one, params, *batches[:3])
        one._save(wait=True)
        learn(one, params, *batches[3:])
        found = checkpoint.latest_valid(tmp_path)
        assert found.tensors["statistics.m2"].dtype == torch.float64
        other.resume(found)
        learn(other, params, *batches[3:])
        assert_equal(published(other), published(one))
        assert_equal(state.statistics(other._updater), state.statistics(one._updater))
        for name, network in other._updater.networks().items():
            assert_equal(network.state_dict(), one._updater.networks()[name].state_dict())


def test_a_run_from_another_s_checkpoint_takes_them_and_from_its_best_too(tmp_path: Path) -> None:
    params = parameters()
    with learner(tmp_path, "Fail", params) as one:
        learn(one, params, *shifted(params, 1))
        one._save(wait=True)
        newest = checkpoint.latest_valid(tmp_path)
        one.verdicts.add(Verdict(version=1, mean=5.0, episodes=2))
        one._save_best(one._server.latest.state())
        one._saver.finish()
        for number, found in enumerate((newest, checkpoint.read(tmp_path / checkpoint.BEST))):
            with learner(tmp_path / f"other-{number}", "Fail", params) as other:
                other.start_from(found)
                assert_equal(published(other), published(one))
                assert_equal(state.statistics(other._updater), state.statistics(one._updater))


@pytest.mark.parametrize("kind", ["IMPALA", "SAC"])
def test_they_go_on_from_a_checkpoint_and_begin_anew_from_one_of_before(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    params = parameters(kind)
    batches = shifted(params, 4)
    first, second, third = counted(updater(params), *batches[:2]), updater(params), updater(params)
    path, _ = checkpoint.write(tmp_path, "one", state.capture(first), {})
    state.restore(second, checkpoint.read(path), 2)
    for one in (first, second):
        counted(one, *batches[2:])
    for name, network in first.networks().items():
        assert_equal(network.state_dict(), second.networks()[name].state_dict())
    without = updater(params.updated(**NEITHER), seed=1)
    path, _ = checkpoint.write(tmp_path, "before", state.capture(without), {})
    new = buffers(third.acting)
    state.restore(third, checkpoint.read(path), 0)
    assert "has no running statistics for this job's normalisation: they start from zero" in caplog.text
    assert_equal(third.acting.state_dict(), {**without.acting.state_dict(), **new})
    assert float(third.normalizer.state()["count"]) == 0.0


def test_a_loaded_policy_and_its_export_use_them_and_never_change_them(tmp_path: Path) -> None:
    """``export`` itself compares what it wrote with the policy, on random numbers: this environment can't be made."""
    params = parameters(evaluation_weights_decay=0.5)
    with learner(tmp_path / "run", "Fail", params) as one:
        learn(one, params, *shifted(params, 2))
        one._save(wait=True)
        expected = published(one)
    policy = load(os.fspath(tmp_path / "run"))
    plain = copy.deepcopy(load_policy(tmp_path / "run").module)
    plain.observation_mean.zero_()  # type: ignore[union-attr,operator]
    plain.observation_scale.fill_(1.0)  # type: ignore[union-attr,operator]
    observations = shifted(params, 1)[0].observation[:, 0].numpy()
    method, memory = algorithm("IMPALA"), np.zeros((4, 2, 0), np.float32)
    wanted, _ = policy.preferences(observations, memory)
    assert not np.allclose(wanted, method.infer(plain, observations, memory).outputs[:, :-1])  # type: ignore[arg-type]
    for _ in range(3):
        policy.act(observations)
    assert np.array_equal(policy.preferences(observations, memory)[0], wanted)
    assert_equal(buffers(policy.stored.module), expected)
    for form in ("torchscript", "safetensors"):
        assert export(policy, form, tmp_path / form).difference < 1e-5
