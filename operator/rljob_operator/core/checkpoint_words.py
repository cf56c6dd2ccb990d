"""What a learner says of its checkpoints: in its status document while it is up, and as its last words at its end.

Where the controller does not look at the place of the checkpoints itself, the learner reads each one again and
compares it with its digest.
"""

from rljob.api.learner_status import CheckpointStatement

from rljob_operator.core.observed import CheckpointFacts, CheckpointState

_STATES = {"Valid": CheckpointState.VERIFIED, "Failed": CheckpointState.STORAGE_ERROR}


def checkpoint_facts(said: CheckpointStatement | None) -> CheckpointFacts:
    """The newest checkpoint by a learner's status or last words."""
    if said is None:
        return CheckpointFacts()
    state = _STATES.get(said.state, CheckpointState.MISSING)
    if not said.path:
        return CheckpointFacts(state, message=said.message)
    return CheckpointFacts(
        state=state,
        step=said.step,
        time_seconds=said.written_unix or 0.0,
        uri=said.path if "://" in said.path else f"file://{said.path}",
        digest=said.digest if not said.digest or ":" in said.digest else f"sha256:{said.digest}",
        message=said.message,
        requested_seconds=said.requested_unix,
    )
