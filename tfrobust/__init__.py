"""tfrobust: train robust networks, evaluate how robust they are, and serve them with the report inside.

    data -> augment -> model -> method (train_step) -> attacks -> evaluation -> report -> export -> serve

Importing this package deliberately does not import TensorFlow, so that the commands answer `--help` at once. The public
Keras facade is `tfrobust.keras`; files are loaded with `tfrobust.saving.load`.
"""

__version__ = "0.1.0"
