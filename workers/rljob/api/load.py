"""From a manifest file to a checked `RLJob`, or to every problem at once."""

import json
import secrets
import sys
from collections.abc import Mapping, Sequence
from os.path import exists
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rljob.algorithms.built_in import BUILT_IN
from rljob.api.document import dump_document, parse_document
from rljob.api.effective import effective, preset_of, with_preset
from rljob.api.examples import examples, examples_for, manifest_file
from rljob.api.experiment import model_of
from rljob.api.job import API_VERSION, KIND, Metadata, RLJob
from rljob.api.live import live_values, not_live
from rljob.api.overrides import Override, apply_overrides, read_overrides, segments_of
from rljob.api.presets import PRESETS
from rljob.api.problems import ABSENT, ManifestError, Problem, nearest, plain, value_at
from rljob.api.rules import cross_field_problems
from rljob.api.structure import misfits, structural_problems, without_nulls

_OF_SERVERS = frozenset(
    (
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "managedFields",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    )
)
"""Fields of metadata that are for an API server alone."""


STANDARD_INPUT = "-"
"""Stands for standard input in the place of a file, as with kubectl."""


def load_manifest(path: Path, overrides: Sequence[str] = ()) -> RLJob:
    """Read, override (``--set``) and check a manifest. Raises ManifestError with every problem that was found."""
    return parse_job(read_manifest(path, overrides))


def read_manifest(path: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The job as written in a file, or on standard input for ``-``, with overrides (``--set``) applied, not checked yet. Raises
    ManifestError where it can't be read.

    Nothing is added: a job that names a preset and no more stays as short as it is."""
    return given(read_document(path, overrides))


def read_document(path: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The same with everything in the file: nulls, and the fields that a server adds. Where there is no such file, the name of
    an example stands for its manifest, and that of a preset for the job of that preset."""
    name, file = str(path), manifest_file(Path(path))
    if name in PRESETS and not exists(file):
        head = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name.lower()}}
        return apply_overrides(head | {"spec": {"preset": name}}, read_overrides(overrides, head))
    try:
        text = sys.stdin.buffer.read() if name == STANDARD_INPUT else file.read_bytes()
    except OSError as error:
        near = None if exists(file) else nearest(file.stem, [*PRESETS, *examples()])
        hint = f"did you mean {near!r}?" if near else "give the path of a manifest, or a name of `rljob examples`"
        if trained := examples_for(name):
            hint = f"it is an environment, in which these examples train: {', '.join(trained)}"
        raise ManifestError([Problem(name, ABSENT, f"cannot be read: {error.strerror or error}; {hint}")]) from None
    document = parse_document(text, name)
    return apply_overrides(document, read_overrides(overrides, document))


def written_job(document: Mapping[str, Any], overrides: Sequence[Override] = ()) -> dict[str, Any]:
    """The job that a program has written as a document, with overrides applied, not checked yet. Raises ManifestError with
    everything that a manifest can't hold."""
    return given(apply_overrides(document, overrides))


_REPEATABLE: dict[str, Any] = {
    "actors.replicas": 1,
    "actors.inference": "Local",
    "actors.precision": "Plain",
    "autoscaling.mode": "Disabled",
    "algorithm.precision": "Plain",
    "algorithm.compile": False,
    "learner.processes": 1,
    "learner.accelerator.count": 0,
    "learner.resources.requests.cpu": "1",
}
"""What else depends on a clock, or on the order in which several finish."""


def repeatable(written: Mapping[str, Any]) -> dict[str, Any]:
    """The job as written, changed so that two runs of it on one machine end with equal weights, to the byte. Raises ManifestError
    where that can't be."""
    spec = parse_job(written).spec
    declared, ends, problems = BUILT_IN.get(spec.algorithm.type), spec.success_policy, []
    in_turns = declared.in_turns if declared is not None else {}
    if not in_turns:
        able = " or ".join(each.name for each in BUILT_IN.values() if each.in_turns)
        why = f"allowed: {able} with --deterministic; other learners take what has come by the clock, so no two runs learn alike"
        problems.append(Problem("spec.algorithm.type", spec.algorithm.type, why))
    if ends.raw_frames is None or ends.target_return is not None or ends.metric is not None:
        why = (
            "allowed: rawFrames alone with --deterministic, as evaluations end a run at a moment of the clock; "
            "--set spec.successPolicy.targetReturn= removes that"
        )
        problems.append(Problem("spec.successPolicy", ends.model_dump(by_alias=True, exclude_none=True), why))
    if problems:
        raise ManifestError(problems)
    return apply_overrides(written, [*_REPEATABLE.items(), *in_turns.items()])


