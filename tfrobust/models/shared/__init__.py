"""What several encoders use: blocks, normalization, the encoder base."""
