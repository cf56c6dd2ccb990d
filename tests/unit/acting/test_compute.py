"""Choosing how to compute changes the speed, never the meaning."""

from __future__ import annotations

import pytest
import torch
from rljob.acting.compute import acting_copy, choose_compute
from rljob.algorithms.apex_dqn import ApeXDQN
from rljob.algorithms.compute import Compute
from rljob.algorithms.q_network import QNetwork, QNetworkConfig
from rljob.api import EnvironmentParameters
from rljob.weights.flat import snapshot

from tests.support.specs import spec_of
from tests.unit.learner.learner_builders import assert_equal

PONG = spec_of("Pong", (42, 42), "uint8", 4, 6)
OBSERVATION = torch.randint(0, 256, (5, 4, 42, 42), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def a_network(seed: int = 0) -> QNetwork:
    torch.manual_seed(seed)
    return QNetwork(QNetworkConfig("Compact", PONG, EnvironmentParameters(centre_input=True)))


@pytest.mark.parametrize("channels_last", [False, True])
def test_stored_halves_equal_converted_ones_bit_for_bit(channels_last: bool) -> None:
    network = a_network()
    converted = a_network().compute(Compute("bf16", channels_last))
    acting = acting_copy(network, Compute("bf16", channels_last))
    assert {p.dtype for p in acting.parameters()} == {torch.bfloat16, torch.float32}
    with torch.inference_mode():
        assert torch.equal(acting(OBSERVATION), converted(OBSERVATION))


def test_weights_are_copied_and_the_source_stays_float32() -> None:
    network, other = a_network(0), a_network(1)
    other.mean.fill_(90.0)
    acting = acting_copy(network, Compute("bf16"))
    snapshot(other, 1, 0, {}).load_into(acting)
    expected = acting_copy(other, Compute("bf16"))
    with torch.inference_mode():
        assert torch.equal(acting(OBSERVATION), expected(OBSERVATION))
    assert {p.dtype for p in network.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("precision", "allowed"),
    [("FP32", {"fp32"}), ("BF16", {"bf16"}), ("Auto", {"fp32", "bf16"}), ("TF32", {"fp32"}), ("FP16", {"fp32"})],
)
def test_precision_is_obeyed(precision: str, allowed: set[str]) -> None:
    network = a_network()
    assert choose_compute(network, ApeXDQN().infer, OBSERVATION, 0, precision).place.compute.arithmetic in allowed
    assert_equal(network.state_dict(), a_network().state_dict())


def test_each_device_is_measured_in_each_way_and_the_figures_are_kept() -> None:
    """There is one device here; torch has two names for it, and both are gone through by the code that compares two."""
    network, devices = a_network(), [torch.device("cpu:0"), torch.device("cpu")]
    measured = choose_compute(network, ApeXDQN().infer, OBSERVATION, 0, "FP32", devices)
    ways = ("fp32", "fp32 channels-last")
    assert set(measured.seconds) == {f"{device} {way}" for device in devices for way in ways}
    assert all(0.0 < taken < 1.0 for taken in measured.seconds.values())
    assert str(measured.place) in measured.seconds
    assert measured.document() == {"compute": str(measured.place), "compute_seconds": measured.seconds}


def test_a_network_is_evaluated_as_its_algorithm_does_and_may_take_more_than_the_observation() -> None:
    class Quantiles(QNetwork):
        def forward(self, observation: torch.Tensor, quantiles: int) -> torch.Tensor:  # type: ignore[override]
            return super().forward(observation).unsqueeze(1).expand(-1, quantiles, -1)

    class ByQuantiles(ApeXDQN):
        def action_values(self, net: QNetwork, observation: torch.Tensor) -> torch.Tensor:
            return net(observation, 8).mean(1)

    network = Quantiles(QNetworkConfig("Compact", PONG, EnvironmentParameters(centre_input=True)))
    assert choose_compute(network, ByQuantiles().infer, OBSERVATION, 0, "FP32").place.compute.arithmetic == "fp32"
