"""A test that is a coroutine function runs in an event loop of its own; a job that trains is given to whoever asks for it."""

from __future__ import annotations

import asyncio
import inspect

import pytest

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