def parse_job(document: Mapping[str, Any]) -> RLJob:
    """Check a document that has been parsed already (one from an API server, for instance). Raises ManifestError.

    Returns the job in force: its preset and all defaults filled in (`rljob.api.effective`). Known fields that are null count as
    not given (`rljob.api.structure`); the status and the metadata that a stored object has are passed over. Rules between
    fields are asked where every field is right by itself.
    """
    written = given(document)
    try:
        job = RLJob.model_validate(with_preset(written), by_alias=True, by_name=False)
    except ValidationError as error:
        raise ManifestError(structural_problems(error), alone=True) from None
    if wrong := misfits(job.spec.algorithm):
        raise ManifestError(wrong, alone=True)
    job = effective(job, written)
    if broken := cross_field_problems(job):
        raise ManifestError(_traced(each, written) for each in broken)
    return _scheduled(job, written) if job.spec.schedule else job


def _scheduled(job: RLJob, written: Mapping[str, Any]) -> RLJob:
    """The job with every live value that an entry of its schedule changes filled in, as by ``--set``: a default may follow what
    is set. Raises ManifestError."""
    problems: list[Problem] = []
    schedule, was, document = [], live_values(job.spec), apply_overrides(written, [("schedule", ABSENT)])
    for at, entry in enumerate(job.spec.schedule):
        place = f"spec.schedule[{at}].set"
        try:
            document = apply_overrides(document, list(entry.set.items()))
            after = parse_job(document).spec
        except ManifestError as error:
            problems += [
                Problem(f"{place}.{each.path.removeprefix('spec.')}", each.value, each.message)
                for each in error.problems
            ]
            break
        named = {".".join(segments_of(path)[1:]): value for path, value in entry.set.items()}
        refused = {path: words for path in named if (words := not_live(after, path)) is not None}
        problems += [Problem(f"{place}.{path}", named[path], words) for path, words in refused.items()]
        becomes = live_values(after)
        changes = {path: value for path, value in becomes.items() if path in named or value != was.get(path)}
        schedule.append(entry.model_copy(update={"set": changes}))
        was = becomes
    if problems:
        raise ManifestError(problems)
    return job.model_copy(update={"spec": job.spec.model_copy(update={"schedule": schedule})})


def _traced(problem: Problem, written: Mapping[str, Any]) -> Problem:
    """The problem; of a value that is not in the manifest, with where it comes from."""
    is_written, of_preset = (value_at(of, problem.path) is not None for of in (written, {"spec": preset_of(written)}))
    if problem.value is ABSENT or is_written or not of_preset:
        return problem
    source = f"; the value is of preset {written['spec']['preset']}, write {problem.path} to change it"
    return Problem(problem.path, problem.value, problem.message + source)


def given(document: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a stored object that its user wrote, without nulls that stand for nothing, nor an empty name or namespace. One
    that asks for a name that begins with ``generateName`` has one, as a server would give it. Raises ManifestError where it holds
    what no manifest can."""
    found: dict[str, Any] = plain({key: value for key, value in document.items() if key != "status"})
    metadata = found.get("metadata")
    if isinstance(metadata, Mapping):
        # What a server has taken has no misspelt field, and may have some that were unknown when this was written.
        passed_over = metadata.keys() - Metadata.model_fields if "uid" in metadata else _OF_SERVERS
        kept = {key: value for key, value in metadata.items() if key not in passed_over and value != ""}
        found["metadata"] = kept
        if "generateName" in metadata and kept.get("name") is None:
            kept["name"] = f"{metadata['generateName']}{secrets.token_hex(3)[:5]}"  # as long as a server's
    return without_nulls(found, model_of(document))


def dump_manifest(job: RLJob, spec: Mapping[str, Any] | None = None) -> str:
    """The job in force as YAML, with every field, of presets and defaults too: what a role is started from.

    ``spec``: what stands there as its spec, in the place of this release's words."""
    document = json.loads(job.model_dump_json(by_alias=True, exclude_none=True))
    return dump_document(document if spec is None else {**document, "spec": dict(spec)})
