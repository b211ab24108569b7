"""Runs: what the commands train and evaluate, stage and publish, and the folder in which a run works."""
