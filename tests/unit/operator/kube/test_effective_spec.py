"""A job that runs goes by what it was started with, whatever presets and defaults the operator's release has."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rljob.api import dump_manifest, parse_job, read_manifest
from rljob.api.conditions import ConditionType, Reason
from rljob.api.controller_memory import ControllerMemory, RenderingMemory
from rljob.api.effective import ATARI_BY_PPO, NO_ALGORITHM, WITHOUT_BOUND, note_on
from rljob.api.presets import PRESETS
from rljob.api.status import Condition, RLJobStatus
from rljob_operator.core.decide import decide
from rljob_operator.core.desired import DesiredState
from rljob_operator.core.observed import Observation
from rljob_operator.kube.job.stored import ReadBefore, kept_job, read
from rljob_operator.kube.render import rendering
from rljob_operator.kube.render.rendering import revision_of_job
from rljob_operator.kube.render.settings import Settings

from tests.unit.api.bad_manifests import EXAMPLES

GAMMA = {"algorithm": {"type": "IMPALA", "gamma": 0.5}}


def manifest(generation: int = 1, **spec: Any) -> dict[str, Any]:
    about = {"name": "job", "namespace": "team", "uid": "u", "resourceVersion": "1", "generation": generation}
    full = {"preset": "CartPoleIMPALA", "checkpoint": {"retain": 2}, **spec}
    return {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": about, "spec": full}


def running(document: Mapping[str, Any], generation: int = 1) -> RLJobStatus:
    """The status of a job that was started from ``document``."""
    memory = ControllerMemory(active_since=1.0, started_with=revision_of_job(document))
    return RLJobStatus(observed_generation=generation, controller=memory)


def recalled(document: Mapping[str, Any]) -> ReadBefore:
    """What an operator that takes over knows of a job that was started from ``document``: its ConfigMap."""
    kept = kept_job(document, dump_manifest(parse_job(document)))
    return ReadBefore(in_force=kept, made_for=revision_of_job(document))


@pytest.fixture
def other_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release whose presets say something else."""
    changed = {
        name: replace(preset, spec={**preset.spec, **GAMMA}) if name == "CartPoleIMPALA" else preset
        for name, preset in PRESETS.items()
    }
    monkeypatch.setattr("rljob.api.effective.PRESETS", changed)


def gamma(desired: DesiredState) -> float:
    return desired.job.spec.algorithm.gamma


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_what_runs_is_read_back_as_it_was(file: Path) -> None:
    written = read_manifest(file)
    document = {**written, "metadata": {**written["metadata"], "namespace": "team", "uid": "u", "generation": 1}}
    found = read(document, running(document), recalled(document)).desired
    assert (dump_manifest(found.job), found.refusal) == (dump_manifest(parse_job(document)), None)


@pytest.mark.parametrize(
    ("written", "note"),
    [({}, NO_ALGORITHM), ({"algorithm": {}}, NO_ALGORITHM), ({"algorithm": {"type": "PPO"}}, "")],
)
def test_that_no_algorithm_is_named_is_said_of_what_runs_too(written: dict[str, Any], note: str) -> None:
    """An operator that takes over reads the job from its ConfigMap, which has every field."""
    document = manifest(environment={"id": "Pendulum-v1"}, **written)
    del document["spec"]["preset"]
    for known in ((), (running(document), recalled(document))):
        found = read(document, *known).desired.job
        assert (found.spec.algorithm.type, note_on(found.spec)) == ("PPO", note)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"environment": {"id": "ALE/Pong-v5"}}, f"{NO_ALGORITHM}; {ATARI_BY_PPO}"),
        ({"environment": {"id": "ALE/Pong-v5"}, "algorithm": {"type": "PPO"}}, ATARI_BY_PPO),
        ({"environment": {"id": "A-v0"}, "algorithm": {"gamma": 1}}, WITHOUT_BOUND),
        (
            {"environment": {"id": "A-v0"}, "algorithm": {"gamma": 1.0, "custom": {"factory": "m:f"}}},
            WITHOUT_BOUND,
        ),
        ({"environment": {"id": "ALE/Pong-v5"}, "algorithm": {"hiddenUnits": 512}}, ""),
        ({"environment": {"id": "ALE/Pong-v5"}, "preset": "PPOAtari"}, ""),
        (
            {
                "environment": {"id": "ALE/Pong-v5"},
                "algorithm": {"type": "ApeXDQN"},
                "successPolicy": {"rawFrames": 199_996},
            },
            "nothing will be learned: successPolicy.rawFrames ends the job after 49,999 steps, and the first update is made once "
            "50,000 are stored (replay.rateLimiter.minSize)",
        ),
        (
            {
                "environment": {"id": "CartPole-v1"},
                "algorithm": {"type": "ApeXDQN"},
                "successPolicy": {"rawFrames": 50_000},
            },
            "",
        ),
        (
            {"environment": {"id": "CartPole-v1"}, "algorithm": {"type": "IMPALA"}, "successPolicy": {"rawFrames": 10}},
            "",
        ),
    ],
)
def test_what_an_author_may_not_know_is_said_once(spec: dict[str, Any], said: str) -> None:
    document = manifest(**spec)
    if "preset" not in spec:
        del document["spec"]["preset"]
    for known in ((), (running(document), recalled(document))):
        assert note_on(read(document, *known).desired.job.spec) == said


