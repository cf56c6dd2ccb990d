"""Any command as a role of a local run is launched: in a session of its own."""

import subprocess
from collections.abc import Mapping, Sequence

from rljob_operator.local.launch import Launched
from rljob_operator.local.process import set_niceness


def execute(
    command: Sequence[str], environment: Mapping[str, str], variables: Mapping[str, str], log: int, niceness: int
) -> Launched:
    """A `Launch` of ``command`` itself, without a process that has loaded what roles need."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env={**environment, **variables},
        start_new_session=True,
    )
    set_niceness(process.pid, niceness)
    return process
