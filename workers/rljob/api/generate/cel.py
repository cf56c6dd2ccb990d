"""CEL for the cluster: the rules of `rljob.api.rules` as x-kubernetes-validations.

An API server sees a job as it is written, without presets and defaults. A rule is therefore asked only where all fields that
it reads are written; the job in force is checked by ``rljob validate`` and by the controller, whose verdict is the condition
Accepted.
"""

from collections.abc import Iterable, Iterator

from rljob.api.rule import STORED, Rule, TransitionRule

Validation = dict[str, str]
"""One entry of x-kubernetes-validations."""

NOT_IN_CEL = {
    "rules on parameters of the algorithm": "each algorithm has its own defaults and bounds",
    "rules between fields that the manifest does not set": "it does not know presets and defaults",
    "the value of a target, the end of a job with another environment than its preset's, and minSize, maxBatchSize, "
    "maxEpisodeRawFrames, triggerReturn and autoscaling.mode beside others": "few manifests set both",
    "fields below env, tolerations and podTemplate, and patterns of keys in resources, labels and annotations": "it checks them "
    "when pods are made",
    "a replaced key of env, tolerations or podTemplate": "CEL compares only keys that old and new have",
    "duplicates in environment.actions, and actions beside atari.fullActionSpace": "a list or a word has no type for entries",
    "whether an added or removed value is the one already used": "it compares manifests, not effective specs",
}
"""What Python and CEL see differently, and which of the two checks it then."""


def rule_validations(rule: Rule) -> Validation:
    """The validation that stands at the schema of ``rule.at``."""
    written = " && ".join(f"has(self.{path})" for path in _must_be_written(rule))
    guarded = f"!({written}) || ({rule.cel})" if written else rule.cel
    return _validation(guarded, rule.message, rule.field, rule.reason)


def transition_validations(rules: Iterable[TransitionRule]) -> Iterator[Validation]:
    """The validations that compare the stored spec with the new one, one for all fields of a section that say the same."""
    groups: dict[tuple[str, str], list[TransitionRule]] = {}
    for rule in filter(lambda each: each.cel, rules):
        groups.setdefault((rule.field.partition(".")[0], rule.message), []).append(rule)
    for (section, message), of_it in groups.items():
        same = " && ".join(rule.cel for rule in of_it)
        freely = ("oldSelf.suspend", "self.suspend") if of_it[0].while_suspended else ()
        cel = " || ".join((same, *freely) if len(of_it) == 1 else (_as_it_was(section), *freely, same))
        place = of_it[0].field if len(of_it) == 1 else section
        named = "" if len(of_it) == 1 else f"{', '.join(rule.field.partition('.')[2] for rule in of_it)}: "
        yield _validation(cel, named + message, place, "FieldValueForbidden")


def _as_it_was(section: str) -> str:
    """Holds where nothing of a section was changed: written in both and the same, or written in neither.

    A server asks every rule anew at each write of a status, which changes nothing of a spec, and for each field that a rule reads
    it builds a table of all fields beside it. Field by field these rules took more than all else that it does for such a write.
    """
    same = f"self.{section} == oldSelf.{section}"
    return (
        same
        if section in STORED
        else f"(has(self.{section}) ? has(oldSelf.{section}) && {same} : !(has(oldSelf.{section})))"
    )


def text(value: str) -> str:
    """A string as CEL, in single quotes."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _must_be_written(rule: Rule) -> Iterator[str]:
    """The fields that the rule reads, each section before what is in it, save what it asks for itself or a server fills in."""
    needed: dict[str, None] = {}
    for path in sorted(rule.reads):
        parts = path.split(".")
        for depth in range(1, len(parts) + 1):
            prefix = ".".join(parts[:depth])
            if prefix not in rule.asks_for and prefix not in STORED:
                needed[prefix] = None
    yield from needed


def _validation(cel: str, message: str, field: str, reason: str) -> Validation:
    found = {"rule": cel, "message": message}
    if reason != "FieldValueInvalid":  # which is what a server says of a rule that gives none
        found["reason"] = reason
    if field:
        found["fieldPath"] = f".{field}"
    return found
