"""A run seen from outside, by a verb in another terminal: its stored object, what the controller wrote, and its running
processes.

``status.json``: the job's status for its readers, and the controller's own memory, which outlives its process.
"""

import asyncio
import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from rljob.api import ManifestError
from rljob.api.document import parse_document
from rljob.api.learner_status import LearnerStatus
from rljob.api.status import RLJobStatus
from rljob.api.status_document import json_document

from rljob_operator.core.member import LEADERS, leader
from rljob_operator.local.log_files import tail
from rljob_operator.local.run_folder import (
    CONTROLLER_LOG,
    JOB_FILE,
    STATUS_FILE,
    Holder,
    ProcessIdentity,
    holder,
    read_json,
    resume_command,
    write_json,
)
from rljob_operator.polls.reach import Direct, NoAnswer
from rljob_operator.view.job_view import JobView, stale_seconds

WRITE_SECONDS = 1.0
"""Changes that no reader has to act on are written at most this often."""


class StatusFile:
    """Holds exactly the CRD's ``status``, replaced in one step. ``problem`` says why the newest one is not on the disk."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / STATUS_FILE
        self._written: RLJobStatus | None = None
        self._next = 0.0
        self.problem = ""

    def load(self) -> RLJobStatus | None:
        """What the controller before wrote; None where there is no file, or one that can't be read."""
        self.problem = ""
        try:
            return RLJobStatus.model_validate(json.loads(self._path.read_bytes()), by_alias=True, by_name=False)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, ValidationError) as error:
            self.problem = f"{self._path} can't be read ({type(error).__name__})"
            return None

    def write(self, status: RLJobStatus, *, at_once: bool) -> None:
        """Write a status that has changed: ``at_once``, or with the next one that is due.

        A disk that doesn't take it is told in ``problem`` and tried again; training does not depend on it.
        """
        now = time.monotonic()
        if status == self._written or not (at_once or now >= self._next):
            return
        self._next = now + WRITE_SECONDS
        try:
            write_json(self._path, status.document())
        except OSError as error:
            self.problem = f"{self._path} can't be written: {error.strerror}"
            return
        self._written, self.problem = status, ""


_LEAST_BYTES = 1 << 16
_LAST_LINES = 3


def look(run_dir: Path, *, figures: bool = True) -> JobView:
    """Look at the run in ``run_dir`` now; ``figures`` also asks its learner and inference servers. Never raises for a damaged
    file."""
    file = StatusFile(run_dir)
    status = file.load() or RLJobStatus()
    running = running_members(run_dir)
    document: dict[str, Any] = {}
    controller = holder(run_dir)
    problem = file.problem
    if controller is None and status == RLJobStatus():  # it has ended before it could say more
        problem = problem or "; ".join(tail(run_dir / CONTROLLER_LOG, _LAST_LINES))
    try:
        document = parse_document((run_dir / JOB_FILE).read_bytes(), str(run_dir / JOB_FILE))
    except (OSError, ManifestError, yaml.YAMLError) as error:
        problem = problem or str(error)
    answers: dict[str, dict[str, Any]] = {}
    for name in running if figures else ():
        if name in LEADERS or name.startswith("inference-"):
            try:
                answers[name] = member_status(run_dir, name)
            except (NoAnswer, ValueError) as no:
                problem = problem or f"{name}: {no}"
    learner = LearnerStatus.lenient(leader(answers) or {})
    problem = _unwritten(run_dir, status, controller) or problem
    return JobView(
        str(run_dir),
        document,
        status,
        controller is not None,
        tuple(running),
        learner,
        servers={name: answer for name, answer in answers.items() if name not in LEADERS},
        problem=problem,
        resumed_by=resume_command(run_dir),
        further={"CONTROLLER": str(controller or "-").removeprefix("pid "), "FOLDER": str(run_dir)},
    )


def _unwritten(run_dir: Path, status: RLJobStatus, controller: Holder | None) -> str:
    """Why the status may not be the newest although a controller lives; empty where it should be."""
    if controller is None or status.finished:
        return ""
    if controller.process is not None and not controller.process.of_here:
        return f"its controller is {controller}: only there can its processes be reached"
    disk = os.statvfs(run_dir)
    if disk.f_bavail * disk.f_frsize < _LEAST_BYTES:
        return f"no space left on the disk of {run_dir}: this is the last status that could be written; free some space"
    old = stale_seconds(status, time.time())
    if old is not None:
        return f"the status is {old:.0f} s old: its controller ({controller}) does not answer, or can't write it"
    return ""


def member_status(run_dir: Path, name: str, timeout_seconds: float = 1.0) -> dict[str, Any]:
    """The status document of one member; empty while it has announced no address. Raises NoAnswer, or ValueError for none."""
    url = read_json(run_dir / "roles" / f"{name}.json").get("metrics_url")
    return json_document(asyncio.run(Direct(timeout_seconds).read(str(url), "status"))) if url else {}


def running_members(run_dir: Path) -> dict[str, int]:
    """Process ids of the members of a run that run now, by name."""
    running = {}
    for path in sorted((run_dir / "roles").glob("*.process.json")):
        with contextlib.suppress(TypeError):  # a file that was cut off
            if (process := ProcessIdentity(**read_json(path))).alive:
                running[path.name.removesuffix(".process.json")] = process.pid
    return running
