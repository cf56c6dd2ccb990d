"""Networks: the published sizes, the dueling identity, normalisation, and equal results in whichever order memory holds them."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from rljob.algorithms.apex_dqn.network import QNetwork, QNetworkConfig
from rljob.algorithms.compute import Arithmetic, Compute
from rljob.algorithms.layout import channels_last, select, space_to_depth
from rljob.algorithms.policy_network import PolicyConfig, PolicyNetwork
from rljob.api import EnvironmentParameters
from rljob.api.networks import OF_TRANSITIONS, OF_UNROLLS, Image, NetworkProblem, resolved_network
from torch.nn import functional

from tests.support.specs import spec_of

NATIVE: tuple[Arithmetic, ...] = ("fp32", "bf16")


def config(kind: str = "Auto", shape: tuple[int, ...] = (84, 84), actions: int = 6, **changes: Any) -> QNetworkConfig:
    return QNetworkConfig(kind, spec_of("Test", shape, "uint8", 4, actions), **changes)


def parameters(network: QNetwork) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((84, 84), "Nature"),
        ((64, 64), "Nature"),
        ((63, 84), "Compact"),
        ((42, 42), "Compact"),
        ((13, 14), "Small"),
        ((4,), "MLP"),
        ((12_288,), "MLP"),
        ((64, 64, 3), "Nature"),
        ((3, 64, 64), "Nature"),
        ((210, 160, 3), "Nature"),
        ((256, 256, 1), "Nature"),
        ((48, 64, 3), "Compact"),
        ((32, 32, 3), "Compact"),
        ((10, 10, 4), "Small"),
        ((7, 7, 3), "Small"),
        ((3, 8, 8), "Small"),
        ((3, 3), "Small"),
    ],
)
def test_auto_chooses_by_shape(shape: tuple[int, ...], kind: str) -> None:
    assert QNetwork(config(shape=shape)).kind == kind
    assert resolved_network(OF_UNROLLS, "Auto", shape) == kind


@pytest.mark.parametrize("shape", [(2, 64, 64, 3), (257, 257), (64, 257, 3), (512, 512, 3), (2, 90), (2, 2, 3)])
@pytest.mark.parametrize("networks", [OF_TRANSITIONS, OF_UNROLLS])
def test_an_image_is_never_made_a_vector_unasked(networks: dict[str, int], shape: tuple[int, ...]) -> None:
    with pytest.raises(NetworkProblem, match=r"sides from 3 to 256 .* has shape .*network: MLP"):
        resolved_network(networks, "Auto", shape)
    assert resolved_network(networks, "MLP", shape) == "MLP"


@pytest.mark.parametrize(
    ("shape", "image"),
    [
        ((84, 84), Image(84, 84)),
        ((64, 64, 3), Image(64, 64, 3)),
        ((3, 64, 64), Image(64, 64, 3, channels_first=True)),
        ((210, 160, 3), Image(210, 160, 3)),
        ((3, 210, 160), Image(210, 160, 3, channels_first=True)),
        ((17, 8, 8), Image(8, 8, 17, channels_first=True)),  # planes of a board: more than it has rows
        ((8, 8, 17), Image(8, 8, 17)),
        ((5, 5, 5), Image(5, 5, 5)),
        ((4,), None),
        ((2, 8, 8, 3), None),
    ],
)
def test_which_side_of_a_frame_is_its_channels(shape: tuple[int, ...], image: Image | None) -> None:
    assert Image.of(shape) == image


def by_hand(observation: torch.Tensor, image: Image) -> torch.Tensor:
    """[B, S, H, W, C] or [B, S, C, H, W] as grey frames [B, S * C, H, W], one value after the other's plane."""
    planes = observation if image.channels_first else observation.movedim(-1, 2)
    return torch.stack([planes[:, s, c] for s in range(planes.shape[1]) for c in range(planes.shape[2])], dim=1)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("stack", [1, 3])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("shape", [(64, 72, 3), (3, 64, 72), (32, 32, 1), (7, 7, 3), (10, 10, 4)])
def test_colours_are_seen_as_so_many_grey_frames(
    shape: tuple[int, int, int], dtype: str, stack: int, centred: bool
) -> None:
    torch.manual_seed(0)
    image = Image.of(shape)
    scaled = EnvironmentParameters(input_scale=1 / 255, centre_input=centred)
    colour = PolicyNetwork(PolicyConfig("Auto", spec_of("Colour", shape, dtype, stack, 6), scaled))
    planes = spec_of("Grey", (image.height, image.width), dtype, stack * image.channels, 6)
    grey = PolicyNetwork(PolicyConfig(colour.kind, planes, EnvironmentParameters(input_scale=1 / 255)))
    weights = {name: value for name, value in colour.state_dict().items() if name != "mean"}
    assert not grey.load_state_dict(weights, strict=False).unexpected_keys
    observation = torch.randint(0, 255, (5, stack, *shape)).to(getattr(torch, dtype))
    seen = by_hand(observation, image).float()
    if centred:
        mean = 255 * torch.rand(shape)
        colour.centre(mean)
        seen = seen - by_hand(mean.expand(1, stack, *shape), image)
    expected = grey(seen)
    for way in colour.compute_plans("FP32", native=("fp32",)):
        for arrived in (observation, colour.compute(way).laid_out(observation)):
            torch.testing.assert_close(colour.compute(way)(arrived), expected, rtol=1e-3, atol=1e-5)


def test_a_deep_network_sees_colours() -> None:
    network = PolicyNetwork(PolicyConfig("Deep", spec_of("Test", (16, 16, 3), "float32", 2, 6)))
    assert network._first.in_channels == 6
    assert network(torch.rand(5, 2, 16, 16, 3)).logits.shape == (5, 6)


