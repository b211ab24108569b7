"""Sources of labeled examples: files, TensorFlow Datasets, embedded and generated data."""
