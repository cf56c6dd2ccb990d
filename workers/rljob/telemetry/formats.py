"""How the report writes amounts: durations, moments, counts and sizes. What is no number is an empty text."""

from __future__ import annotations

from datetime import UTC, datetime

from rljob.telemetry.figures import number


def duration(seconds: object) -> str:
    """``4 min 05 s`` and the like; an empty text if it is no number."""
    value = number(seconds)
    if value is None or value < 0:
        return ""
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s" if rest else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def instant(unix_seconds: object) -> str:
    """A moment as ``2026-03-01 12:30:05 UTC``; an empty text if it is none."""
    value = number(unix_seconds)
    if value is None:
        return ""
    try:
        return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, OSError, ValueError):
        return ""


def grouped(count: object) -> str:
    """A whole number with its thousands set apart; an empty text if it is none."""
    value = number(count)
    return "" if value is None else f"{value:,.0f}"


def size(count_bytes: object) -> str:
    """Bytes with a binary unit."""
    value = number(count_bytes)
    if value is None:
        return ""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
