"""gin for the commands: read (no code runs), resolve by name, check, and only then bind; `pipe` draws the way."""
