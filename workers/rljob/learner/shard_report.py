"""What one replay shard has reported, as it is added up: totals that never fall, and no figures of a shard that is gone."""

from dataclasses import dataclass, replace

from rljob.ingest.shard_status import ShardStatus


@dataclass(frozen=True, slots=True)
class _Totals:
    """The totals of a status, of one life of a service or of all of them."""

    inserted: int = 0
    sampled: int = 0
    episodes: int = 0
    steps: int = 0
    raw_frames: int = 0

    @classmethod
    def of(cls, status: ShardStatus) -> "_Totals":
        return cls(
            status.inserted_total,
            status.sampled_total,
            status.episodes_total,
            status.steps_total,
            status.raw_frames_total,
        )

    def after(self, last: "_Totals", new: "_Totals") -> "_Totals":
        """These totals, of which ``last`` was the newest part, once ``new`` was reported.

        A shard counts transitions and games of its own part: one that begins from nothing adds to what was counted before. Every
        shard counts the steps of the whole run: one that begins from nothing counts what is in the older figure again.
        """
        return _Totals(
            self.inserted + max(0, new.inserted - last.inserted),
            self.sampled + max(0, new.sampled - last.sampled),
            self.episodes + max(0, new.episodes - last.episodes),
            max(self.steps, new.steps),
            max(self.raw_frames, new.raw_frames),
        )


class ShardReport:
    """The latest status of one shard, over all the services that bear its number. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._status: ShardStatus | None = None
        self._last = _Totals()
        self._totals = _Totals()
        self._heard_at = 0.0

    def heard(self, status: ShardStatus, now: float) -> None:
        """Take in what the shard has reported."""
        # One that warms up has not read yet from where it will go on counting.
        if status.state != "warming" or self._status is None:
            new = _Totals.of(status)
            self._totals, self._last = self._totals.after(self._last, new), new
        totals = self._totals
        self._heard_at = now
        self._status = replace(
            status,
            inserted_total=totals.inserted,
            sampled_total=totals.sampled,
            episodes_total=totals.episodes,
            steps_total=totals.steps,
            raw_frames_total=totals.raw_frames,
        )

    def status(self, now: float, *, gone: bool) -> ShardStatus | None:
        """The status with the totals of all lives; None before the first. For one that is ``gone``, what remains true."""
        status = self._status
        return status.gone(now - self._heard_at) if gone and status is not None else status
