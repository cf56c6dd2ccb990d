"""Networks: the published sizes, the dueling identity, normalisation, and equal results however they are computed."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from rljob.algorithms.compute import Compute
from rljob.algorithms.networks import NetworkConfig, QNetwork
from rljob.algorithms.policy_network import PolicyConfig, PolicyNetwork


def config(kind: str = "Auto", shape: tuple[int, ...] = (84, 84), **changes: object) -> NetworkConfig:
    values: dict[str, object] = {"kind": kind, "frame_shape": shape, "stack": 4, "num_actions": 6, **changes}
    return NetworkConfig(**values)  # type: ignore[arg-type]


def parameters(network: QNetwork) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((84, 84), "Nature"),
        ((64, 64), "Nature"),
        ((63, 84), "Compact"),
        ((42, 42), "Compact"),
        ((4,), "MLP"),
        ((3, 8, 8), "MLP"),
    ],
)
def test_auto_chooses_by_shape(shape: tuple[int, ...], kind: str) -> None:
    assert config(shape=shape).resolved_kind() == kind


def test_nature_has_the_published_number_of_parameters() -> None:
    convolutions = (4 * 64 + 1) * 32 + (32 * 16 + 1) * 64 + (64 * 9 + 1) * 64
    dense = 3136 * 512 + 512
    assert parameters(QNetwork(config("Nature", dueling=False))) == convolutions + dense + 512 * 6 + 6
    # Wang et al. 2016: value and advantage each have their own dense layer
    assert parameters(QNetwork(config("Nature", dueling=True))) == convolutions + 2 * dense + 512 * 7 + 7


def test_compact_is_the_documented_small_network() -> None:
    network = QNetwork(config("Compact", (42, 42), num_actions=3, layer_norm=True))
    convolutions = 4 * 36 * 16 + 16 + 16 * 9 * 32 + 32
    norms = 2 * (16 + 32 + 128)
    assert parameters(network) == convolutions + (512 * 128 + 128) + norms + (128 * 4 + 4)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize(("kind", "shape"), [("Nature", (84, 84)), ("Nature", (87, 90)), ("Compact", (42, 42))])
def test_how_it_is_computed_does_not_change_the_meaning(kind: str, shape: tuple[int, int], centred: bool) -> None:
    torch.manual_seed(0)
    network = PolicyNetwork(PolicyConfig(kind, shape, 4, 6, scale=1 / 255, centred=centred))
    if centred:
        network.centre(255 * torch.rand(shape))
    observation = torch.randint(0, 255, (4, 4, *shape), dtype=torch.uint8)

    def computed(way: Compute) -> list[torch.Tensor]:
        output = network.compute(way)(observation)
        assert output.logits.dtype == output.value.dtype == torch.float32
        loss = output.logits.logsumexp(1).sum() + output.value.square().sum()
        return [output.logits, output.value, *torch.autograd.grad(loss, list(network.parameters()))]

    plain = computed(Compute())
    for layout in (Compute(channels_last=True), Compute(channels_last=True, space_to_depth=True)):
        for expected, exact, rounded in zip(
            plain, computed(layout), computed(dataclasses.replace(layout, bf16=True)), strict=True
        ):
            torch.testing.assert_close(exact, expected, rtol=1e-3, atol=1e-5)
            alike = torch.nn.functional.cosine_similarity(rounded.ravel(), expected.ravel(), dim=0)
            assert alike > 0.98, layout
    assert all(parameter.dtype == torch.float32 for parameter in network.parameters())


def test_frames_are_laid_out_once() -> None:
    network = QNetwork(config("Nature")).compute(Compute(channels_last=True, space_to_depth=True))
    frames = torch.randint(0, 255, (4, 4, 84, 84), dtype=torch.uint8)
    laid_out = network.laid_out(frames)
    assert laid_out.shape == (4, 64, 21, 21)
    assert network.laid_out(laid_out) is laid_out
    assert torch.equal(network(laid_out), network(frames))


def test_ways_that_a_network_does_not_have() -> None:
    vectors, overlapping = QNetwork(config("MLP", (4,))), QNetwork(config("Compact", (42, 42)))
    assert vectors.ways("Auto", native=True) == (Compute(), Compute(bf16=True))
    assert overlapping.block == 1, "a kernel of 6 with stride 4 does not see whole blocks"
    assert not any(way.space_to_depth for way in overlapping.ways("BF16", native=True))
    assert any(way.space_to_depth for way in QNetwork(config("Nature")).ways("BF16", native=True))
    with pytest.raises(ValueError, match="without convolutions"):
        vectors.compute(Compute(channels_last=True))
    with pytest.raises(ValueError, match="whole blocks"):
        overlapping.compute(Compute(channels_last=True, space_to_depth=True))


def test_what_cannot_be_built_is_refused() -> None:
    with pytest.raises(ValueError, match="Auto, Nature, Compact or MLP"):
        config("ResNet")
    with pytest.raises(ValueError, match="at least 36x36"):
        QNetwork(config("Nature", (20, 20)))
    with pytest.raises(ValueError, match="MLP or Auto"):
        QNetwork(config("Compact", (4,)))
