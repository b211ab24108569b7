"""From a trained model to a verified, published SavedModel."""
