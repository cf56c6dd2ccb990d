"""A job that trains, and failures that are soon forgiven, for whoever asks for them."""

from collections.abc import Iterator

import pytest
from rljob_operator.core.rules import failures

from tests.support.controller import Controller, running


@pytest.fixture
def controller() -> Controller:
    """Of a job that is up and trains."""
    return running()


@pytest.fixture(scope="module")
def soon_forgiven() -> Iterator[float]:
    """After so many healthy seconds failures are forgiven, instead of after an hour, which takes many looks."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(failures, "FORGIVEN_SECONDS", 100.0)
        yield failures.FORGIVEN_SECONDS
