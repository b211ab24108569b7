"""The base of the mixins of `Method`."""

from typing import TYPE_CHECKING

import keras

if TYPE_CHECKING:
    # The mixins use each other's attributes, and call those of the model that the method also is.
    Mixin = keras.Model
else:

    class Mixin:
        """A part of `Method` that is no model by itself."""
