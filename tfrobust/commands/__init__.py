"""The commands, one file each, and how they read their flags and gin files."""
