"""Running statistics: against numpy, once a batch, one normaliser a version, exactly resumed, and clean whatever comes in."""

import copy
import dataclasses
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rljob.algorithms.batches import TransitionBatch, UnrollBatch
from rljob.algorithms.compute import Compute
from rljob.algorithms.registry import algorithm
from rljob.algorithms.trunk import STATISTICS
from rljob.api import ApeXDQNParameters, EnvironmentParameters, ImpalaParameters, SACParameters
from rljob.api.learner_status import Verdict
from rljob.checkpoints import store as checkpoint
from rljob.checkpoints.saved_policy import PolicyIdentity, load_policy
from rljob.envs import describe_environment
from rljob.envs.spec import ActionLeaf, EnvironmentSpec, Leaf
from rljob.learner import state
from rljob.learner.loop import Learner
from rljob.learner.normalizer import LEAST_OF_OBSERVATIONS, LEAST_OF_RETURNS, Normalizer, RunningMoments
from rljob.learner.optim.updater import AnyUpdater, TransitionUpdater, make_updater
from rljob.learner.saver import Saver
from rljob.learner.sources import LoopConfig
from rljob.learner.staging import unroll_buffers
from rljob.learner.unroll_queue import ReadyUnrolls, UnrollQueue, UnrollQueueConfig
from rljob.policy.export import export
from rljob.policy.trained import load
from rljob.weights.flat import VersionLog
from rljob.weights.server import WeightServer

from tests.unit.learner.learner_builders import (
    ENV_PARAMS,
    SPEC,
    course,
    parameters as of_apex,
    unroll_batches,
    unrolls_with_ends,
)
from tests.unit.learner.optim.test_no_waiting import Waits

CPU = torch.device("cpu")
SQUASHED = EnvironmentParameters(actions="Squashed")
PENDULUM = describe_environment("Pendulum-v1", SQUASHED)
BOTH = {"normalize_observations": True, "normalize_returns": True}
SHARED = ("network", "hidden_units", "unroll_length", "batch_size", "precision", "learning_rate")
_names = itertools.count()


def parameters(**changes: Any) -> ImpalaParameters:
    values = {
        "network": "MLP", "hidden_units": 8, "unroll_length": 5, "batch_size": 4, "precision": "FP32", "learning_rate": 1e-3,
    }  # fmt: skip
    return ImpalaParameters.model_validate({**values, **BOTH, **changes})


def updater(
    params: ImpalaParameters,
    spec: EnvironmentSpec = SPEC,
    plan: Compute | None = None,
    env_params: EnvironmentParameters = ENV_PARAMS,
) -> AnyUpdater:
    torch.manual_seed(0)
    method = algorithm("IMPALA")
    return make_updater(method, params, method.build(spec, params, env_params).compute(plan or Compute()), CPU)


def counted(one: AnyUpdater, *batches: Any) -> AnyUpdater:
    """``one``, whose networks have what was counted of ``batches``."""
    for batch in batches:
        one.normalizer.take(batch)
    one.normalizer.apply(one.networks().values())
    return one


def shifted(params: ImpalaParameters, count: int) -> list[UnrollBatch]:
    """Batches of odd observations, with some ends of episodes."""
    place, size = torch.tensor([1e4, -3.0, 0.0, 5e-2]), torch.tensor([1e3, 1.0, 20.0, 0.5])
    random = torch.Generator().manual_seed(3)
    found = []
    for batch in unroll_batches(params, count):
        ends = torch.rand(batch.discount.shape, generator=random) < 0.1
        final = torch.randn(batch.discount.shape, generator=random) * ends
        discount = batch.discount * ~ends
        moved = batch._replace(observation=place + size * batch.observation, discount=discount, final_value=final)
        found.append(moved._replace(reward=30.0 * batch.reward))
    return found


def observed(batches: Sequence[UnrollBatch]) -> np.ndarray:
    """What is counted, as numpy sees it: each observation that was acted in, once."""
    return np.concatenate([batch.observation.numpy()[:, :-1, 0].reshape(-1, 4) for batch in batches]).astype(np.float64)


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


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def replayed(params: SACParameters, count: int) -> list[TransitionBatch]:
    """Batches of transitions of odd observations."""
    random = torch.Generator().manual_seed(5)
    example = algorithm("SAC").example(PENDULUM, params, of_sac(params).online, CPU)
    place, size = torch.tensor([1e3, -3.0, 0.0]), torch.tensor([20.0, 1.0, 5e-2])
    return [
        example._replace(observation=place + size * first, next_observation=7.0 + second, noise=None)
        for first, second in [torch.randn(2, *example.observation.shape, generator=random) for _ in range(count)]
    ]


