"""The errors of this room."""

from __future__ import annotations

from typing import Any


class EnvironmentProblem(RuntimeError):
    """An environment cannot be made or has stopped working.

    The first line of the message says what is wrong, where, and what would be right; it is meant to be shown as it is.
    ``environment`` is the index of the environment at fault inside its vector, or ``None`` when all are.
    """

    def __init__(self, message: str, *, environment: int | None = None) -> None:
        super().__init__(message)
        self.environment = environment

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions travel from worker processes by pickle, which would forget the keyword argument.
        return _rebuild, (type(self), str(self), self.environment)


class UnknownEnvironment(EnvironmentProblem):
    """Nothing registers an environment of that id here."""


def _rebuild(kind: type[EnvironmentProblem], message: str, environment: int | None) -> EnvironmentProblem:
    return kind(message, environment=environment)
