"""The examples train on a cluster: CartPole to its end, and Pong with a learner that has no GPU."""

from tests.e2e.cluster import LONG_SECONDS, Namespace, cartpole, job, pause, requests
from tests.support.waiting import eventually

GPU_NODE = "nvidia.com/gpu.present"
ACTORS = 2
FRAMES = 20_000
"""Raw frames that are played and learned from before the test has seen enough."""


def test_pong_trains_with_a_learner_on_the_cpu(namespace: Namespace) -> None:
    learner = {
        **requests(),
        "accelerator": {"count": 0},
        "nodeSelector": {GPU_NODE: "true"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    }
    actors = {"replicas": ACTORS, "envsPerActor": 4, "spot": True, **requests()}
    spec = {"learner": learner, "actors": actors, "evaluator": {"enabled": False}}
    namespace.apply(job("pong", preset="PongVTrace", **spec))
    namespace.wait_for("pong", "Ready", "True", "Running")

    labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in namespace.list("nodes")}
    places = {member: labels[pod["spec"]["nodeName"]] for member, pod in namespace.pods("pong").items()}
    assert set(places) == {"learner", "actor-0", "actor-1"}
    assert GPU_NODE in places["learner"]
    assert all(places[f"actor-{k}"].get("rljob.dev/spot") == "true" for k in range(ACTORS))

    eventually(
        lambda: namespace.learner_figures("pong").get("raw_frames_total", 0) >= FRAMES,
        lambda: namespace.learner_figures("pong"),
        LONG_SECONDS,
        pause,
    )
    figures = namespace.learner_figures("pong")
    namespace.wait_updates("pong", more_than=figures["updates"])
    print(
        f"{figures['updates']} updates, {figures['raw_frames_total']} raw frames, return {figures.get('mean_return')}"
    )
    assert namespace.condition("pong", "Progressing")["reason"] == "LearnerAdvancing"
    assert namespace.job_status("pong")["restarts"] == {"counted": 0, "ignored": 0}


def test_cartpole_trains_to_complete_and_leaves_nothing(namespace: Namespace) -> None:
    namespace.apply(cartpole())
    namespace.kubectl("wait", "rljob/cartpole", "--for=condition=Complete", "--timeout=540s", seconds=560)

    status = namespace.job_status("cartpole")
    assert namespace.condition("cartpole", "Complete")["reason"] == "TargetReturnReached"
    assert namespace.condition("cartpole", "Ready")["reason"] == "Complete"
    assert float(status["progress"]["evalReturn"]) >= 475
    assert status["progress"]["learnerUpdates"] > 0
    assert status["checkpoint"]["digest"]
    assert (status["restarts"], status["actors"]["replicas"]) == ({"counted": 0, "ignored": 0}, 0)
    assert "completionTime" in status
    eventually(lambda: not namespace.all_pods("cartpole"), "pods outlive the job's end", LONG_SECONDS, pause)

    namespace.kubectl("delete", "rljob", "cartpole")
    namespace.wait_empty()
