"""A `Run` of files that a run leaves: metrics, verdict, state, picture, without any process.

What `rljob.run` takes and refuses before anything is started, and what importing `rljob` costs.
"""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import rljob
from rljob.api import dump_manifest, parse_job, with_code
from rljob.api.conditions import Reason
from rljob.api.document import parse_document
from rljob.api.problems import ABSENT
from rljob.api.status import Condition, RLJobStatus
from rljob_operator.local.run_folder import CONTROLLER_LOG, JOB_FILE, STATUS_FILE, ControllerLock, prepare, write_json
from rljob_operator.python.handle import Metrics
from rljob_operator.python.start import as_written

from tests.support.paths import EXAMPLES

RECORDS = [
    {"kind": "machine", "versions": {}, "time_unix": 1.0, "elapsed_seconds": 0.0, "updates": 0, "raw_frames": 0},
    {"mean_return": 20.0, "elapsed_seconds": 2.0, "updates": 5, "raw_frames": 100},
    {"kind": "evaluation", "mean": 30.5, "standard_error": 0.5, "episodes": 100, "finished": True, "raw_frames": 150},
    {"mean_return": 40.0, "loss": 0.5, "elapsed_seconds": 4.0, "updates": 9, "raw_frames": 200},
    {"kind": "evaluation", "mean": 12.0, "episodes": 20, "finished": False, "raw_frames": 190},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run_dir = tmp_path / "run"
    prepare(run_dir, resume=False)
    (run_dir / JOB_FILE).write_text((EXAMPLES / "cartpole-ppo.yaml").read_text())
    return run_dir


@pytest.fixture
def run(folder: Path) -> rljob.Run:
    return rljob.attach(folder)


def write(folder: Path, type: str, reason: str, message: str) -> None:
    conditions = [
        Condition(type="Ready", status="False", reason=reason, message=message, last_transition_time=1.0),
        Condition(type=type, status="True", reason=reason, message=message, last_transition_time=1.0),
    ]
    write_json(folder / STATUS_FILE, RLJobStatus(start_time=1.0, conditions=conditions).document())


def test_the_figures_are_columns_of_one_length(folder: Path, run: rljob.Run) -> None:
    assert run.metrics() == {}
    (folder / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in RECORDS) + '{"mean_re')
    assert run.metrics() == {
        "mean_return": [20.0, 40.0],
        "elapsed_seconds": [2.0, 4.0],
        "updates": [5, 9],
        "raw_frames": [100, 200],
        "loss": [None, 0.5],
    }
    assert run.metrics("evaluation")["mean"] == [30.5, 12.0]
    with pytest.raises(
        rljob.UsageError, match=r"metrics of 'evaluations'.* there are evaluation, checkpoint, machine, l"
    ):
        run.metrics("evaluations")
    verdict = run.verdict
    assert (verdict.mean, verdict.standard_error, verdict.episodes) == (30.5, 0.5, 100)


def test_a_table_is_made_where_pandas_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """pandas is no requirement, so a stand-in of its one class stands here for what it is given."""
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda columns: ("table", columns)))
    assert Metrics.of([{"a": 1}, {"b": 2}]).to_pandas() == ("table", {"a": [1, None], "b": [None, 2]})
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(rljob.UsageError, match="pip install pandas"):
        Metrics.of([]).to_pandas()


def test_how_it_stands(folder: Path, run: rljob.Run) -> None:
    assert (run.folder, Path(run), run.status.state) == (folder, folder, "Lost")
    last = "ModuleNotFoundError: No module named 'rljob_operator'"
    (folder / CONTROLLER_LOG).write_text(f"a line\n{last}\n")
    assert (last in run.status.message, last in run.why()) == (True, True)
    assert run.wait(0) is run, "without a controller nothing more will come of it"
    with ControllerLock(folder):
        assert run.status == ("Starting", "")
        with pytest.raises(TimeoutError, match=r"is Starting after 0\.3 s, and goes on"):
            run.wait(0.3)
    refused = "learner refused the job: no network for it"
    write(folder, "Failed", Reason.FAILURE_POLICY_RULE, refused)
    assert (run.status.message, refused in run.why(), run.verdict) == (refused, True, None)
    assert run.logs("controller", tail=1) == f"controller  {last}"


def test_a_picture_never_raises(folder: Path, run: rljob.Run) -> None:
    write(folder, "Failed", Reason.FAILURE_POLICY_RULE, "<b>no</b>")
    assert "&lt;b&gt;no&lt;/b&gt;" in run._repr_html_()
    (folder / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in RECORDS))
    shown = run._repr_html_()
    for words in ("verdict: 30.50 +- 0.50 (100 games)", "<svg", "training, last 20 games"):
        assert words in shown
    (folder / JOB_FILE).unlink()
    assert "not a run folder" in run._repr_html_()


