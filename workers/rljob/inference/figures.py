"""What an inference server counts of itself, and how it tells."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

_REMEMBERED = 4096


class InferenceFigures:
    """Written by the server's thread; ``document`` may be called from any.

    A latency is the time from a request's arrival to its answer, in seconds; percentiles are over the last 4,096.
    """

    def __init__(self) -> None:
        self.requests = self.repeats = self.stale = self.observations = self.batches = self.refused = 0
        self.empty_answers = 0
        self.buckets: Counter[int] = Counter()
        self._latency = np.zeros(_REMEMBERED)
        self._latencies = 0

    def answered(self, latency_seconds: float) -> None:
        """Note that a request was answered."""
        self._latency[self._latencies % _REMEMBERED] = latency_seconds
        self._latencies += 1

    def batch(self, bucket: int, observations: int) -> None:
        """Note that ``observations`` were evaluated together, padded to ``bucket``."""
        self.buckets[bucket] += 1
        self.batches += 1
        self.observations += observations

    def document(self) -> dict[str, Any]:
        """The counts, the mean batch, and the latency."""
        known = self._latency[: min(self._latencies, _REMEMBERED)]
        p50, p99 = (float(value) for value in np.percentile(known, (50, 99))) if len(known) else (None, None)
        computed = sum(size * count for size, count in self.buckets.copy().items())
        return {
            "requests_total": self.requests,
            "repeated_requests_total": self.repeats,
            "stale_requests_total": self.stale,
            "empty_answers_total": self.empty_answers,
            "refused_requests_total": self.refused,
            "observations_total": self.observations,
            "batches_total": self.batches,
            "batch_mean": self.observations / self.batches if self.batches else None,
            "bucket_fill": self.observations / computed if computed else None,
            "latency_p50_seconds": p50,
            "latency_p99_seconds": p99,
            "buckets": {str(size): count for size, count in sorted(self.buckets.copy().items())},
        }
