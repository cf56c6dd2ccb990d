"""Several calls at the same time, each of which is waited for."""

import asyncio
from collections.abc import Awaitable


async def concurrently(*calls: Awaitable[object]) -> None:
    """Wait until every one has ended; a failure does not stop the others. Raises the first failure, in their order."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    problems = [result for result in results if isinstance(result, BaseException)]
    if problems:
        raise problems[0]
