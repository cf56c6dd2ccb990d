"""How far sampling may run ahead of inserting, and the reverse: the samples-per-insert limiter."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LimiterConfig:
    """Bounds of a ``SamplesPerInsertLimiter``; all counts are transitions, ``error_buffer`` counts sampled transitions.

    The error is ``inserted * samples_per_insert - sampled``. It may move within ``error_buffer`` on either side of
    ``min_size * samples_per_insert``, its value when sampling starts (the rule of Reverb's ``SampleToInsertRatio``).
    ``insert_step`` and ``sample_step`` are the largest indivisible insert (a chunk) and sample (a batch).
    ``samples_per_insert`` 0 switches the ratio off; sampling then only waits for ``min_size``.

    Raises ``ValueError`` for bounds under which both sides could wait for each other.
    """

    samples_per_insert: float
    min_size: int
    error_buffer: float
    insert_step: int = 1
    sample_step: int = 1

    def __post_init__(self) -> None:
        if self.samples_per_insert == 0:
            return
        if self.error_buffer < self.smallest_error_buffer:
            raise ValueError(
                f"errorBuffer is {self.error_buffer:g} samples: with chunks of {self.insert_step} steps at "
                f"{self.samples_per_insert:g} samples per insert and batches of {self.sample_step}, inserting could be "
                "too far ahead to insert and not far enough to sample, and training would stop for ever; it must be at "
                f"least {self.smallest_error_buffer:g}"
            )

    @property
    def smallest_error_buffer(self) -> float:
        """The smallest buffer that cannot deadlock.

        Inserts wait above ``buffer - insert_step * samples_per_insert`` and samples below ``sample_step - buffer``; the
        two must not overlap.
        """
        together = 0.5 * (self.insert_step * self.samples_per_insert + self.sample_step)
        return max(together, 2.0 * max(1.0, self.samples_per_insert))


class SamplesPerInsertLimiter:
    """Counts inserts and samples, and says whether one more of either is allowed.

    The counters are the state: persist ``inserted`` and ``sampled`` and a new limiter goes on where the old one was.
    Samples are withheld until ``min_size`` transitions were ever inserted, so that a table whose byte limit keeps it
    below ``min_size`` still serves.
    """

    def __init__(self, config: LimiterConfig, inserted: int = 0, sampled: int = 0) -> None:
        self.config, self.inserted, self.sampled = config, inserted, sampled
        self._centre = config.samples_per_insert * config.min_size
        self.limits = config.samples_per_insert > 0
        """Whether a ratio is enforced at all."""

    @property
    def error(self) -> float:
        """Samples by which inserting is ahead of the ratio, counted from where sampling starts. 0 = exactly on it."""
        return self.inserted * self.config.samples_per_insert - self.sampled - self._centre

    @property
    def sample_credit(self) -> float:
        """Samples that may still be drawn before inserting must catch up; 0 before ``min_size``, inf without a ratio."""
        if self.inserted < self.config.min_size:
            return 0.0
        return max(0.0, self.error + self.config.error_buffer) if self.limits else float("inf")

    def can_insert(self, count: int) -> bool:
        """Whether ``count`` more transitions may be inserted now.

        Below ``min_size`` always: nothing can be sampled yet, so that waiting would never end.
        """
        if not self.limits or self.inserted + count - self.config.insert_step < self.config.min_size:
            return True
        return self.error + count * self.config.samples_per_insert <= self.config.error_buffer

    def can_sample(self, count: int) -> bool:
        """Whether ``count`` more transitions may be sampled now."""
        return self.sample_credit >= count

    def insert(self, count: int) -> None:
        """Count inserted transitions, whether or not they were allowed, since they have arrived."""
        self.inserted += count

    def sample(self, count: int) -> None:
        """Count sampled transitions."""
        self.sampled += count

    @property
    def blocked(self) -> str:
        """Which side would have to wait now: ``samples``, ``inserts`` or ``none``. Never both."""
        if not self.can_sample(self.config.sample_step):
            return "samples"
        return "none" if self.can_insert(self.config.insert_step) else "inserts"
