"""Encoders from pixels or tokens to an embedding, heads, projections, and pre-trained weights."""
