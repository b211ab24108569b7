"""Serving: export encoder and head as a verified SavedModel with its report inside, publish it and query it."""
