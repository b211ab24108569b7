"""Attacks: where (a threat model) x what (an objective) x how (FGSM, PGD, ...)."""