def test_another_preset_reaches_a_job_at_its_next_start(request: pytest.FixtureRequest) -> None:
    status, before, started = running(manifest()), gamma(read(manifest()).desired), recalled(manifest())
    request.getfixturevalue("other_release")
    assert gamma(read(manifest(), status, started).desired) == before
    more = read(
        manifest(2, actors={"replicas": 7}, backoffLimit=9, autoscaling={"mode": "Internal"}), status, started
    ).desired
    assert (gamma(more), more.job.spec.actors.replicas, more.job.spec.backoff_limit) == (before, 7, 9)
    assert (more.job.spec.autoscaling.mode, more.job.spec.preset) == ("Internal", "CartPoleIMPALA")
    assert more.written == status.controller.started_with
    changed = read(manifest(2, image="rl:2"), status, started).desired
    assert (gamma(changed), changed.job.spec.image) == (0.5, "rl:2"), "its user has changed what roles start with"
    assert changed.written != status.controller.started_with
    suspended = status.model_copy(update={"controller": status.controller.model_copy(update={"active_since": None})})
    assert gamma(read(manifest(), suspended, started).desired) == 0.5


def test_a_release_that_refuses_the_preset_leaves_what_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    status, started = running(manifest()), recalled(manifest())
    monkeypatch.setattr("rljob.api.effective.PRESETS", {})
    assert read(manifest()).desired.refusal is not None
    assert read(manifest(), status, started).desired.refusal is None
    scaled = read(manifest(2, actors={"replicas": 7}), status, started).desired
    assert not scaled.refusal.blocking
    assert scaled.read_at_start == status.controller.started_with, "nothing is restarted for what is refused"


def test_a_spec_in_force_that_was_made_before_its_user_changed_the_job_is_not_taken() -> None:
    """An operator was killed between the status of a resumed job and its ConfigMap."""
    changed = manifest(2, algorithm={"gamma": 0.75})
    assert gamma(read(changed, running(changed, generation=2), recalled(manifest())).desired) == 0.75


def test_a_refused_spec_stays_refused_at_the_next_look() -> None:
    status = running(manifest(), generation=2)
    refused = Condition(
        type=ConditionType.ACCEPTED, status="False", reason=Reason.INVALID_SPEC, last_transition_time=1.0
    )
    seen = status.model_copy(update={"conditions": [refused]})
    bad = manifest(2, actors={"replicas": "many"})
    for known in (status.model_copy(update={"observed_generation": 1}), seen):
        assert "spec.actors.replicas" in read(bad, known, recalled(manifest())).desired.refusal.message


def test_a_job_that_was_never_good_starts_nothing_at_any_look() -> None:
    """What stands for its spec is not the last good one."""
    status = RLJobStatus()
    for _ in range(3):
        found = read(manifest(actors={"replicas": 0}), status)
        decision = decide(found.desired, found.status, Observation(), 1e9)
        assert (decision.start, found.desired.blocked, decision.status.algorithm) == ((), True, "")
        status = RLJobStatus.model_validate(decision.status.document())


def fixed(status: RLJobStatus, **fields: Any) -> RLJobStatus:
    memory = status.controller.model_copy(update={"rendering": RenderingMemory(**fields)})
    return status.model_copy(update={"controller": memory})


def test_images_are_those_of_the_start_while_anything_is_to_run() -> None:
    settings = Settings(image="rl:2", gpu_image="rl-gpu:2")
    status = fixed(running(manifest()), image="rl:1", gpu_image="")
    found = rendering.settings_for(status, settings)
    assert (found.image, found.gpu_image) == ("rl:1", "")
    stopped = status.model_copy(update={"controller": status.controller.model_copy(update={"active_since": None})})
    for free in (RLJobStatus(), stopped):
        assert rendering.settings_for(free, settings) == settings
    assert rendering.offered(stopped, settings).image == "rl:2"


@pytest.mark.parametrize("generation", [1, 2], ids=["as it was", "changed since"])
def test_a_job_that_another_release_runs_is_left_alone_until_it_is_suspended(generation: int) -> None:
    """Its stored fields may have gone with the release's CRD, which is no change of its user."""
    status = fixed(running(manifest(image="rl:1")), version=rendering.version() + 1)
    found = read(manifest(generation), status).desired
    assert (found.refusal.reason, found.blocked, found.written) == (
        Reason.RENDERING_UNKNOWN,
        True,
        status.controller.started_with,
    )
    wrong = read(manifest(generation, actors={"replicas": "many"}), status).desired
    assert "suspend and resume the job; spec.actors.replicas" in wrong.refusal.message
    suspended = manifest(generation, suspend=True)
    of_ours = fixed(running(manifest(image="rl:1")), version=rendering.version())
    for free in (read(suspended, status), read(manifest(generation), of_ours), read(manifest(generation))):
        assert free.desired.refusal is None


def test_the_revision_of_a_job_changes_with_any_role_and_with_no_number_of_actors() -> None:
    same = ({}, {"actors": {"replicas": 9}}, {"suspend": True})
    changes = ({"image": "rl:2"}, {"actors": {"spot": True}}, {"learner": {"image": "rl:3"}})
    revisions = [revision_of_job(manifest(**spec)) for spec in (*same, *changes)]
    assert (len(set(revisions[:3])), len(set(revisions))) == (1, 4)
    assert parse_job(manifest()).spec.preset == "CartPoleIMPALA"