def of_sac(params: SACParameters) -> AnyUpdater:
    torch.manual_seed(0)
    method = algorithm("SAC")
    return make_updater(method, params, method.build_learner(PENDULUM, params, SQUASHED), CPU)


# ------------------------------------------------------------------------------------------------------------ the numbers


def test_of_replayed_transitions_they_are_those_of_what_was_acted_in() -> None:
    params = SACParameters(batch_size=32, hidden_units=8, normalize_observations=True, evaluation_weights_decay=0.9)
    own, batches = of_sac(params), replayed(params, 5)
    own.copy_online()
    for batch in batches:
        list(own.updates_from(batch, 0))
    counted(own, *batches)
    rows = np.concatenate([batch.observation.numpy()[:, 0] for batch in batches]).astype(np.float64)
    found = own.normalizer.state()
    np.testing.assert_allclose(found["mean"].numpy(), rows.mean(0), rtol=1e-9)
    np.testing.assert_allclose((found["m2"] / found["count"]).numpy(), rows.var(0), rtol=1e-9)
    names = ("policy.observation_mean", "observation_mean")
    places = {name: network.state_dict() for name, network in own.networks().items()}
    means = [state[name] for state in places.values() for name in names if name in state]
    assert len(means) == 5  # two of what learns, two of its target, and that of the policy that is judged
    for mean in means:
        np.testing.assert_allclose(mean.numpy(), rows.mean(0), rtol=1e-6)
    policy: Any = own.acting
    seen = policy.seen(torch.from_numpy(rows.astype(np.float32)).unsqueeze(1))
    assert seen.mean(0).abs().max() < 1e-3
    torch.testing.assert_close(seen.std(0), torch.ones(3), rtol=0.02, atol=0.02)


def test_those_of_transitions_go_on_from_a_checkpoint_and_begin_anew_from_one_of_before(tmp_path: Path) -> None:
    params = SACParameters(batch_size=32, hidden_units=8, normalize_observations=True)
    batches = replayed(params, 4)
    first = counted(of_sac(params), *batches[:2])
    path, _ = checkpoint.write(tmp_path, "one", state.capture(first), {})
    second = of_sac(params)
    state.restore(second, checkpoint.read(path), 2)
    for one in (first, second):
        counted(one, *batches[2:])
    for name, network in first.networks().items():
        assert same(network.state_dict(), second.networks()[name].state_dict()), name
    without = of_sac(params.updated(normalize_observations=False))
    path, _ = checkpoint.write(tmp_path, "before", state.capture(without), {})
    third = of_sac(params)
    state.restore(third, checkpoint.read(path), 0)
    assert not third.acting.state_dict()["observation_mean"].any()
    assert float(third.normalizer.state()["count"]) == 0.0


