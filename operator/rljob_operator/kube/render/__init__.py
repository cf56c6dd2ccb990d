"""Every object of a job as a plain dict: pure functions of the job in force and the operator's settings."""
