"""Checks that refuse foreign input: the scan of SavedModels, archives, pickles, picture files."""
