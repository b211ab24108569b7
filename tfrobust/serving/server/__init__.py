"""Configurations of TensorFlow Serving, and a small server for development."""
