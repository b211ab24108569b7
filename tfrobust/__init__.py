"""tfrobust: train robust networks, measure honestly how robust they are, serve them with that knowledge.

    data -> augment -> model -> method (train_step) -> attacks -> evaluation -> report -> export -> serve

Importing this package is free of TensorFlow on purpose: the commands answer `--help` at once. The public
Keras facade is `tfrobust.keras`; files are loaded with `tfrobust.saving.load`.
"""

__version__ = "0.1.0"
