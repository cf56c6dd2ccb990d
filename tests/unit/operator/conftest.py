"""A test that is a coroutine function runs in an event loop of its own; a job that trains is given to whoever asks for it."""

import asyncio
import inspect
from collections.abc import Iterator

import pytest
from rljob_operator.core.rules import failures

from tests.support.controller import Controller, running


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    asked = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in asked}))
    return True


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
