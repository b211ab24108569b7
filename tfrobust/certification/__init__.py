"""Lower bounds of robust accuracy: sound bounds of a network's outputs over all images within epsilon."""
