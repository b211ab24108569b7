"""Any Keras model as an encoder: keras.applications, KerasHub, or a model of the user."""

from collections.abc import Callable

import keras
import tensorflow as tf

from tfrobust.common import configured
from tfrobust.common.outside import ForeignArguments, LocalPath
from tfrobust.errors import InputError
from tfrobust.models.shared import foreign, functional, trained_parts
from tfrobust.models.shared.encoder import Encoder
from tfrobust.models.shared.foreign_options import LayerOptions, PixelOptions, SourceOptions
from tfrobust.ops import keras_private


@keras.saving.register_keras_serializable(package="tfrobust")
class Backbone(Encoder):
    """Encoder made of a Keras model that exists already, for pixels in [0, 1] as everywhere in this library.

    The pixels are mapped to what the model expects, the model runs, and its output is pooled to a vector. The model is
    one stage, unless `stage_names` divides it. The arguments are many and flat because gin files and saved
    configurations name each of them; inside they are three groups of options.

    Example:
        >>> import keras, tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> images = keras.Input((32, 32, 3))
        >>> maps = keras.layers.Conv2D(8, 3, strides=2, activation="relu")(images)
        >>> encoder = robust.models.Backbone(keras.Model(images, maps), pixel_range=(-1, 1))
        >>> encoder(tf.ones([2, 32, 32, 3])).shape
        TensorShape([2, 8])

    Args:
        model: a built Keras model of images: functional, sequential, or subclassed and registered with Keras. Its
            layers are used as they are; they are copied for another `dtype` only. `model`, `application` and `preset`
            exclude each other.
        application: a constructor of keras.applications or its name, such as 'MobileNetV2'. Weights are random, unless
            `arguments` names a local file as `weights` ('imagenet' downloads).
        preset: a preset folder of KerasHub, as `save_to_preset` writes it. A handle such as 'hf://owner/name' is
            downloaded. The name of a backbone class, or the class, makes one with random weights.
        arguments: of the constructor of `application` or `preset`; the shape of the images need not be given.
        pooling: "average" or "max" of maps and sequences; "class" is token 0 of a sequence. None: the average of a map,
            what KerasHub's classifiers take of a sequence, and nothing for a vector.
        output_name: name of the output, for a functional model with a dict of outputs.
        pixel_range: (low, high), to which [0, 1] is mapped. None: `pixel_mean` and `pixel_std`, or what is known from
            keras.applications, or from the image converter of a preset.
        pixel_mean: float or one per channel in RGB, of pixels in [0, 1]; instead of `pixel_range`.
        pixel_std: float or one per channel in RGB, of pixels in [0, 1]; instead of `pixel_range`.
        channel_order: "rgb" or "bgr", which the model expects; None is what is known, or "rgb".
        resize_to: as in `Encoder`; a model of a fixed size needs it for images of another size.
        stage_names: where a functional model is cut into stages, for methods that mix or contrast hidden states: the
            names of layers, each of whose outputs alone separates input from output, in the order of the network;
            "resolution", the last such layer before each reduction of the maps; or "pyramid", the `pyramid_outputs` of
            a KerasHub backbone. `stage_count` is one more than their number.
        branches: sets of batch-norm variables, for a functional model whose batch normalizations are its own layers.
            The first is that of the model, the others begin as copies.
        synchronized: batch statistics over all replicas.
        normalization_momentum: replaces the momentum of the model's batch normalization; None keeps it.
        normalization_epsilon: replaces the epsilon of the model's batch normalization; None keeps it.
        dropout: False sets the rates of the model's dropout and drop path to 0. Their masks depend on Keras's stateful
            seeds, so that several replicas would train otherwise than one device.
        trainable: "all", "last_stage" (the other stages, of `stage_names`, are frozen) or "head", which trains nothing
            of the model. What is frozen runs in inference mode. True is "all"; False is "all", too, but begins frozen.
        lora_rank: None, or the rank of adapters (LoRA) of all layers that have Keras's `enable_lora`. They alone are
            trained of the model, which runs in inference mode. A run publishes them merged into the weights, and a
            `.keras` file holds them so, with a new adapter. A model that has adapters keeps these, of this rank.
        origin: digest of the weight file or its name; set by the constructor, so that a run is not resumed with others.
        **kwargs: of `keras.Model`: `name`, `dtype`.

    Raises:
        ValueError: none or several of model, application and preset; a model that is not built, or takes no images; a
            pixel range, a pooling or an output that is not known and was not given.
    """

    def __init__(
        self,
        model: keras.Model | None = None,
        *,
        application: str | Callable | None = None,
        preset: LocalPath | Callable | None = None,
        arguments: ForeignArguments | None = None,
        pooling: str | None = None,
        output_name: str | None = None,
        pixel_range: tuple[float, float] | None = None,
        pixel_mean: float | tuple[float, ...] | None = None,
        pixel_std: float | tuple[float, ...] | None = None,
        channel_order: str | None = None,
        resize_to: int | None = None,
        stage_names: str | tuple[str, ...] = (),
        branches: int = 1,
        synchronized: bool = False,
        normalization_momentum: float | None = None,
        normalization_epsilon: float | None = None,
        dropout: bool = True,
        trainable: bool | str = "all",
        lora_rank: int | None = None,
        origin: str = "",
        **kwargs,
    ):
        super().__init__(
            pixel_mean=pixel_mean,
            pixel_std=pixel_std,
            resize_to=resize_to,
            branches=branches,
            synchronized=synchronized,
            normalization_momentum=normalization_momentum,
            normalization_epsilon=normalization_epsilon,
            **kwargs,
        )
        origins = SourceOptions(model, application, preset, dict(arguments or {}))
        self.application = None if application is None else foreign.application_name(application)
        self.preset = None  # saved as its model, like `pixel_range` as mean and std
        self.pixel_range = None
        self.arguments = origins.saved_arguments
        self.output_name = output_name
        self.stage_names = stage_names if isinstance(stage_names, str) else tuple(stage_names)
        self.dropout = dropout
        source = origins.load(self.dtype_policy, self.resize_to)
        self.model = foreign.with_policy(source.model, self.dtype_policy)
        self.origin = source.origin or origin
        pixels = PixelOptions(pixel_range, self.pixel_mean, self.pixel_std, channel_order)
        self.pixel_mean, self.pixel_std, self.channel_order = pixels.resolve(source.pixels, self.model.name)
        layers = LayerOptions(dropout, self.synchronized, self.normalization_momentum, self.normalization_epsilon)
        layers.apply(self.model)
        network, shape = foreign.single_tensor(self.model, output_name)
        self.pooling = foreign.pooling_of(self.model, shape, pooling)
        neck = foreign.pooling_layers(self.pooling, len(shape), self.dtype_policy)
        stages = functional.make_stages(network, stage_names, branches=branches)
        self.compose([[stage] for stage in stages], neck, dim=shape[-1])
        self.trained = trained_parts.checked(trainable, self.stage_count, lora_rank)
        self.lora_rank = lora_rank
        trained_parts.add_adapters(self.model, lora_rank)
        self._train(bool(trainable))  # Keras skips an assignment that changes no value, such as this of True

    @property
    def trainable(self) -> bool:
        """True if anything of the model is trained; True trains what the argument names, which a string replaces."""
        return keras.Model.trainable.fget(self)

    @trainable.setter
    def trainable(self, value: bool | str) -> None:
        if isinstance(value, str):
            self.trained = trained_parts.checked(value, self.stage_count, self.lora_rank)
        self._train(bool(value))

    def _train(self, value: bool) -> None:
        trained = vars(self).get("trained", "all")
        keras.Model.trainable.fset(self, value and trained != "head")
        if self.trainable and "trained" in vars(self):
            trained_parts.freeze(self, trained)

    def merge_adapters(self) -> None:
        """Add the adapters of `lora_rank` to the weights, and remove them; all weights are then trained."""
        for layer in foreign.layers_of(self.model):
            keras_private.merge_lora(layer)
        self.lora_rank = None
        for value in (False, True):  # Keras passes only changes on to the layers, and from these to the variables
            self.trainable = value

    def get_config(self) -> dict:
        """Return the constructor's arguments; a model of keras.applications by its name, others serialized."""
        config = super().get_config()
        # Keras writes some shapes as tuples, which a file returns as lists.
        if self.trained != "all":
            config["trainable"] = self.trained
        if self.trained == "last_stage" and not self.trainable:
            config["frozen"] = True
        config["model"] = configured.serialize(config["model"]) if self.application is None else None
        return config

    @classmethod
    def from_config(cls, config: dict):
        """Build a backbone from its config."""
        registered = (config.get("model") or {}).get("registered_name") or ""
        if registered.startswith("keras_hub>"):
            foreign.require_keras_hub()
        backbone = super().from_config({name: value for name, value in config.items() if name != "frozen"})
        if config.get("frozen"):
            backbone.trainable = False
        return backbone

    def build(self, input_shape):
        """Build the layers for images of one size."""
        try:
            super().build(input_shape)
        except InputError:
            raise
        except ValueError as error:
            reason = " ".join(str(error).split())[:120]
            raise InputError(
                f"{self.model.name!r} takes no images {tuple(input_shape)[1:]}: set resize_to ({reason})."
            ) from error

    def standardize(self, images: tf.Tensor) -> tf.Tensor:
        """Map pixels in [0, 1] to what the model expects; a gray image is repeated for each channel of the model."""
        channels = foreign.input_shape(self.model)[-1]
        if images.shape[-1] == 1 and channels > 1:
            images = tf.repeat(images, channels, axis=-1)
        images = super().standardize(images)
        return images[..., ::-1] if self.channel_order == "bgr" else images

    def _stage_training(self, index: int, training: bool | None) -> bool | None:
        frozen = self.lora_rank is not None or (self.trained == "last_stage" and index < self.stage_count)
        return False if frozen else training

    def _stage_shape(self, shape: tuple) -> tuple:
        shape = super()._stage_shape(shape)
        channels = foreign.input_shape(self.model)[-1]
        return (*shape[:-1], channels) if shape[-1] == 1 else shape

    def _check_shape(self, shape: tuple) -> None:
        super()._check_shape(shape)
        expected = foreign.input_shape(self.model)
        if shape[-1] != expected[-1]:
            raise InputError(f"{self.model.name!r} takes images of {expected[-1]} channels, got {shape[-1]}.")
        if any(None not in pair and pair[0] != pair[1] for pair in zip(expected[:2], shape[1:3], strict=True)):
            size, got = "x".join(map(str, expected[:2])), "x".join(map(str, shape[1:3]))
            raise InputError(
                f"{self.model.name!r} takes images of {size} pixels, got {got}: set resize_to={expected[0]}."
            )