def test_nature_has_the_published_number_of_parameters() -> None:
    convolutions = (4 * 64 + 1) * 32 + (32 * 16 + 1) * 64 + (64 * 9 + 1) * 64
    dense = 3136 * 512 + 512
    assert parameters(QNetwork(config("Nature", dueling=False))) == convolutions + dense + 512 * 6 + 6
    # Wang et al. 2016: value and advantage each have their own dense layer
    assert parameters(QNetwork(config("Nature", dueling=True))) == convolutions + 2 * dense + 512 * 7 + 7


def test_compact_is_the_documented_small_network() -> None:
    network = QNetwork(config("Compact", (42, 42), actions=3, layer_norm=True))
    convolutions = 4 * 36 * 16 + 16 + 16 * 9 * 32 + 32
    norms = 2 * (16 + 32 + 128)
    assert parameters(network) == convolutions + (512 * 128 + 128) + norms + (128 * 4 + 4)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize(("kind", "shape"), [("Nature", (84, 84)), ("Nature", (87, 90)), ("Compact", (42, 42))])
def test_how_it_is_computed_does_not_change_the_meaning(kind: str, shape: tuple[int, int], centred: bool) -> None:
    torch.manual_seed(0)
    seen = EnvironmentParameters(centre_input=centred)
    network = PolicyNetwork(PolicyConfig(kind, spec_of("Test", shape, "uint8", 4, 6), seen))
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
        torch.testing.assert_close(computed(layout), plain, rtol=1e-3, atol=1e-5)
        for expected, rounded in zip(plain, computed(dataclasses.replace(layout, arithmetic="bf16")), strict=True):
            assert torch.nn.functional.cosine_similarity(rounded.ravel(), expected.ravel(), dim=0) > 0.98, layout
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
    assert vectors.compute_plans("Auto", native=NATIVE) == (Compute(), Compute("bf16"))
    assert overlapping.block == 1, "a kernel of 6 with stride 4 does not see whole blocks"
    assert not any(way.space_to_depth for way in overlapping.compute_plans("BF16", native=NATIVE))
    assert any(way.space_to_depth for way in QNetwork(config("Nature")).compute_plans("BF16", native=NATIVE))
    with pytest.raises(ValueError, match="without convolutions"):
        vectors.compute(Compute(channels_last=True))
    with pytest.raises(ValueError, match="whole blocks"):
        overlapping.compute(Compute(channels_last=True, space_to_depth=True))


@pytest.mark.parametrize(
    ("network", "shape", "kind", "said"),
    [
        ("ResNet", (84, 84), NetworkProblem, "Auto, Nature, Compact, Small, MLP"),
        ("Nature", (20, 20), ValueError, "at least 36x36"),
        ("Compact", (4,), NetworkProblem, r"shape \(4,\); network Auto finds"),
    ],
)
def test_what_cannot_be_built_is_refused(
    network: str, shape: tuple[int, ...], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        QNetwork(config(network, shape))


def views(frames: torch.Tensor) -> Iterator[torch.Tensor]:
    """The frames, and parts of them whose memory begins elsewhere, has gaps, or runs in another order."""
    yield frames
    yield frames[2:4]
    yield frames[:, :, 1:]
    yield frames[:, :, :, 1:]
    yield frames.contiguous(memory_format=torch.channels_last)
    yield torch.empty(frames.numel() + 1, dtype=frames.dtype)[1:].view(frames.shape).copy_(frames)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize(
    ("count", "stack", "height", "width"), [(6, 1, 7, 5), (6, 3, 8, 8), (90, 4, 40, 44), (6, 4, 21, 22)]
)
def test_channels_last(dtype: torch.dtype, count: int, stack: int, height: int, width: int) -> None:
    for frames in views(torch.randint(0, 256, (count, stack, height, width)).to(dtype)):
        ordered = channels_last(frames)
        assert torch.equal(ordered, frames)
        assert ordered.is_contiguous(memory_format=torch.channels_last)
        assert channels_last(ordered) is ordered


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("block", [1, 2, 3, 4, 6, 8])
@pytest.mark.parametrize(("stack", "height", "width"), [(1, 12, 9), (4, 42, 42), (4, 24, 33), (3, 21, 64)])
def test_space_to_depth(dtype: torch.dtype, block: int, stack: int, height: int, width: int) -> None:
    for frames in views(torch.randint(0, 256, (5, stack, height, width)).to(dtype)):
        rows, columns = frames.shape[2] // block * block, frames.shape[3] // block * block
        ordered = space_to_depth(frames, block)
        assert torch.equal(ordered, functional.pixel_unshuffle(frames[:, :, :rows, :columns], block))
        assert ordered.is_contiguous(memory_format=torch.channels_last)


def test_selected_frames_keep_their_order_in_memory() -> None:
    frames, index = torch.randint(0, 256, (6, 5, 4, 12, 12), dtype=torch.uint8), torch.tensor([4, 0, 0, 3])
    ordered = space_to_depth(frames.flatten(0, 1), 4).unflatten(0, (6, 5))
    for some in (frames, frames[:, 0], frames[:, 0, 0, 0], ordered, ordered.flatten(0, 1), frames.transpose(3, 4)):
        assert torch.equal(select(some, index), some[index])
    assert select(ordered.flatten(0, 1), index).is_contiguous(memory_format=torch.channels_last)
    assert select(ordered, index).flatten(0, 1).is_contiguous(memory_format=torch.channels_last)