def test_progress_is_lines_or_a_picture_that_is_drawn_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], run: rljob.Run
) -> None:
    """IPython is no requirement; a stand-in takes what a notebook would be shown."""
    write(folder, "Complete", Reason.TARGET_RETURN_REACHED, "mean return 500")
    run.wait(progress=True)
    heading, row = (line.split()[:2] for line in capsys.readouterr().out.splitlines())
    assert (heading, row) == (["NAME", "STATE"], ["cartpole-ppo", "TargetReturnReached"])
    drawn: list[Any] = []
    notebook, display = ModuleType("IPython"), ModuleType("IPython.display")
    monkeypatch.setattr(notebook, "get_ipython", lambda: SimpleNamespace(kernel=object()), raising=False)
    monkeypatch.setattr(
        display, "display", lambda what, display_id: SimpleNamespace(update=drawn.append), raising=False
    )
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    run.wait(progress=True)
    assert (drawn, capsys.readouterr().out) == ([run], "")


CARTPOLE = EXAMPLES / "cartpole-ppo.yaml"
HEAD: dict[str, Any] = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": "mine"}}


@pytest.mark.parametrize(
    ("manifest", "name", "environment"),
    [
        ("PongVTrace", "pongvtrace", "ALE/Pong-v5"),
        (str(CARTPOLE), "cartpole-ppo", "CartPole-v1"),
        (CARTPOLE, "cartpole-ppo", "CartPole-v1"),
        ({**HEAD, "spec": {"environment": {"id": "CartPole-v1"}}}, "mine", "CartPole-v1"),
    ],
)
def test_what_names_a_job(manifest: Any, name: str, environment: str) -> None:
    job = parse_job(as_written(manifest, [])[0])
    assert (job.metadata.name, job.spec.environment.id) == (name, environment)


def test_values_of_python_become_fields() -> None:
    given = {
        "algorithm.learningRate": np.float32(0.25),
        "seed": np.int64(3),
        "actors.resources.limits.cpu": 2,
        "environment.kwargs": {"sizes": np.array([1, 2.0]), "at": Path("maps/one"), "soft": True, "mode": "1e3"},
        "environment.kwargs.\U0001f600": ("on", 2.0, -0.0, 10**299),
        "successPolicy.targetReturn": ABSENT,
        "environment.kwargs.gone": ABSENT,
        "metadata.name": "other",
    }
    job = parse_job(as_written(CARTPOLE, [*given.items()])[0])
    assert job.metadata.name == "other"
    assert (job.spec.algorithm.parameters.learning_rate, job.spec.seed) == (0.25, 3)
    kwargs = {
        "sizes": [1.0, 2.0],
        "at": "maps/one",
        "soft": True,
        "mode": "1e3",
        "\U0001f600": ["on", 2.0, -0.0, 10**299],
    }
    stored = parse_job(parse_document(dump_manifest(job).encode(), "job.yaml"))
    assert repr(stored.spec.environment.kwargs) == repr(job.spec.environment.kwargs) == repr(kwargs)
    assert job.spec.success_policy.target_return is None
    assert str(job.spec.actors.resources.limits["cpu"]) == "2"


def test_what_is_too_large_to_be_read_again_is_refused(tmp_path: Path) -> None:
    with pytest.raises(rljob.ManifestError, match=r"job\.yaml: has .* bytes; allowed: up to"):
        rljob.run(CARTPOLE, set={"environment.kwargs.x": "x" * 600_000}, folder=tmp_path / "run")


def test_files_are_named_by_their_whole_paths_and_on_a_cluster_from_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    for folder in (tmp_path, here):
        (folder / "game.py").write_text("def make(): ...\n")
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / "job.yaml"
    file.write_text(CARTPOLE.read_text().replace("CartPole-v1", "'game.py:make'"))
    chosen = [("environment.id", "game.py:make")]
    plain = {**HEAD, "spec": {"environment": {"id": "game.py:make"}}}
    for manifest, overrides, folder in (
        (file, [], tmp_path),
        ("~/job.yaml", [], tmp_path),
        (file, chosen, here),
        (plain, [], here),
        ("PPOVector", chosen, here),
    ):
        written, beside = as_written(manifest, overrides)
        assert written["spec"]["environment"]["id"] == f"{folder}/game.py:make"
        sent, code = with_code(written, beside)
        name = sent["spec"]["environment"]["id"].removesuffix(":make")
        assert code is not None
        assert name in code.names
        assert beside.absolute() / name == folder / "game.py"


