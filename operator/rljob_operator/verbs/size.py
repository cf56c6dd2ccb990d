"""``rljob size``: what a job needs, before anything runs."""

import json
import math
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

import typer
from rljob.api import RLJob, as_found, parse_job, read_manifest, written_job
from rljob.api.document import dump_document
from rljob.api.examples import manifest_file
from rljob.api.experiment import is_experiment
from rljob.api.overrides import read_overrides
from rljob.api.types import quantity
from rljob.cli.validate import SetOption
from rljob.data_plane import require_data_plane
from rljob.errors import UsageError
from rljob.strict_json import dumps
from rljob.telemetry.sizing import NUMBERS, POSITIVE, Measured, parts, requests, sizing, with_requests

from rljob_operator.view.words import bytes_of

_MEGABIT_BYTES = 125_000


def size(
    file: Annotated[Path, typer.Argument(help="The manifest (YAML) of an RLJob.", show_default=False)],
    set_: SetOption = None,
    seconds: Annotated[
        float,
        typer.Option(
            min=30, max=600, help="Longest training, the start of its parts included; the evaluator plays after it."
        ),
    ] = 60.0,
    calibration: Annotated[
        Path | None,
        typer.Option(
            metavar="JSON", help="Numbers in the place of a calibration: what --json printed.", show_default=False
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            metavar="OUT", help="Write a copy of the manifest with resources.requests filled in.", show_default=False
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for scripts.")] = False,
) -> None:
    """Size a job: actors and their cores, memory of each role, network, replay, and how many actors pay off.

    The job trains here for a minute, with one actor and in a temporary folder, while the work of each part is measured: seconds
    with a core and without waiting. The rest follows from that, from the shapes of observations and from the manifest. If other
    programs keep the machine busy, size says so and writes nothing.

    Examples:

        rljob size pong-vtrace

        rljob size my.yaml --write sized.yaml

        rljob size my.yaml --json > here.json

        rljob size my.yaml --calibration here.json
    """
    require_data_plane("rljob size")
    plain = read_manifest(file)
    overrides = read_overrides(set_ or (), plain)
    written = written_job(plain, overrides)
    if is_experiment(written):
        raise UsageError(f"{file}: an RLExperiment is several jobs; give the manifest of one RLJob")
    whole = as_found(plain, overrides, manifest_file(file).parent)
    job = parse_job(whole)
    if calibration is None:
        from rljob_operator.local.calibration import calibrate  # what trains, which a base install lacks

        measured, busy = calibrate(whole, seconds, lambda text: typer.echo(text, err=True))
    else:
        measured, busy = _read(calibration)
        if (job.spec.replay is None) == (measured["stored_bytes"] > 0):
            which = "without" if job.spec.replay is not None else "with"
            raise UsageError(f"{calibration}: its numbers are of a job {which} replay, unlike {file}; calibrate that")
    found = sizing(job, measured)
    document = {"calibration": measured, "busy": busy, "sizing": found}
    typer.echo(dumps(document, 2) if as_json else "\n".join(_lines(job, measured, found)))
    if busy:
        typer.echo(f"not to be believed: {busy}", err=True)
    if write is not None:
        if busy:
            raise UsageError(f"{write} is not written: calibrate again when this machine has nothing else to do")
        _write(write, job, with_requests(written, found["roles"]), found["roles"])


def _read(file: Path) -> tuple[dict[str, float], str]:
    """The numbers in a file, and the words about a busy machine. Raises UsageError."""
    try:
        document = json.loads(file.read_text())
        numbers, busy = {name: document["calibration"][name] for name in NUMBERS}, str(document["busy"])
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}; give what `rljob size --json` printed") from None
    except KeyError as missing:
        raise UsageError(f"{file}: {missing.args[0]} is missing; give what `rljob size --json` printed") from None
    except (ValueError, TypeError):
        raise UsageError(f"{file}: is not what `rljob size --json` printed") from None
    for name, value in numbers.items():
        least = 1 if name == "overlap" else 1e-12 if name in POSITIVE else 0
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < math.inf:
            raise UsageError(f"{file}: {name} ({NUMBERS[name]}): got {value!r}; allowed: a number from {least:g}")
    return numbers, busy


def _lines(job: RLJob, measured: Measured, found: Mapping[str, Any]) -> list[str]:
    """The answer for people."""
    spec, actors = job.spec, found["actors"]
    step, env, acting = (1e6 * measured[f"{part}_seconds"] for part in ("actor", "env", "acting"))
    update = f"{1e3 * measured['update_seconds']:,.2f} ms an update, {measured['updates_per_step']:,.4g} updates a step"
    here = f"{spec.requested_actors} actor{'s' * (spec.requested_actors != 1)} as written"
    arriving, leaving = (found[f"network_{way}_bytes"] / _MEGABIT_BYTES for way in ("in", "out"))
    lines = [
        f"An actor     {1e6 / step:>10,.0f} steps/s: {step:,.1f} us a step, environment {env:,.1f}, acting {acting:,.1f}",
        f"The learner  {1 / measured['learner_seconds']:>10,.0f} steps/s: {update}",
        *(
            f"{which:<12} {1 / seconds:>10,.0f} steps/s{more}"
            for which, seconds, more in (
                ("A shard", parts(measured).shard_seconds(1), ""),
                ("A server", measured["inference_seconds"], ": inference, in the batches of one actor"),
                ("Judging", measured["judging_seconds"], _judging(job, measured)),
            )
            if seconds
        ),
        f"On {measured['cores']:.0f} cores such as here, with {here}: {found['here_steps_per_second']:,.0f} steps/s",
        f"\nThe knee is at {found['knee']:.2f} actors, each part on cores of its own:",
        f"  {'actors':>8}  {'steps/s':>10}  the next one adds",
        *(
            f"  {count:>8}  {rate:>10,.0f}  {100 * more:+.1f} %{'  <- feeds the learner' * (count == actors)}"
            for count, rate, more in found["rows"]
        ),
        f"\nWith {actors}, {found['steps_per_second']:,.0f} steps and {found['updates_per_second']:,.1f} updates a second:",
        *(
            f"  {role:<12} {needs['members']} x {needs['cores']:.2f} cores, {bytes_of(needs['memory_bytes'])}"
            for role, needs in found["roles"].items()
        ),
        f"  {'network':<12} of the learner's node: {arriving:,.2f} Mbit/s of experience in "
        f"({measured['step_bytes']:,.0f} bytes a step), {leaving:,.2f} Mbit/s of weights out",
    ]
    if spec.replay is not None:
        stored = f"{bytes_of(found['replay_bytes'])} when the replay is full, {measured['stored_bytes']:,.0f} bytes a transition"
        lines.append(f"  {'stored':<12} {stored}, and as much in its log")
    return lines


def _judging(job: RLJob, measured: Measured) -> str:
    """How long a verdict takes."""
    evaluator = job.spec.evaluator
    cores = evaluator.resources.cores()
    seconds = evaluator.episodes * 1000 * measured["judging_seconds"] / cores
    return f" a core: {evaluator.episodes} games of 1,000 steps take {seconds:,.0f} s on {cores}"


def _write(out: Path, job: RLJob, sized: Mapping[str, Any], roles: Mapping[str, Mapping[str, float]]) -> None:
    """Raises UsageError where a limit that stands there is below what is needed, and for a disk that takes nothing."""
    for role, needs in roles.items():
        limits = attrgetter(f"{role}.resources.limits")(job.spec)
        for name, amount in requests(needs).items():
            if name in limits and quantity(limits[name]) < quantity(amount):
                raise UsageError(
                    f"spec.{role}.resources.limits.{name}: got {limits[name]}; allowed: at least {amount}, which it needs"
                )
    try:
        out.write_text(dump_document(sized))
    except OSError as error:
        raise UsageError(f"{out}: can't be written: {error.strerror}") from None
    typer.echo(f"written: {out}, with requests of {', '.join(roles)}", err=True)
