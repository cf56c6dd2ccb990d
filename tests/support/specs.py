"""Environments as networks and layouts see them, for tests that never step one."""

from collections.abc import Sequence

from rljob.envs.spec import ActionLeaf, EnvironmentSpec, Leaf


def spec_of(
    environment_id: str,
    shape: Sequence[int],
    dtype: str,
    stack: int,
    actions: int,
    raw_frames_per_step: int = 1,
    fingerprint: str = "f",
) -> EnvironmentSpec:
    """One that shows a picture, which has two or three dimensions, or else a vector, and takes one of ``actions``."""
    of_bytes, picture = dtype == "uint8", len(shape) > 1
    leaf = Leaf(
        keys=(),
        role="image" if picture else "vector",
        shape=tuple(shape),
        dtype=dtype,
        scale=1 / 255 if of_bytes else 1.0,
        column="frames" if picture else "octets" if of_bytes else "vector",
    )
    action = ActionLeaf((), "Discrete", (), "int64", (actions,), (0,))
    return EnvironmentSpec(environment_id, (leaf,), (action,), stack, raw_frames_per_step, fingerprint)
