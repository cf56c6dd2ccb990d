"""A small search on a cluster: applied, its operator killed in the middle, to its end, and deleted with all that is of it."""

import json

from rljob_operator.experiments.journal import replayed

from tests.e2e.cluster import LONG_SECONDS, Namespace, pause, requests
from tests.e2e.operator_process import OperatorProcess
from tests.support.waiting import eventually

Object = dict[str, object]
NAME = "search"
SEARCH = {
    "apiVersion": "rljob.dev/v1alpha1",
    "kind": "RLExperiment",
    "metadata": {"name": NAME},
    "spec": {
        "template": {
            "spec": {
                "preset": "CartPoleIMPALA",
                # Without a limit two of them step 200,000 frames before the operator, which they starve, has judged one.
                "actors": {"replicas": 1, "resources": {"requests": {"cpu": "50m"}, "limits": {"cpu": "400m"}}},
                "learner": requests(),
                "evaluator": {"enabled": False, "episodes": 5, **requests()},
                "presetWithout": ["successPolicy.targetReturn"],
            }
        },
        "search": {"grid": {}, "parameters": {"algorithm.learningRate": {"values": [0.0005, 0.005]}}},
        "prune": {"halving": {"firstRawFrames": 20_000, "factor": 8}},
        "budget": {"rawFrames": 160_000},
        "parallelism": 2,
    },
}


def test_a_search_goes_to_its_end_whoever_is_killed(namespace: Namespace, operator: OperatorProcess) -> None:
    namespace.apply(SEARCH)
    seen = lambda: namespace.get("rlexperiment", NAME) or {}  # noqa: E731
    judged = lambda: dict(seen().get("status") or {}).get("rows", [])  # noqa: E731
    eventually(judged, namespace.describe, LONG_SECONDS, pause)
    operator.kill()
    operator.start()
    namespace.kubectl("wait", f"rlexperiment/{NAME}", "--for=condition=Complete", "--timeout=420s", seconds=440)

    status = seen()["status"]
    assert (status["trials"], status["done"], status["running"], status["failed"]) == (2, 2, 0, 0)
    assert status["fresh"]["episodes"] == 5
    jobs = {each["metadata"]["name"]: each for each in namespace.list("rljobs")}
    assert set(jobs) == {f"{NAME}-0", f"{NAME}-1"}
    assert set(status["runs"]) < set(jobs), "the best may be the pruned one, whose weights are kept"
    ends = {namespace.condition(name, state).get("reason") for name in jobs for state in ("Complete", "Suspended")}
    assert ends >= {"StepBudgetReached", "UserRequested"}
    journal = namespace.list("configmaps", f"rljob.dev/experiment={NAME}")
    lines = "".join(each["data"]["journal.jsonl"] for each in journal).encode().splitlines(keepends=True)
    assert replayed(lines).end is not None
    kinds = [json.loads(line)["kind"] for line in lines]
    assert [kinds.count(kind) for kind in ("Start", "Score", "Promote", "Prune", "End", "Verdict")] == [
        2,
        3,
        1,
        1,
        1,
        1,
    ]
    assert "trial 0 starts" in namespace.kubectl("describe", "rlexperiment", NAME)

    namespace.kubectl("delete", "rlexperiment", NAME)
    kinds_of_it = "rljobs,configmaps,pods,pvc"
    eventually(
        lambda: not namespace.list(kinds_of_it, f"rljob.dev/experiment={NAME}") and not namespace.list("rljobs"),
        namespace.describe,
        LONG_SECONDS,
        pause,
    )
    namespace.wait_empty()
