"""From a trained encoder and head to a published, verified SavedModel with its report inside."""
