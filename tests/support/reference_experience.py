"""A slow, obvious account of what experience must be: whole stacks, one transition at a time, explicit loops."""

from dataclasses import dataclass

import numpy as np
from rljob.experience import LIFE_LOST, TERMINATED, TRUNCATED, Segment


@dataclass
class Step:
    """One step of one stream with everything that was seen, nothing shared, nothing compressed."""

    observation: np.ndarray
    successor: np.ndarray  # the true next state: the final observation where the episode ended
    policy_version: int
    action: int
    reward: float
    terminated: bool
    truncated: bool
    life_lost: bool
    q_taken: float
    value: float
    final_value: float


@dataclass
class Transition:
    observation: np.ndarray
    successor: np.ndarray
    action: int
    n_step_return: float
    discount: float
    priority: float
    flags: int
    policy_version: int


def reference_transitions(steps: list[Step], n_step: int, gamma: float, life_loss_ends: bool) -> list[Transition]:
    """Every transition of one stream that can be completed from ``steps``, oldest first."""
    transitions = []
    for start, first in enumerate(steps):
        total, closed_by, taken = 0.0, None, 0
        for offset in range(n_step):
            if start + offset >= len(steps):
                break
            step = steps[start + offset]
            total += gamma**offset * step.reward
            taken = offset + 1
            if step.terminated or (life_loss_ends and step.life_lost):
                closed_by = "terminal"
                break
            if step.truncated:
                closed_by = "truncation"
                break
        bootstrap = start + taken
        if closed_by is None and bootstrap >= len(steps):
            break  # the value of the bootstrap state is not known yet
        if closed_by == "terminal":
            discount, future = 0.0, 0.0
        else:
            discount = gamma**taken
            value = steps[bootstrap - 1].final_value if closed_by == "truncation" else steps[bootstrap].value
            future = discount * value if discount > 0 else 0.0
        error = abs(total + future - first.q_taken)
        transitions.append(
            Transition(
                observation=first.observation,
                successor=steps[bootstrap - 1].successor,
                action=first.action,
                n_step_return=total,
                discount=discount,
                priority=error + 1e-3 if np.isfinite(error) else 1.0,
                flags=TERMINATED * first.terminated + TRUNCATED * first.truncated + LIFE_LOST * first.life_lost,
                policy_version=first.policy_version,
            )
        )
    return transitions


def assert_chunk_equals(chunk: Segment, expected: list[Transition], stack: int) -> None:
    """Every transition of ``chunk`` against the reference: frames bit for bit, numbers to float32 rounding."""
    assert chunk.policy_version == expected[0].policy_version
    frames = chunk[chunk.layout.observation[0].name]
    for i, want in enumerate(expected):
        here, there = int(chunk["observation"][i]), int(chunk["next_observation"][i])
        np.testing.assert_array_equal(frames[here - stack + 1 : here + 1], want.observation)
        np.testing.assert_array_equal(frames[there - stack + 1 : there + 1], want.successor)
        assert (chunk["action"][i], chunk["flags"][i]) == (want.action, want.flags)
        np.testing.assert_allclose(chunk["discount"][i], want.discount, rtol=1e-6)
        for name in ("n_step_return", "priority"):
            np.testing.assert_allclose(chunk[name][i], getattr(want, name), rtol=1e-5, atol=1e-5)


class Recorder:
    """Keeps the reference account of N streams beside a builder and checks every chunk the builder emits."""

    def __init__(self, num_envs: int, stack: int) -> None:
        self.stack = stack
        self.steps: list[list[Step]] = [[] for _ in range(num_envs)]
        self.seen = [0] * num_envs

    def record(self, observation: np.ndarray, successor: np.ndarray, version: int, **numbers: np.ndarray) -> None:
        """A step of all streams; ``numbers``: the other fields of a `Step`, with an entry for each stream."""
        for e, steps in enumerate(self.steps):
            of_stream = {name: values[e].item() for name, values in numbers.items()}
            steps.append(Step(observation[e].copy(), successor[e].copy(), version, **of_stream))

    def check(self, chunks: list[Segment], n_step: int, gamma: float, life_loss_ends: bool) -> None:
        for chunk in chunks:
            all_of_stream = reference_transitions(self.steps[chunk.environment], n_step, gamma, life_loss_ends)
            start = self.seen[chunk.environment]
            expected = all_of_stream[start : start + chunk.steps]
            assert len(expected) == chunk.steps, "the builder emitted a transition that is not complete"
            assert_chunk_equals(chunk, expected, self.stack)
            self.seen[chunk.environment] += chunk.steps
