"""A run's figures as plain columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rljob.errors import UsageError


class Metrics(dict[str, list[Any]]):
    """Column -> its values, one for each record, oldest first; None where a record lacks it."""

    @classmethod
    def of(cls, records: Sequence[Mapping[str, Any]]) -> Metrics:
        """The columns of ``records``, in the order in which they first come."""
        names = dict.fromkeys(name for record in records for name in record)
        return cls({name: [record.get(name) for record in records] for name in names})

    def to_pandas(self) -> Any:
        """The same as a pandas DataFrame. Raises UsageError where pandas is not installed."""
        try:
            from pandas import DataFrame  # type: ignore[import-untyped]
        except ImportError:
            raise UsageError(
                "metrics().to_pandas() needs pandas: pip install pandas; the columns are there without"
            ) from None
        return DataFrame(self)
