"""Training: the loop, its callbacks, checkpoints, optimizers and strategies, and the working folder of a run."""
