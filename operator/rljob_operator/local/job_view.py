"""A run seen from outside, by a verb in another terminal: its stored object, what the controller wrote, and its running
processes.

``status.json``: the job's status for its readers, and the controller's own memory, which outlives its process.
"""

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from rljob.api import ManifestError
from rljob.api.document import parse_document
from rljob.api.learner_status import LearnerStatus
from rljob.api.status import RLJobStatus

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
)
from rljob_operator.polls.reach import Direct, statuses
from rljob_operator.view.job_view import JobView, stale_seconds


def read_status(run_dir: Path) -> tuple[RLJobStatus, str]:
    """What the controller wrote last, a new one where there is none; and why it can't be read, empty where it can."""
    try:
        content = json.loads((run_dir / STATUS_FILE).read_bytes())
        return RLJobStatus.model_validate(content, by_alias=True, by_name=False), ""
    except FileNotFoundError:
        return RLJobStatus(), ""
    except (OSError, ValueError, ValidationError) as error:
        return RLJobStatus(), f"{run_dir / STATUS_FILE} can't be read ({type(error).__name__})"


_LEAST_BYTES = 1 << 16
_LAST_LINES = 3


def look(run_dir: Path, *, figures: bool = True) -> JobView:
    """Look at the run in ``run_dir`` now; ``figures`` also asks its learner and inference servers. Never raises for a damaged
    file."""
    status, problem = read_status(run_dir)
    running = running_members(run_dir)
    document: dict[str, Any] = {}
    controller = holder(run_dir)
    if controller is None and status == RLJobStatus():  # it has ended before it could say more
        problem = problem or "; ".join(tail(run_dir / CONTROLLER_LOG, _LAST_LINES))
    try:
        document = parse_document((run_dir / JOB_FILE).read_bytes(), str(run_dir / JOB_FILE))
    except (OSError, ManifestError, yaml.YAMLError) as error:
        problem = problem or str(error)
    asked = [name for name in running if figures and (name in LEADERS or name.startswith("inference-"))]
    answers, silent = asyncio.run(statuses(Direct(1.0), metrics_urls(run_dir, asked)))
    problem = problem or silent
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


def metrics_urls(run_dir: Path, members: Iterable[str]) -> dict[str, str]:
    """Where members are asked, as far as they have announced that."""
    announced = {name: read_json(run_dir / "roles" / f"{name}.json").get("metrics_url") for name in members}
    return {name: str(url) for name, url in announced.items() if url}


def running_members(run_dir: Path) -> dict[str, int]:
    """Process ids of the members of a run that run now, by name."""
    running = {}
    for path in sorted((run_dir / "roles").glob("*.process.json")):
        with contextlib.suppress(TypeError):  # a file that was cut off
            if (process := ProcessIdentity(**read_json(path))).alive:
                running[path.name.removesuffix(".process.json")] = process.pid
    return running
