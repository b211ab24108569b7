"""Training methods, one module each: Keras models that own an encoder, a head and a loss."""