WRONG = {
    "algorithm.ppo.learningRat": (
        0.1,
        "spec.algorithm.ppo.learningRat: got 0.1; unknown field; did you mean 'spec.algorithm.learningRate'?",
    ),
    "actors.replicas": ("many", "spec.actors.replicas"),
    "a b": (1, "allowed: a path such as actors.replicas"),
}


@pytest.mark.parametrize("path", WRONG)
def test_a_mistake_is_told_in_the_command_lines_words_before_anything_is_made(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    value, words = WRONG[path]
    with pytest.raises(rljob.ManifestError) as wrong:
        rljob.run(CARTPOLE, set={path: value})
    assert words in str(wrong.value)
    assert not any(tmp_path.iterdir())
    command = [sys.executable, "-m", "rljob_operator", "run", str(CARTPOLE), "--set", f"{path}={value}"]
    typed = subprocess.run(command, capture_output=True, text=True, check=False)
    said = [line.removeprefix("rljob: ") for line in typed.stderr.splitlines()]
    assert (typed.returncode, len(said)) == (2, len(str(wrong.value).splitlines()))
    if path != "a b":  # what was typed is shown there as it was typed
        assert said == [line.replace("got 0.1", "got 0.1") for line in str(wrong.value).splitlines()]


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ("PongVTrac", "did you mean 'PongVTrace'?"),
        ("-", "allowed: a file, a dict, or the name of an example or a preset"),
        ("none.yaml", "none.yaml: cannot be read: No such file or directory"),
        ({**HEAD, "spec": {"environment": {"id": lambda: None}}}, "write it into a file, say env.py"),
    ],
)
def test_what_names_no_job(manifest: Any, words: str) -> None:
    with pytest.raises(rljob.ManifestError) as wrong:
        rljob.run(manifest)
    assert words in str(wrong.value)


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("value", "place", "words"),
    [
        ({1, 2}, "", "got {1, 2}; allowed: texts, finite numbers"),
        (b"1", "", "allowed: texts"),
        ([1, {"x": np.float32("inf")}], "[1].x", "got inf; allowed: texts, finite numbers"),
        (10**5000, "", "integers of up to 300 digits"),
        ({"a": {1: 2}}, ".a", "allowed as a key: text that is valid Unicode, not 1"),
        ("\ud83d", "", "allowed: text that is valid Unicode"),
        ({"\ud83d": 1}, "", "allowed as a key"),
        (LOOP, "", "it may contain itself"),
        (np.zeros(200_000), "", "up to 100,000 values"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_no_manifest_can_hold_is_refused_by_its_path(value: Any, place: str, words: str) -> None:
    held = {**HEAD, "spec": {"environment": {"id": "CartPole-v1", "kwargs": {"x": value}}}}
    for refused in (lambda: rljob.run(held), lambda: rljob.run(CARTPOLE, set={"environment.kwargs.x": value})):
        with pytest.raises(rljob.ManifestError) as wrong:
            refused()
        (problem,) = wrong.value.problems
        assert problem.path == f"spec.environment.kwargs.x{place}"
        assert words in str(problem)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"folder": "here", "namespace": "team"}, "leave out the namespace"),
        ({"max_seconds": 0}, "max_seconds is 0; allowed: 1 or more"),
        ({"max_actors": -2}, "max_actors is -2"),
        ({"max_actors": 2.5}, "max_actors is 2.5; allowed: a whole number"),
        ({"folder": "."}, "not empty"),
        ({"set": ["algorithm.gamma=0.9"]}, "set: got .*; allowed: a dict of paths and values"),
    ],
)
def test_options_that_can_not_be(
    options: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept.txt").write_text("")
    with pytest.raises((rljob.UsageError, rljob.ManifestError), match=words):
        rljob.run(CARTPOLE, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["kept.txt"]


def test_a_folder_that_is_no_run_is_not_attached_to(tmp_path: Path) -> None:
    with pytest.raises(rljob.UsageError, match="not a run folder"):
        rljob.attach(tmp_path)


def test_importing_loads_nothing_until_a_name_is_used() -> None:
    code = (
        "import sys, rljob\n"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in ('rljob', 'rljob_operator', 'pydantic', 'yaml')))\n"
        "print({'run', 'attach', 'Run', 'load_policy', '__version__'} <= set(dir(rljob)), rljob.__version__)\n"
        "rljob.run, rljob.attach, rljob.Run, rljob.ManifestError\n"
        "heavy = ('torch', 'numpy', 'gymnasium', 'kubernetes', 'aiohttp', 'kopf', 'tensorboard', 'IPython', 'pandas')\n"
        "print([m for m in heavy if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['rljob']", f"True {version('rljob')}", "[]"]
