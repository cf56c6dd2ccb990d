"""What `rljob why --rules` says of runs that were recorded. Pure."""

from collections.abc import Mapping
from typing import Any

from rljob_operator.core.recorded import Judged, Moment


def recorded_lines(runs: Mapping[str, Judged]) -> list[str]:
    """For people: each run with what would have ended it, then all together."""
    lines = []
    for name, run in runs.items():
        solved = f"solved at {_at(run.solved)}" if run.solved is not None else "not solved"
        lines.append(f"{name}: {solved}; the record ends at {_at(run.last)}")
        for rule, end in sorted(run.ends.items(), key=lambda item: item[1].seconds):
            lines.append(f"  {rule} at {_at(end)}{'  <- ends it' if rule == run.given_up else ''}: {end.message}")
    whole = summary(runs)
    lines += [
        "",
        f"{whole['runs']} runs, {whole['solved']} solved. Given up before: {len(whole['solvedGivenUp'])} of those solved, "
        f"{whole['unsolvedGivenUp']} of the others.",
        f"Saved: {whole['savedRawFrames']:,} of {whole['rawFrames']:,} raw frames, {whole['savedSeconds']:,.0f} of "
        f"{whole['seconds']:,.0f} s" + ("." if not whole["solvedGivenUp"] else ", at the cost of what was solved:"),
    ]
    return lines + [f"  {name}" for name in whole["solvedGivenUp"]]


def summary(runs: Mapping[str, Judged]) -> dict[str, Any]:
    """All runs together. What is saved of a run lies between where it would have been given up and where it ended."""
    ended = {name: (run, run.ends[run.given_up]) for name, run in runs.items() if run.given_up is not None}
    return {
        "runs": len(runs),
        "solved": sum(run.solved is not None for run in runs.values()),
        "solvedGivenUp": [name for name, (run, _) in ended.items() if run.solved is not None],
        "unsolvedGivenUp": sum(run.solved is None for run, _ in ended.values()),
        "rawFrames": sum(_end(run).raw_frames for run in runs.values()),
        "savedRawFrames": sum(_end(run).raw_frames - at.raw_frames for run, at in ended.values()),
        "seconds": sum(_end(run).seconds for run in runs.values()),
        "savedSeconds": sum(_end(run).seconds - at.seconds for run, at in ended.values()),
    }


def recorded_document(runs: Mapping[str, Judged]) -> dict[str, Any]:
    """The same as JSON."""

    def moment(at: Moment) -> dict[str, Any]:
        return {"seconds": at.seconds, "rawFrames": at.raw_frames, "meanReturn": at.mean_return, "message": at.message}

    return {
        "runs": {
            name: {
                "solved": run.solved is not None,
                "givenUpBy": run.given_up,
                "end": moment(_end(run)),
                "rules": {rule: moment(at) for rule, at in run.ends.items()},
            }
            for name, run in runs.items()
        },
        "together": summary(runs),
    }


def _end(run: Judged) -> Moment:
    """Where the run ended, or would have once it was solved."""
    return run.solved or run.last


def _at(where: Moment) -> str:
    score = "" if where.mean_return is None else f", training return {where.mean_return:.2f}"
    return f"{where.raw_frames:,} raw frames, {where.seconds:,.0f} s{score}"
