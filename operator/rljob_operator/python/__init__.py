"""The front door for programs in Python: `rljob.run`, `rljob.attach` and the `Run` that they give."""
