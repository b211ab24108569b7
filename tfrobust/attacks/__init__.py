"""Attacks: a threat model (where to search), an objective (what to maximize) and a search method (FGSM, PGD, ...)."""
