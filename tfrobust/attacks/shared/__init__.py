"""What several attacks use: threat model, goals, objectives, the engine that runs them."""
