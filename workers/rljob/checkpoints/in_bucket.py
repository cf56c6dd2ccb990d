"""Checkpoints under a prefix of a bucket, where nothing can be renamed: the manifest is written last and removed first.

The file of tensors is called by its digest, so that a checkpoint that is written anew (``best``) does not take the tensors from
under the manifest that is there.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rljob.checkpoints.bucket import Bucket, NoObject
from rljob.checkpoints.names import MANIFEST, CheckpointProblem, StorageProblem, claimed, is_checkpoint_name


@dataclass(frozen=True, slots=True)
class Prefix:
    """A `Storage` in a bucket. ``prefix`` has no slash at either end; empty is the whole bucket."""

    bucket: Bucket
    prefix: str

    def names(self) -> list[str]:
        keys = self._keys()
        whole = [name for name in {key.split("/")[0] for key in keys} if f"{name}/{MANIFEST}" in keys]
        checkpoints = [name for name in whole if is_checkpoint_name(name)]
        return [*checkpoints, *(key for key in keys if claimed(key) is not None)]

    def holds(self, name: str) -> bool:
        return f"{name}/{MANIFEST}" in self._keys(name)

    def tensors_file(self, digest: str) -> str:
        return f"tensors-{digest[:16]}.safetensors"

    def write(
        self, name: str, tensors_file: str, tensors: bytes, manifest: bytes, confirm: Callable[[], None] = lambda: None
    ) -> None:
        try:
            self.bucket.put(self._key(f"{name}/{tensors_file}"), tensors)
            confirm()
            self.bucket.put(self._key(f"{name}/{MANIFEST}"), manifest)
            kept = {f"{name}/{tensors_file}", f"{name}/{MANIFEST}"}
            self._delete([key for key in self._keys(name) if key not in kept])
        except StorageProblem as problem:
            raise CheckpointProblem(
                f"the checkpoint {name} could not be written: {problem}; the one before stays valid"
            ) from problem

    def pieces(self, name: str, file: str) -> Iterator[bytes]:
        try:
            yield from self.bucket.pieces(self._key(f"{name}/{file}"))
        except NoObject:
            where = self.bucket.uri(self._key(name))
            raise CheckpointProblem(f"{where} is not a readable checkpoint: it has no {file}") from None

    def remove(self, name: str) -> None:
        if claimed(name) is not None:
            self._delete([name])
            return
        self._delete([f"{name}/{MANIFEST}"])
        self._delete(self._keys(name))

    def clear(self) -> None:
        keys = self._keys()
        for name in {key.split("/")[0] for key in keys if "/" in key}:
            if is_checkpoint_name(name) and f"{name}/{MANIFEST}" not in keys:
                self._delete([key for key in keys if key.startswith(f"{name}/")])

    def create(self, name: str) -> bool:
        return self.bucket.create(self._key(name))

    def _key(self, name: str) -> str:
        return f"{self.prefix}/{name}" if self.prefix else name

    def _keys(self, name: str = "") -> list[str]:
        """The keys of the objects under the prefix, or of those of one checkpoint; without the prefix."""
        below = self._key(name) if name else self.prefix
        cut = len(self.prefix) + 1 if self.prefix else 0
        return [key[cut:] for key in self.bucket.keys(below)]

    def _delete(self, names: list[str]) -> None:
        if names:
            self.bucket.delete([self._key(name) for name in names])