@pytest.mark.parametrize("actors", [1, 4])
def test_they_are_numpy_s_whoever_sends(actors: int) -> None:
    """Four actors send the same unrolls in an order of their own, so that other batches are made of them."""
    params = parameters(batch_size=8)
    whole = shifted(parameters(batch_size=8 * 40), 1)[0]
    order = torch.arange(8 * 40).reshape(actors, -1).T.flatten()
    batches = [whole.unrolls(order[start : start + 8]) for start in range(0, 8 * 40, 8)]
    one = counted(updater(params), *batches)
    moments = one.normalizer.state()
    seen, back = observed(batches), np.concatenate([returns(batch) for batch in batches])
    assert float(moments["count"]) == len(seen) == len(back)
    mean, variance = moments["mean"].numpy(), (moments["m2"] / moments["count"]).numpy()
    np.testing.assert_allclose(mean[:-1], seen.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(variance[:-1], seen.var(axis=0), rtol=1e-9)
    np.testing.assert_allclose(mean[-1], back.mean(), rtol=1e-5)  # returns are added up in float32
    np.testing.assert_allclose(variance[-1], back.var(), rtol=1e-5)
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
    one, clean = counted(updater(params), good, bad, more), counted(updater(params), good, more)
    assert int(one.normalizer.left_out) == 1
    assert same(one.normalizer.state(), clean.normalizer.state())


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
    method = algorithm(kind)
    params = method.parameters.model_validate(parameters(**BOTH).model_dump(include={*SHARED, *BOTH}))
    torch.manual_seed(0)
    one = make_updater(method, params, method.build(SPEC, params, ENV_PARAMS), CPU)
    for batch in (unrolls_with_ends(params, SPEC, seed) for seed in range(4)):
        batch = batch._replace(**change(batch))
        counted(one, batch)
        for _, figures in one.updates_from(batch, 0):
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
        one.normalizer.take(batch._replace(final_value=torch.full_like(batch.reward, value)))
        found.append(one.normalizer.state())
    assert same(*found)


@pytest.mark.parametrize("kind", ["PPO", "IMPALA", "SAC"])
@pytest.mark.parametrize(("seen", "paid"), [(1e-6, 1.0), (1e6, 1.0), (1.0, 1e-6), (1.0, 1e6)])
def test_no_unit_of_observations_or_rewards_changes_what_is_learned(kind: str, seen: float, paid: float) -> None:
    found = []
    for of_seen, of_paid in ((1.0, 1.0), (seen, paid)):
        one, batches = learned_in(kind, of_seen, of_paid)
        method: Any = algorithm(kind)
        observation = batches[0].observation[:, 0] if kind != "SAC" else batches[0].observation
        numbers = method.infer(one.acting, observation, torch.zeros(len(observation), 2, 0)).outputs
        found.append(numbers if kind == "SAC" else numbers[:, :-1])
    assert found[0].std() > 0.03, "something is learned"
    torch.testing.assert_close(*found, rtol=0.02, atol=0.02)


def learned_in(kind: str, seen: float, paid: float) -> tuple[AnyUpdater, Sequence[Any]]:
    """An updater that has learned from the same batches in units of ``seen`` and ``paid``."""
    method: Any = algorithm(kind)
    torch.manual_seed(0)
    if kind == "SAC":
        params = SACParameters(batch_size=32, hidden_units=8, learning_rate=1e-2, precision="FP32", **BOTH)
        one, name = of_sac(params), "n_step_return"
        batches: Sequence[Any] = replayed(params, 8)
    else:
        values = {**parameters(learning_rate=1e-2, optimizer="Adam").model_dump(include={*SHARED, *BOTH, "optimizer"})}
        params = method.parameters.model_validate(values)
        one, name = make_updater(method, params, method.build(SPEC, params, ENV_PARAMS), CPU), "reward"
        batches = unroll_batches(params, 8)
    random = torch.Generator().manual_seed(2)
    batches = [
        batch._replace(
            observation=seen * batch.observation, **{name: paid * (1.0 + torch.randn(shape, generator=random))}
        )
        for batch in batches
        for shape in [getattr(batch, name).shape]
    ]
    if kind == "SAC":
        batches = [each._replace(next_observation=seen * each.next_observation) for each in batches]
    counted(one, batches[0])
    torch.manual_seed(1)
    for batch in batches:
        one.normalizer.take(batch)
        list(one.updates_from(batch, 0))
        one.normalizer.apply(one.networks().values())
    return one, batches


def test_what_never_changes_is_divided_by_a_share_of_it() -> None:
    params = parameters()
    (batch,) = unroll_batches(params, 1)
    still = batch._replace(observation=torch.full_like(batch.observation, 5.0), reward=torch.zeros_like(batch.reward))
    one = updater(params)
    for paid in (0.0, 0.0, 3.0):
        each = still._replace(reward=still.reward + paid, discount=torch.zeros_like(still.reward))
        counted(one, each)
        for _, figures in one.updates_from(each, 0):
            assert figures.isfinite().all()
        if not paid:
            assert float(buffers(one.online)["return_scale"]) == 1.0, "no reward has told its unit"
    found = buffers(one.online)
    assert found["observation_mean"].tolist() == [5.0] * 4
    assert found["observation_scale"].tolist() == [pytest.approx(1 / (5.0 * LEAST_OF_OBSERVATIONS))] * 4
    alone = counted(updater(params), each)
    assert float(buffers(alone.online)["return_scale"]) == pytest.approx(3.0 * LEAST_OF_RETURNS)


def test_before_a_batch_has_counted_nothing_changes() -> None:
    (batch,) = unroll_batches(parameters(), 1)
    one = counted(updater(parameters()), batch._replace(reward=batch.reward * torch.nan))
    assert all(tensor.unique().tolist() in ([0.0], [1.0]) for tensor in buffers(one.online).values())


def test_whole_numbers_beside_floats_are_not_touched() -> None:
    leaves = (
        Leaf(("count",), "vector", (2,), "int64", scale=1 / 9),
        Leaf(("joints",), "vector", (3,), "float64", offset=2),
    )
    spec = EnvironmentSpec("Test", leaves, (ActionLeaf((), "Discrete", (), "int64", (2,), (0,)),), 1, 1, "f")
    one = counted(updater(parameters(), spec), *unroll_batches(parameters(), 1, spec))
    mean, scale = (buffers(one.online)[name] for name in STATISTICS[:2])
    assert (mean[:2].tolist(), scale[:2].tolist()) == ([0.0, 0.0], [1.0, 1.0])
    assert (mean[2:] != 0.0).all()
    assert (scale[2:] != 1.0).all()


def test_a_job_that_normalises_nothing_counts_nothing() -> None:
    assert updater(parameters(normalize_observations=False, normalize_returns=False)).normalizer is None
    assert updater(parameters(normalize_observations=False)).normalizer.state()["mean"].shape == (1,)


# ------------------------------------------------------------------------------------------------- networks that follow


def test_followers_and_copies_of_16_bits_have_the_buffers_and_no_mixture() -> None:
    params = parameters(evaluation_weights_decay=0.9)
    one = updater(params, plan=Compute("bf16"))
    for batch in shifted(params, 3):
        list(counted(one, batch).updates_from(batch, 0))
        assert same(buffers(one.evaluation), buffers(one.online))
        assert same(buffers(one._computed.module), buffers(one.online))


@pytest.mark.parametrize(
    "target", [{"target_update_interval": 1000}, {"target_update_tau": 0.01, "target_update_interval": 0}]
)
def test_a_target_network_has_them(target: dict[str, Any]) -> None:
    """No algorithm on transitions normalises yet; its updater leaves the buffers to who owns them."""
    params: ApeXDQNParameters = of_apex(**target)
    torch.manual_seed(0)
    online = algorithm("ApeXDQN").build(SPEC, params, ENV_PARAMS)
    online.normalized = online.vectors
    online.register_buffer("observation_mean", torch.zeros(4))
    online.register_buffer("observation_scale", torch.ones(4))
    one = make_updater(algorithm("ApeXDQN"), params, online, CPU)
    assert isinstance(one, TransitionUpdater)
    normalizer = Normalizer(online)
    normalizer.take(unroll_batches(parameters(), 1)[0])
    normalizer.apply(one.networks().values())
    assert (online.observation_scale != 1.0).all()
    assert same(buffers(one.target), buffers(online))


def test_nobody_waits_for_the_device() -> None:
    one, data = updater(parameters()), shifted(parameters(), 2)
    with Waits() as waits:
        counted(one, *data)
    assert waits.found == []


# --------------------------------------------------------------------------------------------------------------- the loop


@contextmanager
def learner(directory: Path, params: ImpalaParameters) -> Iterator[Learner]:
    name = f"inproc://normalizer-{next(_names)}"
    server = WeightServer(f"{name}-weights", f"{name}-notice")
    versions = VersionLog(params.publish_interval)
    layout = algorithm("IMPALA").layout(SPEC, params)
    queue = UnrollQueue(UnrollQueueConfig(f"{name}-ingest", layout, params.batch_size, 8), versions, CPU)
    saver = Saver(directory, keep=3)
    config = LoopConfig(20, params.publish_interval, 60.0, directory)
    identity = PolicyIdentity("IMPALA", SPEC, params, ENV_PARAMS)
    own = updater(params)
    yield Learner(config, identity, course(params), own, queue, server, saver, lambda status: None, {}, versions)
    queue.close()
    server.close()
    saver.close()


def ready(params: ImpalaParameters, batch: UnrollBatch) -> ReadyUnrolls:
    staging = unroll_buffers(algorithm("IMPALA").layout(SPEC, params), params.batch_size, 1, CPU).take()
    return ReadyUnrolls(batch, np.ones((5, 4), np.int64), 1, staging)


def published(one: Learner) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in one._server.latest.state().items() if name in STATISTICS}


