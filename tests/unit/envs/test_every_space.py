"""Every space: what an environment shows is what a learner's batch holds, and what a policy chooses is what it gets."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rljob.actor.policy import ActingPolicy
from rljob.algorithms.conformance import check
from rljob.algorithms.registry import algorithm
from rljob.api import ApeXDQNParameters, EnvironmentParameters, ImpalaParameters, PPOParameters
from rljob.api.networks import NetworkProblem
from rljob.envs import EnvironmentProblem, describe_environment, make_vector_environment, try_environment
from rljob.experience import Decision, make_builder
from rljob.experience.ring import SegmentRing
from rljob.ingest.table import read_segment
from rljob.learner.optim.updater import make_updater
from rljob.learner.staging import transition_buffers, unroll_buffers
from rljob.observation import by_column, each
from rljob.weights.flat import snapshot
from rljob.wire import decode_header, encode

from tests.support.every_space import ACTIONS, OBSERVATIONS

ID, VECTOR = "tests.support.every_space:EverySpace", "tests.support.every_space:vector"
CPU = torch.device("cpu")
APEX = ApeXDQNParameters(batch_size=8, n_step=2, chunk_length=5, hidden_units=8)
IMPALA = ImpalaParameters(batch_size=4, unroll_length=6, hidden_units=8)
PPO = PPOParameters(batch_size=4, unroll_length=6, hidden_units=8, epochs=2, minibatches=2)
LSTM = IMPALA.model_copy(update={"recurrent": "LSTM", "lstm_units": 4})
KINDS: dict[str, tuple[str, Any]] = {
    "ApeXDQN": ("ApeXDQN", APEX),
    "IMPALA": ("IMPALA", IMPALA),
    "PPO": ("PPO", PPO),
    "LSTM": ("IMPALA", LSTM),
}
PAIRS = [
    *((name, "discrete") for name in OBSERVATIONS),
    *(("vector", name) for name in ACTIONS),
    ("nested", "tuple"),
    ("nested", "dict"),
    ("nested", "mixed"),
]


def parameters(observation: str, action: str, *, masked: bool = False, **more: Any) -> EnvironmentParameters:
    kwargs = {"observation": observation, "action": action, "masked": masked}
    if observation == "nested":
        more = {"leaves": {"hidden": "critic"}, **more}
    return EnvironmentParameters(**{"kwargs": kwargs, "frame_stack": 2, **more})


@pytest.mark.parametrize("backend", ["Sync", "Async", "Native"])
@pytest.mark.parametrize(("observation", "action"), PAIRS)
def test_a_batch_holds_what_the_environment_showed(observation: str, action: str, backend: str, closes: Any) -> None:
    native = backend == "Native"
    env_id = VECTOR if native else ID
    env_params = parameters(observation, action, backend=backend, frame_stack=1 if native else 2)
    try_environment(env_id, env_params)
    spec = describe_environment(env_id, env_params)
    for method, params in ((algorithm("ApeXDQN"), APEX), (algorithm("IMPALA"), IMPALA)):
        layout = method.layout(spec, params)
        builder = make_builder(layout, 2, 0.9, False, "a", "i", 1)
        env = closes(make_vector_environment(env_id, env_params, 2, 1))
        generator = np.random.default_rng(0)
        seen, segments, controls = [env.reset()], [], []
        builder.begin(seen[0])
        nothing = np.zeros(2, np.float32)
        for _ in range(30):
            choices = spec.choices(seen[-1])
            chosen, control = choices.uniform(2, generator), None
            if spec.controls:
                control = choices.standard(2).sample(choices.draws(2, generator))
                controls.append(control)
            result = env.step(chosen, control)
            segments += builder.record(Decision(chosen, nothing, nothing, 1, control=control), result, nothing)
            seen.append(result.observation)
        segments = [
            read_segment(decode_header(encode(s.to_message(), compress=layout.compressed_columns)), layout)
            for s in segments
        ]
        assert len(segments) > 4
        shown = {_bytes(each(lambda of, row=row: of[row], step), spec) for step in seen for row in range(2)}
        if spec.controls:  # what travels is what was drawn, whatever the environment was given
            drawn = {row.tobytes() for control in controls for row in control}
            assert {row.tobytes() for segment in segments for row in segment.columns["control"]} <= drawn
        if layout.exact:
            buffer = unroll_buffers(layout, 4, 1, CPU)
            staging = buffer.take()
            staging.fill(segments[:4])
            rows = each(lambda of: of.flatten(0, 1), buffer.upload(staging)[0].observation)
        else:
            ring = SegmentRing(layout, 8)
            for slot, segment in enumerate(segments[:8]):
                ring.insert(slot, 1, segment)
            ids = [slot * layout.length + step for slot, s in enumerate(segments[:8]) for step in range(s.steps)]
            buffer = transition_buffers(layout, len(ids), 1, CPU)
            staging = buffer.take()
            staging.fill(slice(0, len(ids)), np.array(ids), ring)
            rows = buffer.upload(staging)[0].observation
        found = each(lambda of: of.numpy(), rows)
        for row in range(len(next(iter(by_column(spec.columns, found).values())))):
            assert _bytes(each(lambda of, row=row: of[row], found), spec) in shown


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("observation", "action"), PAIRS)
def test_an_algorithm_acts_and_learns(observation: str, action: str, kind: str, closes: Any) -> None:
    """One that learns from transitions and one that learns from unrolls with a mask, the others without."""
    masked = kind in ("ApeXDQN", "LSTM")
    env_params = parameters(observation, action, masked=masked)
    spec = describe_environment(ID, env_params)
    assert (spec.mask is not None) == (masked and bool(spec.action_sizes))
    name, params = KINDS[kind]
    method = algorithm(name)
    if kind == "ApeXDQN" and spec.controls:
        with pytest.raises(NetworkProblem, match=r"ApeXDQN learns choices alone, .* Box .*; IMPALA and PPO take both"):
            check(name, method, params, spec, env_params)
        return
    if kind == "ApeXDQN" and observation == "nested":
        env_params = env_params.model_copy(update={"leaves": {}})
        spec = describe_environment(ID, env_params)
    torch.manual_seed(0)
    updater = make_updater(method, params, method.build(spec, params, env_params), CPU)
    policy = ActingPolicy(method, spec, params, env_params, 3, np.random.default_rng(0))
    env = closes(make_vector_environment(ID, env_params, 3, 1))
    observation_now = env.reset()
    for step in range(24):  # the environment asserts what it is given
        if step == 8:
            policy.load(snapshot(updater.online, 1, 1, {}))
        decision = policy.act(observation_now)
        observation_now = env.step(decision.action, decision.control).observation
    replays = kind == "ApeXDQN"
    batch = method.example(spec, params, updater.online, CPU) if replays else method.example_batch(spec, params, CPU)
    assert all(torch.isfinite(figures).all() for _, figures in updater.updates_from(batch, 1))


def test_leaves_of_the_same_path_are_told_apart_from_none(monkeypatch: Any) -> None:
    nested = spaces.Dict({"a": spaces.Dict({"b": spaces.Discrete(2)}), "a.b": spaces.Discrete(2)})
    monkeypatch.setitem(OBSERVATIONS, "twice", nested)
    with pytest.raises(EnvironmentProblem, match=r"two leaves called 'a\.b'"):
        describe_environment(ID, parameters("twice", "discrete"))


@pytest.mark.parametrize(
    ("space", "why"),
    [
        (spaces.Text(5), "is a Text"),
        (spaces.Sequence(spaces.Discrete(2)), "is a Sequence"),
        (spaces.Graph(spaces.Discrete(2), None), "is a Graph"),
        (spaces.OneOf((spaces.Discrete(2), spaces.Discrete(3))), "is a OneOf"),
        (spaces.Box(0, 1, (3, 0)), "is empty"),
        (spaces.Discrete(100_000), "too many to be one-hot"),
    ],
)
def test_an_observation_that_is_not_taken_is_named(space: spaces.Space[Any], why: str, monkeypatch: Any) -> None:
    not_taken(
        "observation leaf 'bad'", "bad", spaces.Dict({"good": spaces.Discrete(2), "bad": space}), why, monkeypatch
    )


def not_taken(leaf: str, kind: str, space: Any, why: str, monkeypatch: Any) -> None:
    of_observations = leaf.startswith("observation")
    monkeypatch.setitem(OBSERVATIONS if of_observations else ACTIONS, kind, space)
    with pytest.raises(EnvironmentProblem, match=f"{leaf} .*{why}"):
        describe_environment(ID, parameters(kind, "discrete") if of_observations else parameters("vector", kind))


@pytest.mark.parametrize(
    ("space", "why"),
    [
        (spaces.Box(0, 5, (2,), np.int64), "a Box of int64; whole numbers to choose from are a MultiDiscrete"),
        (spaces.Text(3), "is a Text"),
        (spaces.Discrete(100_000), "too many for a network's outputs"),
    ],
)
def test_an_action_that_is_not_taken_is_named(space: spaces.Space[Any], why: str, monkeypatch: Any) -> None:
    not_taken("action leaf '1'", "bad", spaces.Tuple((spaces.Discrete(2), space)), why, monkeypatch)


def _bytes(observation: Any, spec: Any) -> bytes:
    return b"".join(np.ascontiguousarray(array).tobytes() for array in by_column(spec.columns, observation).values())


def test_a_mask_that_allows_nothing_allows_all_and_is_counted(monkeypatch: pytest.MonkeyPatch, closes: Any) -> None:
    monkeypatch.setattr("tests.support.every_space._mask", lambda space, first_allowed: np.zeros(3, np.int8))
    monkeypatch.setattr("tests.support.every_space.forbidden_nowhere", lambda action, space: True)
    env = closes(make_vector_environment(ID, parameters("vector", "discrete", masked=True, backend="Sync"), 1, 1))
    assert env.spec.choices(env.reset()).allowed.all()
    episodes = [episode for _ in range(10) for episode in env.step(np.zeros(1, np.int64)).episodes]
    assert [episode.metrics for episode in episodes] == [{"empty_action_masks": 8.0}]


def test_a_leaf_that_is_ignored_goes_nowhere(monkeypatch: pytest.MonkeyPatch, closes: Any) -> None:
    space = spaces.Dict({"mission": spaces.Text(5), "view": spaces.Box(0, 1, (2,), np.float32)})
    monkeypatch.setitem(OBSERVATIONS, "told", space)
    env_params = parameters("told", "discrete", backend="Sync", leaves={"mission": "ignored"})
    try_environment(ID, env_params)
    env = closes(make_vector_environment(ID, env_params, 2, 1))
    assert (env.spec.lines[0], env.reset().shape) == ("observation view: vector float32 [2]", (2, 1, 2))
    with pytest.raises(EnvironmentProblem, match="ignores all that it shows"):
        describe_environment(ID, parameters("vector", "discrete", leaves={"observation": "ignored"}))
