"""Which protocol this release speaks."""

from typing import Final

WIRE_VERSION: Final = 4
"""Version of the messages between roles, and of how they are started. Raised when a role of the release before would no longer
work with one of this release: a job's roles have to speak the same."""
