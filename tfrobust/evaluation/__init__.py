"""Evaluation: evaluators, which measure a predictor on a data set, and the runner that executes and caches them."""
