"""Data sets: sources, splits, checks of arrays, batches, and published benchmark sets."""
