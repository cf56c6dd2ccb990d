"""``python -m rljob.roles ROLE``: one role of a job, as a pod and the local supervisor start it."""

from collections.abc import Sequence

from rljob.roles.command import app


def main(words: Sequence[str] | None = None) -> None:
    """Be the role that the command line, or ``words``, describes."""
    app(words, prog_name="rljob worker")


if __name__ == "__main__":
    main()
