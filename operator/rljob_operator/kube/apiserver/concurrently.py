"""Several calls under way at the same time, all of which come to their end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable


async def concurrently(*calls: Awaitable[object]) -> None:
    """Wait until every one has ended; one that fails keeps no other from its try. Raises the first failure, in their order."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    problems = [result for result in results if isinstance(result, BaseException)]
    if problems:
        raise problems[0]
