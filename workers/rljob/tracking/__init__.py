"""A run's figures, sent on to W&B and MLflow by processes of their own, which read what the learner has written.

Nothing that trains imports, calls or waits for any of this.
"""
