"""Random numbers lent to code of a user's own: the two calls that acting may make of its generator, and no others."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray


class LentDraws:
    """Draws for ``rows`` environments, the same ones for the same ``seed``.

    What else a ``numpy.random.Generator`` can do is refused here, in words for its author: where environments act in groups, the
    generator is one that has only these calls, and takes the first extent of ``size`` for the number of environments.
    """

    def __init__(self, seed: int, rows: int) -> None:
        self._generator = np.random.default_rng(seed)
        self._rows = rows

    def random(self, *given: Any, **named: Any) -> NDArray[np.float64]:
        """As ``random(size)`` of a ``RandomNumbers``. Raises ValueError for other arguments."""
        (size,) = self._arguments("random", ("size",), given, named)
        found: NDArray[np.float64] = self._generator.random(size)
        return found

    def integers(self, *given: Any, **named: Any) -> NDArray[np.int64]:
        """As ``integers(low, high, size)`` of a ``RandomNumbers``. Raises ValueError for other arguments."""
        low, high, size = self._arguments("integers", ("low", "high", "size"), given, named)
        if not all(isinstance(each, int | np.integer) for each in (low, high)):
            self._refuse("integers", given, named)
        found: NDArray[np.int64] = self._generator.integers(low, high, size)
        return found

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"the generator has no {name}; {self._there_is()}")

    def _arguments(
        self, function: str, names: tuple[str, ...], given: tuple[Any, ...], named: dict[str, Any]
    ) -> list[Any]:
        found = dict(zip(names, given, strict=False)) | named
        if len(given) + len(named) != len(names) or set(found) != set(names):
            self._refuse(function, given, named)
        size = found["size"]
        rows = size[0] if isinstance(size, tuple | list) and size else size
        if not isinstance(rows, int) or rows != self._rows:
            self._refuse(function, given, named)
        return [found[name] for name in names]

    def _refuse(self, function: str, given: tuple[Any, ...], named: dict[str, Any]) -> NoReturn:
        written = [*map(repr, given), *(f"{name}={value!r}" for name, value in named.items())]
        raise ValueError(f"the generator was asked for {function}({', '.join(written)}); {self._there_is()}")

    def _there_is(self) -> str:
        return (
            "there is random(size) and integers(low, high, size), where size, or its first extent, is the number of "
            f"environments, here {self._rows}"
        )
