"""Exit codes of commands and roles: what a role leaves behind for the controller, and a command for its caller.

Those above 63 are of sysexits.h, which nothing else uses by chance. A role that signal n told to leave, and that did so in good
order, exits with 128 + n.
"""

from typing import Final

EXIT_FAILURE: Final = 1
"""It failed for a reason that is not its input."""
EXIT_INVALID: Final = 2
"""A manifest or an argument is wrong."""
EXIT_RANK_LOST: Final = 68
"""EX_NOHOST: one of several processes of a learner has lost another; they start again together."""
EXIT_UNAVAILABLE: Final = 69
"""EX_UNAVAILABLE: the API server of a cluster can't be reached, or does not answer as it should; later it may."""
EXIT_NON_FINITE_LOSS: Final = 70
"""EX_SOFTWARE: the learner's loss was not finite, and ``earlyStopping.onNonFiniteLoss`` is ``Fail``."""
EXIT_NOT_SAVED: Final = 74
"""EX_IOERR: a role has left as it was asked to, but could not save all that it held."""
EXIT_SUPERSEDED: Final = 75
"""EX_TEMPFAIL: a learner has found that a later one of its job has begun, which does its work now."""
EXIT_PROTOCOL: Final = 76
"""EX_PROTOCOL: a role's image speaks another protocol than its job; another image is needed."""
EXIT_NO_PERMISSION: Final = 77
"""EX_NOPERM: the login of a cluster is not accepted, or lacks a right."""
EXIT_CONFIGURATION: Final = 78
"""EX_CONFIG: a role cannot start with what it was given, and starting it again will not help."""
