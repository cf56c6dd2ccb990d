"""RMSProp and Adam against their formulas or torch's own; moments that have nothing left to remember become zero.

The learning rate: its schedule, and how it is scaled down while the policy moves too far.
"""

import math
import subprocess
import sys
import textwrap
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from rljob.algorithms.apex_dqn.parameters import ApeXDQNParameters
from rljob.algorithms.optimizer import Adam, RMSProp
from rljob.api import ImpalaParameters
from rljob.learner.optim.base_updater import LARGEST_CHANGE, LEAST_SCALE, AdaptiveLearningRate

RATE, DECAY = 0.01, 0.9
# In a process of its own: how a thread computes would stay with the threads that tests after this one start. One gradient, then
# none, as of a unit that no longer fires; the share's thread is started afterwards, as in the learner.
_REMEMBERED = """
import contextlib, os
import torch
from rljob.algorithms.compute import denormals_as_zero
from rljob.learner.optim.sharded_optimizer import DataParallelThreads
def tenth():
    return float((torch.full((64,), 2e-38) * 0.1).max())
for numbers in (contextlib.nullcontext(), denormals_as_zero()):
    if child := os.fork():  # before a thread has computed, each in a process of its own
        os.waitpid(child, 0)
        continue
    with numbers:
        weight = torch.ones(64, requires_grad=True)
        optimizer = torch.optim.Adam([weight], fused=True)
        for update in range(1000):
            weight.grad = torch.full((64,), float(update == 0))
            optimizer.step()
        print(float(optimizer.state[weight]["exp_avg"].max()), DataParallelThreads(2).map(lambda _: tenth(), [0, 1])[1])
    print(tenth(), flush=True)
    os._exit(0)
"""


@pytest.mark.parametrize("blocked", [None, 0.0, 1.0])
def test_it_moves_and_keeps_what_torch_s_own_does(blocked: float | None) -> None:
    generator = torch.Generator().manual_seed(0)
    mine = [torch.randn(20, 30, generator=generator), torch.randn(7, generator=generator)]
    theirs = [weight.clone() for weight in mine]
    ours = Adam(mine, learning_rate=1e-3, epsilon=1e-5)
    reference = torch.optim.Adam(theirs, lr=1e-3, eps=1e-5, fused=True)
    for step in range(5):
        for weight, other in zip(mine, theirs, strict=True):
            weight.grad = torch.randn(weight.shape, generator=generator)
            other.grad = weight.grad.clone()
        if blocked is not None and step == 3:
            ours.found_inf = reference.found_inf = torch.tensor(blocked)  # type: ignore[attr-defined]
        ours.learning_rate = reference.param_groups[0]["lr"] = 1e-3 / (1 + step)
        ours.step(), reference.step()
    for weight, other in zip(mine, theirs, strict=True):
        assert torch.equal(weight, other)
        assert ours.state[weight].keys() == {"step", *ours.names}
        torch.testing.assert_close(dict(ours.state[weight]), dict(reference.state[other]), rtol=0.0, atol=0.0)


def test_a_weight_without_a_gradient_stays() -> None:
    weights = [torch.ones(3), torch.ones(2)]
    optimizer = Adam(weights, learning_rate=1e-3, epsilon=1e-5)
    optimizer.step()
    weights[0].grad = torch.ones(3)
    optimizer.step()
    assert weights[1].tolist() == [1.0, 1.0]
    assert list(optimizer.state) == [weights[0]]


def test_an_update_imports_no_compiler() -> None:
    """It takes two seconds, which each learner of a job would begin with, and each one that follows a pod that went."""
    program = """
        import sys
        from rljob.algorithms.registry import algorithm
        from rljob.api import load_manifest
        from rljob.envs import describe_environment
        from rljob.learner.optim.sharded_optimizer import DataParallelThreads
        from rljob.learner.optim.updater import make_updater
        import torch

        for optimizer in ("Adam", "RMSProp"):
            job = load_manifest("manifests/examples/cartpole-impala.yaml", [f"spec.algorithm.optimizer={optimizer}"])
            method, params = algorithm("IMPALA"), job.spec.algorithm.parameters
            spec = describe_environment("CartPole-v1", job.spec.environment.parameters)
            online = method.build(spec, params, job.spec.environment.parameters)
            updater = make_updater(method, params, online, torch.device("cpu"), DataParallelThreads(1))
            before = [weight.clone() for weight in online.parameters()]
            batch = method.example_batch(spec, params, torch.device("cpu"))
            list(updater.updates_from(batch, 0))
            assert any(not torch.equal(*pair) for pair in zip(before, online.parameters()))
            assert "torch._dynamo" not in sys.modules, optimizer
    """
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120, check=False
    )
    assert found.returncode == 0, found.stderr[-2000:]


