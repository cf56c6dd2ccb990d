"""Algorithms: what a network looks like, how an actor acts, and how a batch becomes a loss. The loops know none by its name.

``base`` is what the loops need of an algorithm; one file each holds a built-in one; ``registry`` names those. Importing this
package imports no torch: the replay service has none.
"""

from __future__ import annotations

from rljob.algorithms.registry import algorithm

__all__ = ["algorithm"]
