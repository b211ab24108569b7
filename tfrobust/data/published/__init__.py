"""Published benchmark sets: corrupted, perturbed and shifted images."""
