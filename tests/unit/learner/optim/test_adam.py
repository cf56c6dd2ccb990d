"""Adam against torch's own, and what it does without."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
import torch
from rljob.algorithms.optimizer import Adam


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
        from rljob.algorithms import algorithm
        from rljob.api import load_manifest
        from rljob.envs import describe_environment
        from rljob.learner.optim.data_parallel_threads import DataParallelThreads
        from rljob.learner.optim.updater import make_updater
        import torch

        for optimizer in ("Adam", "RMSProp", "Muon"):
            job = load_manifest("manifests/examples/cartpole-impala.yaml", [f"spec.algorithm.impala.optimizer={optimizer}"])
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
