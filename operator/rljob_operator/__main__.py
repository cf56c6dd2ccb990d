"""The `rljob` command, which is also what the container of every pod runs."""

from rljob_operator.cli import main

if __name__ == "__main__":
    main()
