"""Environments behind a frozen encoder: what they show, that it is what the network has, and files that do not fit."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rljob
import safetensors.torch
import torch
from rljob.api import EnvironmentParameters, ManifestError, load_manifest, with_files_beside
from rljob.encoders import check_encoder, make_encoded_environment, make_encoded_vector
from rljob.envs import EnvironmentProblem, RestartLimit, describe_environment, try_environment
from rljob.policy.export import export
from rljob.wire.schema import CODES, KINDS
from typer.testing import CliRunner

from tests.support.untrained import untrained

PONG, BREAKOUT = "ALE/Pong-v5", "ALE/Breakout-v5"
WIDTH = 128


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return rljob.load_policy(untrained(tmp_path_factory.mktemp("run"), "pong-vtrace.yaml"))


@pytest.fixture(scope="module")
def file(policy: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(policy, "safetensors", tmp_path_factory.mktemp("exported")).file


def behind(file: Path, **settings: Any) -> EnvironmentParameters:
    return EnvironmentParameters.model_validate(
        {"atari": {"frameSize": 42}, "encoder": {"file": str(file)}, **settings}
    )


def plain(parameters: EnvironmentParameters) -> EnvironmentParameters:
    return parameters.model_copy(update={"encoder": None})


def test_one_vector_of_float16_is_shown_in_the_place_of_a_stack_of_pictures(file: Path) -> None:
    spec, shown = describe_environment(BREAKOUT, behind(file)), describe_environment(BREAKOUT, plain(behind(file)))
    assert (spec.observation_shape, spec.observation_dtype, spec.row_bytes) == ((1, WIDTH), "float16", 2 * WIDTH)
    assert (spec.action, spec.seen_shapes) == (shown.action, [(WIDTH,)])
    assert spec.lines[-1] == f"encoder: sha256 {spec.encoder}"


def test_what_it_is_depends_on_the_content_of_the_file_and_not_on_where_it_lies(file: Path, tmp_path: Path) -> None:
    spec = describe_environment(PONG, behind(file))
    elsewhere, other = tmp_path / "same.safetensors", tmp_path / "other.safetensors"
    shutil.copy(file, elsewhere)
    changed(file, other, {"dense.0.bias": lambda bias: bias + 1})
    assert describe_environment(PONG, behind(elsewhere)) == spec
    another = describe_environment(PONG, behind(other))
    assert another.fingerprint != spec.fingerprint != describe_environment(PONG, plain(behind(file))).fingerprint
    assert "encoder: sha256" in spec.difference(another)


def test_actors_and_scorer_show_the_features_that_the_policys_network_has(policy: Any, file: Path) -> None:
    """It is the file's own game, so that the policy itself is the reference; its network centres and scales frames."""
    parameters = behind(file)
    spec = describe_environment(PONG, parameters)
    vector = make_encoded_vector(spec, parameters, 3, 7, RestartLimit(10))
    pixels = make_encoded_vector(
        describe_environment(PONG, plain(parameters)), plain(parameters), 3, 7, RestartLimit(10)
    )
    seen, frames = vector.reset(), pixels.reset()
    for _ in range(20):
        assert seen.shape == (3, 1, WIDTH)
        np.testing.assert_allclose(seen[:, 0], features(policy, frames), rtol=2e-3, atol=2e-3)
        actions = np.array([2, 3, 0])
        seen, frames = vector.step(actions).observation, pixels.step(actions).observation
    vector.close()
    pixels.close()
    env = make_encoded_environment(PONG, parameters, for_scoring=True, spec=spec)
    own = make_encoded_environment(PONG, plain(parameters), for_scoring=True)
    one, _ = env.reset(seed=3)
    picture, _ = own.reset(seed=3)
    assert env.observation_space.contains(one)
    np.testing.assert_allclose(one[0], features(policy, picture[None])[0], rtol=2e-3, atol=2e-3)


def features(policy: Any, frames: Any) -> Any:
    with torch.inference_mode():
        return policy.stored.module.features(torch.as_tensor(np.array(frames))).numpy()


def test_final_observations_are_encoded_where_there_are_any(file: Path, closes: Any) -> None:
    parameters = behind(file, maxEpisodeSteps=5)
    vector = closes(make_encoded_vector(describe_environment(PONG, parameters), parameters, 2, 1, RestartLimit(10)))
    vector.reset()
    steps = [vector.step(np.zeros(2, np.int64)) for _ in range(5)]
    assert all(step.final_observation is None for step in steps[:4])
    final: Any = steps[4].final_observation
    assert steps[4].truncated.all()
    assert final.any()
    assert not np.array_equal(final, steps[4].observation)


