"""Files, fingerprints, the environment and pictures: no tensors and no policy."""
