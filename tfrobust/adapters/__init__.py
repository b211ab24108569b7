"""Keras layers, metrics and losses around the functions of the library."""