def test_all_updates_from_a_batch_see_one_normaliser_and_a_version_brings_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An actor with a version normalises as the learner does until the next one."""
    params = parameters(epochs=3, minibatches=2)
    with learner(tmp_path, params) as one:
        seen: list[dict[str, torch.Tensor]] = []
        learn = one._updater.learn

        def watched(*given: Any) -> Any:
            seen.append(buffers(one._updater.online))
            return learn(*given)

        monkeypatch.setattr(one._updater, "learn", watched)
        for number, batch in enumerate(shifted(params, 3)):
            before = buffers(one._updater.online)
            seen.clear()
            one._learn(ready(params, batch))
            assert len(seen) == 6
            assert all(same(each, before) for each in seen)
            after = buffers(one._updater.online)
            assert not same(after, before)
            assert same(published(one), after)
            assert one.counters.version == number + 1
        counted = one._updater.normalizer.state()["count"]
        assert float(counted) == 3 * 20, "each batch counts once, not once an update"


def test_an_input_is_centred_beside_returns_that_are_normalised(tmp_path: Path) -> None:
    """It was not, silently: the statistics took the place of the mean frame, and PPO on Pong learned from frames of 0 to 10."""
    params = parameters(normalize_observations=False)
    with learner(tmp_path, params) as one:
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


def test_between_versions_the_buffers_stand_still(tmp_path: Path) -> None:
    params = parameters(publish_interval=2)
    with learner(tmp_path, params) as one:
        first, second = shifted(params, 2)
        new = buffers(one._updater.online)
        one._learn(ready(params, first))
        assert same(buffers(one._updater.online), new)
        one._learn(ready(params, second))
        np.testing.assert_allclose(
            published(one)["observation_mean"].numpy(), observed([first, second]).mean(axis=0), rtol=1e-6
        )


def test_a_batch_that_is_left_out_is_told(tmp_path: Path) -> None:
    params = parameters()
    with learner(tmp_path, params) as one:
        one._config = LoopConfig(20, 1, 60.0, tmp_path, on_non_finite="Ignore")
        good, bad = shifted(params, 2)
        one._learn(ready(params, good))
        before = published(one)
        one._learn(ready(params, bad._replace(reward=bad.reward * torch.nan)))
        assert one.status().left_out_batches == 1
        assert same(published(one), before)


# ------------------------------------------------------------------------------------------------------------ checkpoints


@pytest.mark.parametrize("interval", [1, 2])
def test_after_a_checkpoint_it_goes_on_to_the_bit(tmp_path: Path, interval: int) -> None:
    """With an interval of 2 the checkpoint has statistics that no version has yet."""
    params = parameters(publish_interval=interval, evaluation_weights_decay=0.9)
    batches = shifted(params, 6)
    with learner(tmp_path, params) as one:
        for number, batch in enumerate(batches):
            one._learn(ready(params, batch))
            if number == 2:
                one._save(wait=True)
        expected, statistics = published(one), state.statistics(one._updater)
        networks = {name: net.state_dict() for name, net in one._updater.networks().items()}
        with learner(tmp_path, params) as other:
            found = checkpoint.latest_valid(tmp_path)
            assert found.tensors["statistics.m2"].dtype == torch.float64
            other.resume(found)
            for batch in batches[3:]:
                other._learn(ready(params, batch))
            assert same(published(other), expected)
            assert same(state.statistics(other._updater), statistics)
            for name, network in other._updater.networks().items():
                assert same(dict(network.state_dict()), dict(networks[name]))


def test_a_run_from_another_s_checkpoint_takes_them_and_from_its_best_too(tmp_path: Path) -> None:
    params = parameters()
    with learner(tmp_path, params) as one:
        one._learn(ready(params, shifted(params, 1)[0]))
        one._save(wait=True)
        newest = checkpoint.latest_valid(tmp_path)
        one.verdicts.add(Verdict(version=1, mean=5.0, episodes=2))
        one._save_best(one._server.latest.state())
        one._saver.finish()
        for number, found in enumerate((newest, checkpoint.read(tmp_path / checkpoint.BEST))):
            with learner(tmp_path / f"other-{number}", params) as other:
                other.start_from(found)
                assert same(published(other), published(one))
                assert same(state.statistics(other._updater), state.statistics(one._updater))


def test_a_checkpoint_of_before_goes_on_with_statistics_that_begin_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain = updater(parameters(normalize_observations=False, normalize_returns=False))
    checkpoint.write(tmp_path, checkpoint.checkpoint_name(1, 5), state.capture(plain), {"counters": {}})
    found = checkpoint.latest_valid(tmp_path)
    one = updater(parameters())
    new = buffers(one.online)
    state.restore(one, found, 5)
    assert "has no running statistics for this job's normalisation: they start from zero" in caplog.text
    assert same(buffers(one.online), new)
    assert torch.equal(one.online.policy.weight, plain.online.policy.weight)  # type: ignore[operator]


def test_a_loaded_policy_and_its_export_use_them_and_never_change_them(tmp_path: Path) -> None:
    """``export`` itself compares what it wrote with the policy, on random numbers: this environment can't be made."""
    params = parameters(evaluation_weights_decay=0.5)
    with learner(tmp_path / "run", params) as one:
        for batch in shifted(params, 2):
            one._learn(ready(params, batch))
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
    assert same(buffers(policy.stored.module), expected)
    for form in ("torchscript", "safetensors"):
        assert export(policy, form, tmp_path / form).difference < 1e-5
