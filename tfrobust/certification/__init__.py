"""Lower bounds of robust accuracy: sound bounds of a network's outputs within epsilon, and randomized smoothing."""
