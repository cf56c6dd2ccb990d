"""Algorithms: what a network looks like, how an actor acts, and how a batch becomes a loss. The loops know none by its name.

Each built-in one is a folder, which ``built_in`` names; ``base`` is what the loops need of an algorithm, and ``registry`` finds
the code of one, built in or the user's own. Importing this package, or what the manifest knows of an algorithm, imports no torch.
"""

import rljob.api  # noqa: F401 - the types of a manifest read the declarations here, which are made of types of a manifest
