"""Presets: each is a whole job, and stays one, or says what to change; and PPO, which learns where no algorithm is named."""

import copy
import re
from collections.abc import Mapping
from typing import Any, get_args

import pytest
from hypothesis import given, settings, strategies as st
from rljob.api import ManifestError, RLJob, load_manifest, parse_job, quantity
from rljob.api.algorithm import BLOCKS
from rljob.api.effective import NO_ALGORITHM, note_on
from rljob.api.presets import PRESETS, PresetName

from tests.support import api_server
from tests.support.jobs import job_of, manifest_of
from tests.unit.api.bad_manifests import EXAMPLES, in_force


def manifest(preset: str) -> dict[str, Any]:
    """The preset alone, with an environment where it names none."""
    example = PRESETS[preset].example
    return manifest_of({"preset": preset, **({"environment": {"id": example}} if example else {})}, "job")


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Path -> value of everything that is no mapping."""
    if not isinstance(value, Mapping):
        return {path: value}
    return {key: item for name in value for key, item in leaves(value[name], f"{path}.{name}".lstrip(".")).items()}


def at(node: Any, path: str) -> Any:
    """What a job has at ``path`` below its spec, in the manifest's words."""
    for part in path.split("."):
        if isinstance(node, dict):
            node = node[part]
        else:
            node = getattr(node, next(name for name, f in type(node).model_fields.items() if (f.alias or name) == part))
    return node


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_alone_is_a_whole_job(name: str) -> None:
    job = parse_job(manifest(name))
    assert api_server.refusals(manifest(name)) == []
    found = (job.spec.model_fields_set, job.spec.algorithm.type)
    assert found == (set(manifest(name)["spec"]), PRESETS[name].algorithm_type), "nothing else was written"
    for path, value in leaves(PRESETS[name].spec).items():
        assert at(job.spec, path) == value, path


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_written_out_is_a_manifest_and_the_same_job(name: str) -> None:
    spec = copy.deepcopy(dict(PRESETS[name].spec))
    if example := PRESETS[name].example:
        spec["environment"] = {**spec.get("environment", {}), "id": example}
    out = {**manifest(name), "spec": spec}
    assert api_server.refusals(out) == []
    assert parse_job(out).spec.model_copy(update={"preset": name}) == parse_job(manifest(name)).spec


def test_what_a_preset_is() -> None:
    assert tuple(PRESETS) == get_args(PresetName), "in the order in which people are shown them"
    for name, preset in PRESETS.items():
        words = (preset.purpose, preset.expected, preset.time, preset.frames, preset.source)
        assert (preset.name, min(map(len, words)) >= 4) == (name, True)
        # Scale subresource and autoscalers read the stored number.
        assert "replicas" not in preset.spec.get("actors", {}), name
        assert {*preset.spec["algorithm"]} & {*BLOCKS.values()} <= {BLOCKS[preset.algorithm_type]}
        assert bool(preset.environment_id) != bool(preset.example)


def test_every_preset_has_an_example() -> None:
    assert {load_manifest(file).spec.preset for file in EXAMPLES} - {None} == set(PRESETS)


def test_what_is_written_wins_mappings_deeply_and_lists_whole() -> None:
    given = manifest("PongVTrace")
    given["spec"] |= {
        "algorithm": {"gamma": 0.5, "impala": {"unrollQueue": {"overflow": "DropOldest"}}},
        "environment": {"actions": [0, 1]},
        "learner": {"resources": {"requests": {"cpu": 4}}},
    }
    spec = parse_job(given).spec
    impala = spec.algorithm.parameters
    queue = (impala.unroll_queue.overflow, impala.unroll_queue.capacity)
    assert (impala.gamma, impala.learning_rate, *queue) == (0.5, 0.001, "DropOldest", 16)
    assert (spec.environment.parameters.actions, spec.environment.parameters.atari.frame_size) == ([0, 1], 42)
    assert spec.learner.resources.requests == {"cpu": "4", "memory": "2Gi"}


# --- the property ---------------------------------------------------------------------------------------------------


def fields(schema: dict[str, Any], path: str = "") -> dict[str, dict[str, Any]]:
    """Path below ``schema`` -> schema, of every field that is no section."""
    found: dict[str, dict[str, Any]] = {}
    for name, field in schema["properties"].items():
        here = f"{path}.{name}".lstrip(".")
        found |= fields(field, here) if "properties" in field else {here: field}
    return found


FIELDS = fields(api_server.ROOT["properties"]["spec"])
SOME: tuple[Any, ...] = (
    "a", "my_game:make", "CartPole-v1", "example.com/other", "None", "Latest", "file:///runs/a", "s3://bucket/a", "https://a",
    "redis://a:6379", "a.safetensors",
    "", "a/b", "500m", "4Gi", [], [{"name": "a"}], ["Learner"], [0, 1], [{"type": "Pods", "value": 1, "periodSeconds": 60}],
    [{"name": "a", "action": "Ignore", "onExitCodes": {"values": [1]}}], {}, {"a": "b"}, {"cpu": "2"},
    f"sha256:{'0' * 64}", [{"afterRawFrames": 1, "set": {"algorithm.learningRate": 1e-4}}],
    {"difficulty": {"of": [1]}}, ["successPolicy.targetReturn.value", "evaluator"],
)  # fmt: skip
"""Something for every field that is neither a number nor a choice of words."""


