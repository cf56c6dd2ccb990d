"""Roles as processes of their own."""

from __future__ import annotations

import sys


def worker_command(role: str, **options: object) -> list[str]:
    """`rljob worker` of ``role``; ``options`` by their names, with underscores."""
    words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    return [sys.executable, "-m", "rljob.cli", "worker", role, *words]
