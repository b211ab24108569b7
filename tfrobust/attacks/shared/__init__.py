"""Shared by the attacks: threat model, goals, objectives, batch-norm modes, and the engine that runs them."""
