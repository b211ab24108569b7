"""Weights from PyTorch files, put into our networks by their names."""