def changed(file: Path, to: Path, changes: dict[str, Any], **policy: Any) -> Path:
    """A copy with other tensors (None: without it) and another document of its policy."""
    tensors = dict(safetensors.torch.load_file(str(file)))
    for name, change in changes.items():
        if change is None:
            del tensors[name]
        else:
            tensors[name] = change(tensors[name]).contiguous()
    with safetensors.safe_open(str(file), "pt") as opened:
        document = json.loads(opened.metadata()["policy"])
    safetensors.torch.save_file(tensors, to, {"policy": json.dumps(document | policy)})
    return to


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"atari": {"frameSize": 48}},
            r"does not fit 'ALE/Pong-v5': mean is float32 \[42, 42\], but has to be float32 \[48, 48\]",
        ),
        (
            {"frameStack": 3},
            r"convolutions.0.weight is float32 \[16, 4, 6, 6\], but has to be float32 \[16, 3, 6, 6\]",
        ),
    ],
)
def test_a_picture_of_another_size_is_told_with_the_tensor_that_would_have_another_shape(
    file: Path, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(EnvironmentProblem, match=said):
        check_encoder(PONG, behind(file, **settings))


@pytest.mark.parametrize(
    ("changes", "about", "said"),
    [
        ({"convolutions.2.bias": None}, {}, r"convolutions.2.bias is none, but has to be float32 \[32\]"),
        ({"dense.0.bias": lambda bias: bias * float("nan")}, {}, "dense.0.bias holds numbers that are not finite"),
        ({}, {"algorithm": "file.py:Own"}, "it is of file.py:Own with .*, which is not built in"),
        ({}, {"algorithm": "Mine"}, "which is not built in"),
        ({}, {"algorithmParameters": {"network": "file.py:layers"}}, "which is not built in"),
        ({}, {"algorithmParameters": {"network": "Nature"}}, "does not fit"),
        ({}, {"algorithmParameters": {"colour": 3}}, "colour"),
        ({}, {"algorithmParameters": 7}, "does not fit"),
        ({}, {"environment": {"colour": 3}}, "colour"),
    ],
)
def test_a_file_that_does_not_fit(
    changes: dict[str, Any], about: dict[str, Any], said: str, file: Path, tmp_path: Path
) -> None:
    odd = changed(file, tmp_path / "odd.safetensors", changes, **about)
    with pytest.raises(EnvironmentProblem, match=said) as caught:
        check_encoder(BREAKOUT, behind(odd))
    assert str(odd) in str(caught.value)


def test_what_is_no_such_file(file: Path, tmp_path: Path) -> None:
    garbage, bare, convolutions = (tmp_path / f"{name}.safetensors" for name in ("garbage", "bare", "convolutions"))
    garbage.write_bytes(b"\x00" * 5)
    safetensors.torch.save_file({"dense.0.weight": torch.zeros(3, 3)}, bare)
    changed(file, convolutions, {"dense.0.weight": None})
    for path, said in (
        (tmp_path / "none.safetensors", "can't be read: No such file"),
        (tmp_path, "can't be read: Is a directory"),
        (garbage, "is no safetensors file"),
        (bare, "holds not what it is a policy of"),
        (convolutions, "holds no dense layers"),
    ):
        encoder = behind(file).encoder.model_copy(update={"file": str(path)})
        with pytest.raises(EnvironmentProblem, match=said):
            describe_environment(PONG, behind(file).model_copy(update={"encoder": encoder}))
    with pytest.raises(ManifestError, match="safetensors file"):
        load_manifest(
            Path(__file__).parents[3] / "manifests/examples/pong-vtrace.yaml", ["environment.encoder.file=policy.pt"]
        )


def test_an_environment_that_shows_no_picture_is_told(file: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="takes one picture, but it shows observation: vector"):
        describe_environment("CartPole-v1", EnvironmentParameters.model_validate({"encoder": {"file": str(file)}}))


def test_a_file_that_was_changed_since_is_refused(file: Path, tmp_path: Path) -> None:
    parameters = behind(file)
    before = replace(describe_environment(PONG, parameters), encoder="0" * 64)
    for make in (
        lambda: make_encoded_vector(before, parameters, 1, 1, RestartLimit(10)),
        lambda: make_encoded_environment(PONG, parameters, for_scoring=True, spec=before),
    ):
        with pytest.raises(EnvironmentProblem, match="was changed since the job began"):
            make()


def test_an_environment_of_ones_own_is_tried_as_it_is_itself(file: Path) -> None:
    parameters = EnvironmentParameters.model_validate({"encoder": {"file": str(file)}})
    try_environment("tests.support.toys:Pictures", parameters)


def test_a_file_beside_the_manifest_is_found_from_anywhere(file: Path, tmp_path: Path) -> None:
    shutil.copy(file, tmp_path / "policy.safetensors")
    for name, found in (
        ("policy.safetensors", str(tmp_path / "policy.safetensors")),
        ("/in/the/image.safetensors", "/in/the/image.safetensors"),
    ):
        written = with_files_beside({"spec": {"environment": {"encoder": {"file": name}}}}, tmp_path)
        assert written["spec"]["environment"]["encoder"]["file"] == found


def test_validate_says_what_is_shown_and_that_a_network_for_pictures_sees_none(file: Path) -> None:
    from rljob_operator.cli import app

    words = ["validate", "manifests/examples/pong-vtrace.yaml", "--set", f"environment.encoder.file={file}"]
    of_vectors = "--set", "algorithm.network=MLP"
    for more, code, said in (((), 2, "Compact"), (of_vectors, 0, "observation: vector float16 [128]")):
        result = CliRunner().invoke(app, [*words, *more])
        assert (result.exit_code, said in result.output) == (code, True), result.output


@pytest.mark.parametrize("kind", ["chunk", "unroll", "infer"])
def test_features_travel_in_every_message_that_has_observations(kind: str, file: Path) -> None:
    (column,) = describe_environment(PONG, behind(file)).columns
    assert CODES[column.dtype] in KINDS[kind].columns[column.name].dtypes
