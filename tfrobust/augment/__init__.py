"""Augmentations as pure functions of images and a key, and the parts of mixing methods."""
