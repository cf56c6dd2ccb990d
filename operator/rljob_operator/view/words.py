"""Numbers and times as people read them; a dash stands for what is not known."""

from typing import Any


def number(value: Any, form: str) -> str:
    """``value`` in ``form``, or a dash where it is no number."""
    return form.format(value) if isinstance(value, int | float) and not isinstance(value, bool) else "-"


def percent(fraction: Any) -> str:
    """A share of 1 as percent."""
    return number(100.0 * fraction if isinstance(fraction, int | float) else None, "{:.0f} %")


def milliseconds(seconds: Any) -> str:
    """A short time."""
    return number(1000.0 * seconds if isinstance(seconds, int | float) else None, "{:.1f} ms")


def bytes_of(count: Any) -> str:
    """A number of bytes in MiB, or in KiB below one; a dash where it is unknown."""
    if not isinstance(count, int | float) or count < 1 << 20:
        return number(count / 1024 if isinstance(count, int | float) else None, "{:,.0f} KiB")
    return f"{count / (1 << 20):,.0f} MiB"


def duration(seconds: float | None) -> str:
    """Seconds as 1:02:03 or 2:03."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def age(seconds: float) -> str:
    """Seconds as kubectl writes an age: 45s, 12m, 3h5m, 2d4h."""
    seconds = max(0, int(seconds))
    if seconds < 120:
        return f"{seconds}s"
    minutes = seconds // 60
    if minutes < 120:
        return f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h{minutes}m" if minutes else f"{hours}h"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours}h" if hours else f"{days}d"
