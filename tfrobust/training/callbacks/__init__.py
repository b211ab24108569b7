"""Callbacks for robust training, one file each."""
