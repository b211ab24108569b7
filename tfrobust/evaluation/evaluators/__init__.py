"""The evaluators, one file each: what is measured of a model."""
