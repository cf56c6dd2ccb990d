"""The server inside the learner: weights by reference, and a failure that the learner hears of."""

from __future__ import annotations

import time
import uuid

import pytest
from rljob.inference.in_learner import InferenceThread, LatestWeights
from rljob.inference.server import InferenceServer
from rljob.threads import ThreadEnded, check_threads
from rljob.weights.exchange import WeightServer

from tests.support.inference import apex, impala
from tests.support.waiting import eventually


def test_published_weights_are_taken_by_reference_and_once() -> None:
    setup, base = apex(), f"inproc://{uuid.uuid4().hex}"
    published = WeightServer(base + "w", base + "n")
    source = LatestWeights(published)
    try:
        assert source.poll() is None
        published.publish(setup.network(), 1, 1, {})
        assert source.poll() is published.latest
        assert source.poll() is None
        published.publish(setup.network(), 2, 1, {})
        published.publish(setup.network(), 3, 1, {})
        assert source.poll().version == 3
    finally:
        published.close()


def test_what_ends_the_server_ends_the_learner() -> None:
    base = f"inproc://{uuid.uuid4().hex}"
    published = WeightServer(base + "w", base + "n")
    server = InferenceServer(base + "i", apex().model(), LatestWeights(published), 0.0)
    try:
        with InferenceThread(server) as serving:
            check_threads()
            published.publish(impala().network(), 1, 1, {})  # another network
            eventually(lambda: serving.status()["state"] == "Stopped", "it went on with weights of another network")
            time.sleep(0.1)
            with pytest.raises(ThreadEnded, match=r"thread inference has ended: OtherNetwork: .* another network"):
                check_threads()
    finally:
        published.close()
