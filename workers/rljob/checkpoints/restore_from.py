"""``spec.checkpoint.restoreFrom``: which checkpoint a new run starts from. Needs no torch, so a controller can look, too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from rljob.api import RLJob
from rljob.checkpoints.files import MANIFEST, CheckpointProblem, VerifiedFiles, stored, verify
from rljob.envs.spec import EnvironmentSpec

_FIELD = "spec.checkpoint.restoreFrom"


def named_checkpoint(job: RLJob, environment: EnvironmentSpec) -> VerifiedFiles | None:
    """The checkpoint that ``restoreFrom`` names, read through once; None for Latest and None, which name no other run's.

    ``file:///path`` is a checkpoint's folder, or a run's, of which the newest that verifies is meant. Raises CheckpointProblem
    where there is none, it is damaged, or it is of another algorithm, other frames or another number of actions.
    """
    uri = job.spec.checkpoint.restore_from
    if uri in ("Latest", "None"):
        return None
    found = _found(_folder(uri))
    _check_fits(found, job.spec.algorithm.type, environment)
    return found


def _folder(uri: str) -> Path:
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise CheckpointProblem(
            f"{_FIELD}: {uri} can't be read here; file:///path/to/run (or to one of its checkpoints) can, Latest and None too"
        )
    return Path(unquote(parts.path))


def _found(folder: Path) -> VerifiedFiles:
    if not folder.is_dir():
        raise CheckpointProblem(
            f"{_FIELD}: {folder} is no folder here; the folder of a run or of one of its checkpoints is expected"
        )
    whole = (folder / MANIFEST).exists()
    checkpoints = folder / "checkpoints"
    problems = []
    for path in [folder] if whole else stored(checkpoints if checkpoints.is_dir() else folder):
        try:
            return verify(path)
        except CheckpointProblem as problem:
            problems.append(str(problem))
    reason = f"; {problems[0]}" if problems else ""
    raise CheckpointProblem(
        f"{_FIELD}: {folder} holds no checkpoint that verifies{reason}; "
        "the folder of a run or of one of its checkpoints is expected"
    )


def _check_fits(found: VerifiedFiles, algorithm: str, environment: EnvironmentSpec) -> None:
    expected = _words(algorithm, environment.frame_shape, environment.stack, environment.num_actions)
    came = _described(found.manifest)
    if came != expected:
        raise CheckpointProblem(
            f"{_FIELD}: {found.path} does not fit this job: expected is a policy of {expected}, what came is one of {came}"
        )


def _described(manifest: Mapping[str, Any]) -> str:
    try:
        environment = manifest["environment"]
        return _words(
            str(manifest["algorithm"]),
            tuple(environment["frame_shape"]),
            int(environment["stack"]),
            int(environment["num_actions"]),
        )
    except (KeyError, TypeError, ValueError):
        return "an unknown kind: its manifest does not say"


def _words(algorithm: str, frame_shape: tuple[int, ...], stack: int, actions: int) -> str:
    return f"{algorithm} for {stack} frames of shape {frame_shape} and {actions} actions"
