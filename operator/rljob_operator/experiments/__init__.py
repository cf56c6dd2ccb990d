"""The pure core of experiments: from what was decided and seen so far to the next decision."""
