"""How often a member is asked whether it answers, and when its job is looked at for that it does not."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

PERIOD_SECONDS: Final = 5.0
AGAIN_SECONDS: Final = 1.0
"""From one question to the next where the first had no answer: two of them without one are named within ten seconds."""
NEWS_SECONDS: Final = 15.0
"""A member that was silent for so long has been named. It is asked as often as any other, and it is no news that it is silent: a
thousand of them would have their jobs looked at hundreds of times a second."""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """``period_seconds``: between two answers of one member; ``again_seconds``, ``news_seconds``: as the constants."""

    period_seconds: float = PERIOD_SECONDS
    again_seconds: float = AGAIN_SECONDS
    news_seconds: float = NEWS_SECONDS

    def after_an_answer(self) -> float:
        """The pause before the next question, in seconds: so that thousands do not answer at once, never the same."""
        return self.period_seconds * random.uniform(0.8, 1.0)

    def after_silence(self, silent_seconds: float, asked_seconds: float) -> float:
        """The same where none came, ``silent_seconds`` after the first question without one; this one took ``asked_seconds``."""
        if not self.is_news(silent_seconds):
            return self.after_an_answer()
        return min(self.period_seconds, max(0.1, self.again_seconds - asked_seconds))

    def is_news(self, silent_seconds: float) -> bool:
        """Whether the job has to be looked at for a member that is as silent as before."""
        return silent_seconds < self.news_seconds
