"""``docs/metrics.md``, written from the declarations: ``python -m rljob.telemetry.metrics_page > docs/metrics.md``."""

import sys
from collections.abc import Sequence
from typing import Final

from rljob.telemetry.catalogue import CLEANRL, PROCESS, ROLES, STABLE_BASELINES3, KnownTag, Metric

_HEAD: Final = """# Metrics

<!-- Written by `python -m rljob.telemetry.metrics_page`; a test compares. Change workers/rljob/telemetry/catalogue.py. -->

Every role of a job serves HTTP on its metrics port: `/metrics` (Prometheus), `/healthz` (503 when the role's loop has not
moved for as long as it promised), `/readyz`, and `/status` (JSON). `rljob worker --metrics-host
ADDRESS --metrics-port PORT` (or `RLJOB_METRICS_HOST`, `RLJOB_METRICS_PORT`) say where it listens: 127.0.0.1 and any free port if
nothing is said. A scrape reads the same document that `/status` sends; a value the role does not know is left out, not sent as 0.

`/profile` samples the role for as long as it is asked again and again, as
[`rljob profile`](running-locally.md#where-does-the-time-go) does.

Any client that reaches the port may read it. `POST /checkpoint` of the learner, `POST /ending`, by which the operator tells the
learner of a tracked job how it ends, and `POST /profile`, which has learners and actors record a trace by torch's profiler,
change something: they need the job's token, as `Authorization: Bearer TOKEN` or `X-RLJob-Token: TOKEN`, where the role was
given one (`--token-file FILE` or `RLJOB_TOKEN_FILE`, such as a mounted Secret; it is read anew for each request). Without a
token it is taken on loopback, and off loopback the port is read-only. The answers are 401 for a token that is missing or
wrong, and 403 where the role knows none. `rljob run` makes a token for each run, `roles/request-token` of the run folder, so
`rljob checkpoint` and `suspend` work wherever the learner listens.

Every series has the label `role`, and `actor`, `shard` or `evaluator` with the name of the process. Counters start at 0
with their process, except those "over the whole run", which the replay service keeps.

A **raw frame** is one frame of the emulator; an agent **step** takes several (frame skip). A **transition** is one step
with its n-step return. **Policy lag** is counted in updates of the learner.

**Queue depth** is in batches for both families of algorithms. For a replay (Ape-X DQN) it is the credit that the rate
limiter still grants: how many batches the learner may draw before it must wait for new experience. The number of prefetched
batches (`rljob_ready_batches`) is a sign of health, not of demand: it is full whenever the replay keeps up, whatever the
number of actors. Read depth next to `rljob_learner_wait_fraction` and `rljob_actors_blocked_fraction`, never alone.

"""

_TAIL: Final = """
## The run folder

TensorBoard and `metrics.jsonl` hold the same numbers under the same names, taken from the learner's `/status`: a top-level
number keeps its name (`mean_return`, `queue_depth_batches`, `steps_per_second`, ...), a number of the replay becomes
`replay/<name>`, one of the queue of unrolls `queue/<name>` (`queue/dropped/<reason>`), one of an inference server in the
learner `inference/<name>`, what the environment reports of its episodes `episode/<name>`, the share of a stage in the time
since the record before `stage/<role>/<stage>`, what the processes of a role take `processes/<role>/<name>` (added up; in
`metrics.jsonl` alone), the number of
actors at work `actors_running`, and an evaluation `evaluation/mean`,
`/standard_error`, `/mean_length_steps`, `/episodes`, `/seconds`, `/episode/<name>`. TensorBoard's step is raw frames.
Neither grows without end: `metrics.jsonl` keeps up to 10,000 points that span the run, and those of TensorBoard become rarer as
it goes on: after an hour one in two seconds, after a day one in 17, after a month one in nine minutes, 50 MB in all.

A line of `metrics.jsonl` without `kind` is a point in time: `time_unix`, `elapsed_seconds` (time that the run was going,
pauses left out), `updates`, `raw_frames`, `state`, and the figures. A line with `kind` is an event: `evaluation`,
`checkpoint`, `machine` (processor and versions, at each start) or `learner` (device, precision and rewards, at each change).

### Tags of other libraries

TensorBoard alone has these beside, under names that Stable-Baselines3 and CleanRL give them, so that a dashboard made for
those shows a run of rljob. A tag is there where the figure is, and one that a plug-in reports itself is left to it. Their step is
raw frames, too: of Atari games four for each agent step that the two libraries count, elsewhere the same. Returns and lengths are
means of the last 20 games, where CleanRL writes every game. They add about 0.5 KB to a record of 1.3 KB: 0.9 MB an hour.

| Stable-Baselines3 | CleanRL | figure |
|---|---|---|
"""


def markdown() -> str:
    """The whole page."""
    sections = [_HEAD, _section("All roles", PROCESS)]
    sections += [_section(role.capitalize(), metrics) for role, metrics in ROLES.items()]
    return "\n".join(sections) + _TAIL + _known_tags()


def _known_tags() -> str:
    """The rows of the table of known tags, a figure each."""

    def told(tags: Sequence[KnownTag], figure: str) -> str:
        differs = ((each, f" (times {each.factor:g})" if each.factor != 1.0 else "") for each in tags)
        return ", ".join(
            f"`{each.tag}`{times}" + (f" beside `{each.beside}`" if each.beside else "")
            for each, times in differs
            if each.figure == figure
        )

    figures = dict.fromkeys(each.figure for each in (*STABLE_BASELINES3, *CLEANRL))
    return "".join(f"| {told(STABLE_BASELINES3, name)} | {told(CLEANRL, name)} | `{name}` |\n" for name in figures)


def _section(title: str, metrics: Sequence[Metric]) -> str:
    rows = "\n".join(
        f"| `{metric.full_name}` | {metric.kind} | {f'`{metric.label}`' if metric.label else ''} | {metric.help} |"
        for metric in metrics
    )
    return f"## {title}\n\n| metric | kind | further label | meaning |\n|---|---|---|---|\n{rows}\n"


if __name__ == "__main__":
    sys.stdout.write(markdown())