def legal(path: str) -> st.SearchStrategy[Any]:
    """Values that the schema of a field allows; the ends of its range often."""
    schema = FIELDS[path]
    low, high = schema.get("minimum", -1e9), schema.get("maximum", 1e9)
    match schema.get("type"):
        case "boolean":
            return st.booleans()
        case "integer":
            ends = st.sampled_from(sorted({low, min(low + 1, high), high}))
            return ends | st.integers(low, min(low + 1000, high)) | st.integers(low, high)
        case "number":
            strict = {
                "exclude_min": schema.get("exclusiveMinimum", False),
                "exclude_max": schema.get("exclusiveMaximum", False),
            }
            return st.floats(low, high, **strict)
    values = [
        value
        for value in (*schema.get("enum", ()), *SOME)
        if not api_server.structural(path, value) and not list(api_server.unknown(value, schema, path))
    ]
    assert values, f"SOME has nothing that {path} allows"
    return st.sampled_from(values)


def named(path: str) -> bool:
    """Whether a problem's place is a field of the manifest, or one of the free names in a map."""
    node = api_server.ROOT
    for part in re.sub(r"\[\d+\]", "", path).split("."):
        below = node.get("items", node).get("properties")
        if below is None or part not in below:
            return below is None
        node = below[part]
    return True


CHANGED = st.sampled_from(sorted(set(FIELDS) - {"preset"})).flatmap(lambda path: st.tuples(st.just(path), legal(path)))


@settings(max_examples=200)
@given(st.sampled_from(sorted(PRESETS)), CHANGED)
def test_a_preset_with_any_one_field_changed_is_a_job_or_says_what_to_change(
    preset: str, change: tuple[str, Any]
) -> None:
    path, value = change
    document = manifest(preset)
    node = document["spec"]
    *above, last = path.split(".")
    for part in above:
        node = node.setdefault(part, {})
    node[last] = value
    try:
        job = parse_job(document)
    except ManifestError as error:
        for problem in error.problems:
            assert named(problem.path), str(problem)
            assert re.search(r"allowed|required", problem.message), str(problem)
    else:
        assert (parse_job(in_force(job)).spec, api_server.refusals(document)) == (job.spec, [])


@pytest.mark.parametrize("preset", ["CartPoleApeX", "CartPoleIMPALA"])
def test_a_first_job_asks_for_one_core_in_all_and_computes_as_before(preset: str) -> None:
    """So it fits beside what a node of two cores runs anyway. A role's threads are never less than one."""
    spec = parse_job(manifest(preset)).spec
    roles = [spec.learner, spec.actors, spec.evaluator, *([spec.replay] if spec.replay else [])]
    asked = [quantity(role.resources.requests["cpu"]) for role in roles]
    assert round(sum(asked) + (0.1 if spec.replay else 0.0), 3) <= 1.0, "with 100m of the Redis beside a shard"
    assert [role.resources.cores() for role in roles] == [1] * len(roles)


# A manifest that names no algorithm: PPO learns, and that is said.


def job(**spec: Any) -> RLJob:
    return job_of({"environment": {"id": "Pendulum-v1"}, **spec})


@pytest.mark.parametrize(
    ("spec", "type_", "note"),
    [
        ({}, "PPO", NO_ALGORITHM),
        ({"algorithm": {}}, "PPO", NO_ALGORITHM),
        ({"algorithm": {"type": "PPO"}}, "PPO", ""),
        ({"algorithm": {"type": "IMPALA"}}, "IMPALA", ""),
        ({"preset": "PPOVector"}, "PPO", ""),
        ({"algorithm": {"apeXDQN": {}}}, "ApeXDQN", ""),
        ({"algorithm": {"impala": {}}}, "IMPALA", ""),
        ({"algorithm": {"ppo": {}}}, "PPO", ""),
        ({"algorithm": {"custom": {"factory": "mine:make"}}}, "Custom", ""),
    ],
)
def test_ppo_learns_where_no_type_block_or_preset_says_otherwise_and_it_is_said(
    spec: dict[str, Any], type_: str, note: str
) -> None:
    found = job(**spec).spec
    assert (found.algorithm.type, note_on(found)) == (type_, note)


def test_what_belongs_to_another_is_refused() -> None:
    with pytest.raises(ManifestError, match="not allowed with IMPALA and PPO"):
        job(replay={})


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("id_", ["CartPole-v1", "Taxi-v4", "Pendulum-v1", "LunarLander-v3", "ALE/Breakout-v5"])
def test_the_defaults_fit_each_other_whatever_is_played(id_: str, replicas: int) -> None:
    found = job(environment={"id": id_}, actors={"replicas": replicas}).spec
    assert found.algorithm.parameters.batch_size >= replicas * found.actors.envs_per_actor
    assert found.replay is None
    assert parse_job(in_force(job(environment={"id": id_}))).spec.algorithm.type == "PPO"
