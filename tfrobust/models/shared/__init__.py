"""Parts that several encoders use: blocks, normalization, the encoder base."""
