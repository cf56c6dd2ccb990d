"""What a role is given at its start, be it as a process or as a pod: variables of its environment, and time to leave."""

import re
from typing import Final

from rljob.api import RLJob

from rljob_operator.core.member import Role

DRAIN_SECONDS: Final = {
    Role.ACTOR: 25.0,
    Role.EVALUATOR: 3.0,
    Role.LEARNER: 120.0,
    Role.REPLAY: 60.0,
    Role.INFERENCE: 3.0,
}
"""How long a member may take to leave before it is killed. An actor sends what it holds, the replay writes its durable state, the
learner a checkpoint: on a busy disk a small one has taken more than 30 s, and what a killed learner had not written is lost."""
_REFERENCE: Final = re.compile(r"\$(\$|\(([^)]*)\))")
"""``$(NAME)``, or two dollars that stand for one."""


def variables(role: Role) -> dict[str, str]:
    """Output that appears at once; and an actor computes in one thread, since each core has an actor of its own."""
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"} if role is Role.ACTOR else {}
    return {"PYTHONUNBUFFERED": "1", **threads}


def rank_variables(job: RLJob, member: str, address: str, port: int) -> dict[str, str]:
    """By what the processes of a learner of several find each other, as is customary: the first one serves at this address."""
    members = job.spec.learner.members
    if len(members) == 1 or member not in members:
        return {}
    return {
        "RANK": str(members.index(member)),
        "WORLD_SIZE": str(len(members)),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
    }


def own_variables(job: RLJob, member: str, here: dict[str, str]) -> dict[str, str]:
    """Those that the manifest gives the member's role, as a kubelet resolves them: ``$(NAME)`` is the value of one above it, else
    of an existing one (``here``), else it stays as it is written, and ``$$`` is a dollar. One whose value a cluster takes from
    elsewhere (``valueFrom``) is not among them.
    """
    role, known = Role.of(member), {**here, "RLJOB_NAME": member}
    written = (each.model_dump() for each in getattr(job.spec, "actors" if role is Role.ACTOR else str(role)).env or ())
    own = [(each["name"], str(each.get("value") or "")) for each in written if "valueFrom" not in each]
    for name, text in own:
        known[name] = _REFERENCE.sub(lambda found: "$" if found[1] == "$" else known.get(found[2], found[0]), text)
    return {name: known[name] for name, _ in own}
