"""The machinery of an update: gradients on several cores, the optimiser, working copies of the weights, learning rates."""
