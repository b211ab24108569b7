"""Classification and projection heads."""
