"""Networks: the published sizes, the dueling identity, normalisation, and equal results however they are computed."""

from __future__ import annotations

import pytest
import torch
from rljob.algorithms.networks import NetworkConfig, QNetwork, dueling
from rljob.algorithms.trunk import channels_last


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


@pytest.mark.parametrize(("kind", "shape"), [("Nature", (84, 84)), ("Compact", (42, 42)), ("MLP", (4,))])
@pytest.mark.parametrize("duel", [False, True])
@pytest.mark.parametrize("norm", [False, True])
def test_shapes_and_dtypes(kind: str, shape: tuple[int, ...], duel: bool, norm: bool) -> None:
    network = QNetwork(config(kind, shape, dueling=duel, layer_norm=norm))
    observation = torch.randint(0, 255, (3, 4, *shape), dtype=torch.uint8)
    values = network(observation)
    assert values.shape == (3, 6)
    assert values.dtype == torch.float32


def test_norms_of_two_streams_do_not_mix() -> None:
    network = QNetwork(config("Nature", layer_norm=True, hidden_units=8)).eval()
    hidden = network.dense(torch.randn(2, 3136))
    with torch.no_grad():
        network.dense[0].weight[8:] *= 100  # the value stream
    again = network.dense(torch.randn(2, 3136))
    assert hidden.shape == again.shape == (2, 16)
    torch.manual_seed(0)
    features = torch.randn(2, 3136)
    plain = network.dense(features)[:, :8]
    with torch.no_grad():
        network.dense[0].weight[8:] *= 0.01
    torch.testing.assert_close(network.dense(features)[:, :8], plain)


def test_dueling_identity() -> None:
    value, advantage = torch.randn(5, 1), torch.randn(5, 4)
    q = dueling(value, advantage)
    torch.testing.assert_close(q, dueling(value, advantage + 3.0))  # a constant on all advantages changes nothing
    torch.testing.assert_close(q.mean(dim=1, keepdim=True), value)
    torch.testing.assert_close(dueling(value, advantage[:, :1]), value)  # one action: no advantage at all


def test_input_is_centred_and_scaled() -> None:
    network = QNetwork(config("MLP", (5,), scale=0.5, centred=True, stack=2))
    plain = QNetwork(config("MLP", (5,), scale=1.0, stack=2))
    plain.load_state_dict({**network.state_dict(), "mean": torch.zeros(5)})
    mean = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    network.centre(mean)
    observation = torch.randn(3, 2, 5)
    torch.testing.assert_close(network(observation), plain((observation - mean) * 0.5))
    assert "mean" in network.state_dict()
    with pytest.raises(ValueError, match="centreInput"):
        plain.centre(mean)


@pytest.mark.parametrize(("kind", "shape"), [("Nature", (84, 84)), ("Compact", (42, 42))])
def test_layout_and_precision_do_not_change_the_meaning(kind: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    network = QNetwork(config(kind, shape, scale=1 / 255, layer_norm=kind == "Compact"))
    observation = torch.randint(0, 255, (4, 4, *shape), dtype=torch.uint8)
    plain = network(observation)
    torch.testing.assert_close(
        network.compute(bf16=False, channels_last=True)(observation), plain, rtol=1e-4, atol=1e-5
    )
    rounded = network.compute(bf16=True, channels_last=True)(observation)
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded, plain, rtol=0.1, atol=0.03)
    assert all(parameter.dtype == torch.float32 for parameter in network.parameters())


@pytest.mark.parametrize("stack", [1, 3, 4])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_channels_last_is_the_same_tensor_in_another_order(stack: int, dtype: torch.dtype) -> None:
    frames = torch.randint(0, 256, (6, stack, 7, 5)).to(dtype)
    for part in (frames, frames[2:4], frames.flip(3).contiguous()[:, :, 1:]):
        ordered = channels_last(part)
        assert torch.equal(ordered, part)
        assert ordered.is_contiguous(memory_format=torch.channels_last)
        assert channels_last(ordered) is ordered


def test_what_cannot_be_built_is_refused() -> None:
    with pytest.raises(ValueError, match="Auto, Nature, Compact or MLP"):
        config("ResNet")
    with pytest.raises(ValueError, match="at least 36x36"):
        QNetwork(config("Nature", (20, 20)))
    with pytest.raises(ValueError, match="MLP or Auto"):
        QNetwork(config("Compact", (4,)))