def by_hand(gradients: list[float], epsilon: float, momentum: float, centred: bool) -> float:
    """Where a weight that begins at 1 is after these gradients; Graves 2013, eq. 38 to 41."""
    weight, squares, mean, summed = 1.0, 0.0, 0.0, 0.0
    for gradient in gradients:
        squares = DECAY * squares + (1 - DECAY) * gradient * gradient
        mean = DECAY * mean + (1 - DECAY) * gradient
        variance = squares - mean * mean if centred else squares
        summed = momentum * summed + gradient / math.sqrt(max(variance, 0.0) + epsilon)
        weight -= RATE * summed
    return weight


@given(
    gradients=st.lists(st.floats(-3, 3), min_size=1, max_size=12),
    epsilon=st.sampled_from([1e-2, 1e-4]),
    momentum=st.sampled_from([0.0, 0.5]),
    centred=st.booleans(),
)
def test_it_follows_the_formula(gradients: list[float], epsilon: float, momentum: float, centred: bool) -> None:
    weights = [torch.ones(3), torch.ones(())]
    optimizer = RMSProp(weights, learning_rate=RATE, decay=DECAY, epsilon=epsilon, momentum=momentum, centred=centred)
    for gradient in gradients:
        for weight in weights:
            weight.grad = torch.full_like(weight, gradient)
        optimizer.step()
    expected = by_hand(gradients, epsilon, momentum, centred)
    for weight in weights:
        torch.testing.assert_close(weight, torch.full_like(weight, expected), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("epsilon", [1.5e-7, 1e-12])
def test_a_gradient_that_stands_still_is_no_reason_for_nan(epsilon: float) -> None:
    """Torch's own centred form makes some hundred of 1,000 such gradients NaN: the variance is rounded below zero."""
    gradient = 10 * torch.rand(1000, generator=torch.Generator().manual_seed(0))
    weight = torch.ones(1000)
    optimizer = RMSProp([weight], learning_rate=1e-3, decay=0.95, epsilon=epsilon, centred=True)
    for _ in range(400):
        weight.grad = gradient.clone()
        optimizer.step()
    assert torch.isfinite(weight).all()


def test_a_mean_of_zeros_becomes_zero_in_every_thread_of_a_learner() -> None:
    answer = subprocess.run([sys.executable, "-c", _REMEMBERED], check=True, capture_output=True, text=True)
    *kept, mean, in_a_thread, afterwards = map(float, answer.stdout.split())
    if min(kept) == 0.0:
        pytest.skip("this processor has no such numbers")
    assert (len(kept), mean, in_a_thread) == (3, 0.0, 0.0)
    assert afterwards > 0.0, "the thread computes as before"


def learning_rate(target: float = 0.0, **changes: Any) -> AdaptiveLearningRate:
    return AdaptiveLearningRate(ImpalaParameters.model_validate({"learning_rate": 1e-3, **changes}), target)


def test_it_falls_over_agent_steps() -> None:
    falling = learning_rate(learning_rate_final=1e-4, learning_rate_decay_steps=1000)
    assert [falling.at(s) for s in (0, 500, 1000, 5000)] == pytest.approx([1e-3, 5.5e-4, 1e-4, 1e-4])
    assert learning_rate().at(10**9) == 1e-3
    assert AdaptiveLearningRate(ApeXDQNParameters.model_validate({"learning_rate": 2e-3})).at(10) == 2e-3


def test_without_a_target_no_divergence_matters() -> None:
    free = learning_rate()
    free.observe(100.0)
    assert free.scale == 1.0


@pytest.mark.parametrize("constant", [0.5, 50.0, 4000.0])
def test_it_finds_the_step_that_moves_the_policy_as_far_as_wanted(constant: float) -> None:
    """In a world where the divergence is a constant times the square of the step, from any start."""
    bound = learning_rate(0.02, learning_rate=0.1)
    for _ in range(60):
        bound.observe(constant * bound.at(0) ** 2)
    wanted = min(0.1, math.sqrt(0.02 / constant))  # never above the schedule
    assert bound.at(0) == pytest.approx(max(wanted, 0.1 * LEAST_SCALE), rel=1e-6)


def test_one_batch_changes_little_whatever_it_reports() -> None:
    bound = learning_rate(0.01)
    bound.observe(math.inf)
    assert bound.scale == pytest.approx(1 / LARGEST_CHANGE)
    bound.observe(math.nan)
    assert bound.scale == pytest.approx(1 / LARGEST_CHANGE)
    bound.observe(0.0)
    assert bound.scale == 1.0
    for _ in range(100):
        bound.observe(1e9)
    assert bound.scale == LEAST_SCALE
