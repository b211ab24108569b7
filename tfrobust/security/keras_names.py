"""Names that a `.keras` file may hold: classes and operations by module, and the words that their arguments may hold.

A class, an operation or a word that is missing here is refused. Nothing in these lists opens a file, takes a function
of the file's own, or builds a tensor of any size without an input.
"""

from __future__ import annotations

import re

_LAYERS = """
    Activation ActivityRegularization AdaptiveAveragePooling1D AdaptiveAveragePooling2D AdaptiveAveragePooling3D
    AdaptiveMaxPooling1D AdaptiveMaxPooling2D AdaptiveMaxPooling3D Add AdditiveAttention AlphaDropout Attention AugMix
    AutoContrast Average AveragePooling1D AveragePooling2D AveragePooling3D BatchNormalization Bidirectional
    CategoryEncoding CenterCrop Concatenate ContrastLimitedAdaptiveHistogramEqualization Conv1D Conv1DTranspose Conv2D
    Conv2DTranspose Conv3D Conv3DTranspose ConvLSTM1D ConvLSTM2D ConvLSTM3D Cropping1D Cropping2D Cropping3D CutMix
    Dense DepthwiseConv1D DepthwiseConv2D Discretization Dot Dropout ELU EinsumDense Embedding Equalization Flatten GRU
    GRUCell GaussianDropout GaussianNoise GlobalAveragePooling1D GlobalAveragePooling2D GlobalAveragePooling3D
    GlobalMaxPooling1D GlobalMaxPooling2D GlobalMaxPooling3D GroupNormalization GroupQueryAttention Identity InputLayer
    LSTM LSTMCell LayerNormalization LeakyReLU Masking MaxPooling1D MaxPooling2D MaxPooling3D Maximum MelSpectrogram
    Minimum MixUp MultiHeadAttention Multiply Normalization PReLU Permute Pipeline RMSNormalization RNN RandAugment
    RandomBrightness RandomColorDegeneration RandomColorJitter RandomContrast RandomCrop RandomElasticTransform
    RandomErasing RandomFlip RandomGaussianBlur RandomGrayscale RandomHue RandomInvert RandomPerspective
    RandomPosterization RandomRotation RandomSaturation RandomSharpness RandomShear RandomTranslation RandomZoom ReLU
    RepeatVector Rescaling Reshape Resizing ReversibleEmbedding STFTSpectrogram SeparableConv1D SeparableConv2D
    SimpleRNN SimpleRNNCell Softmax Solarization SpatialDropout1D SpatialDropout2D SpatialDropout3D
    SpectralNormalization StackedRNNCells Subtract TimeDistributed UnitNormalization UpSampling1D UpSampling2D
    UpSampling3D ZeroPadding1D ZeroPadding2D ZeroPadding3D
"""
# Operations of functional models. None calls a function that it is given (Map, Scan, Switch, Cond, WhileLoop, ForiLoop,
# VectorizedMap), and none makes a tensor from numbers alone (Arange, Full, Linspace).
_NUMPY = """
    Absolute Abs Add All Amax Amin Any Argmax Argmin Argsort Average BitwiseAnd BitwiseInvert BitwiseNot BitwiseOr
    BitwiseXor BroadcastTo Ceil Clip Concatenate Copy Cos Cosh CountNonzero Cross Cumprod Cumsum Diagonal Diff Divide
    DivideNoNan Dot Einsum Equal Exp Exp2 ExpandDims Expm1 Flip Floor FloorDivide GetItem Greater GreaterEqual Hstack
    Hypot Inner Isfinite Isinf Isnan Less LessEqual Log Log10 Log1p Log2 Logaddexp LogicalAnd LogicalNot LogicalOr
    LogicalXor Matmul Max Maximum Mean Median Min Minimum Mod Moveaxis Multiply NanToNum Negative NotEqual OnesLike
    Outer Pad Power Prod Ptp Quantile Ravel Reciprocal Repeat Reshape Roll Rot90 Round Sign Sin Sinh Sort Split Sqrt
    Square Squeeze Stack Std Subtract Sum Swapaxes Take TakeAlongAxis Tan Tanh Tensordot Tile Trace Transpose Tril Triu
    TrueDivide Trunc Var Vdot Vstack Where ZerosLike
"""
_NEURAL = """
    AdaptiveAveragePool AdaptiveMaxPool AveragePool BatchNorm Celu Conv ConvTranspose DepthToSpace DepthwiseConv
    DotProductAttention Elu Gelu Glu HardShrink HardSigmoid HardSilu HardTanh LayerNorm LeakyRelu LogSigmoid LogSoftmax
    MaxPool Moments Normalize OneHot RMSNorm Relu Relu6 Selu SeparableConv Sigmoid Silu SoftShrink Softmax Softplus
    Softsign SpaceToDepth Sparsemax Squareplus TanhShrink Threshold
"""
_LOSSES = """
    BinaryCrossentropy BinaryFocalCrossentropy CTC CategoricalCrossentropy CategoricalFocalCrossentropy
    CategoricalGeneralizedCrossEntropy CategoricalHinge Circle CosineSimilarity Dice Hinge Huber KLDivergence LogCosh
    MeanAbsoluteError MeanAbsolutePercentageError MeanSquaredError MeanSquaredLogarithmicError Poisson
    SparseCategoricalCrossentropy SquaredHinge Tversky
"""
_METRICS = """
    AUC Accuracy BinaryAccuracy BinaryCrossentropy BinaryIoU CategoricalAccuracy CategoricalCrossentropy
    CategoricalHinge ConcordanceCorrelation CosineSimilarity F1Score FBetaScore FalseNegatives FalsePositives Hinge IoU
    KLDivergence LogCoshError Mean MeanAbsoluteError MeanAbsolutePercentageError MeanIoU MeanSquaredError
    MeanSquaredLogarithmicError OneHotIoU OneHotMeanIoU PearsonCorrelation Poisson Precision PrecisionAtRecall R2Score
    Recall RecallAtPrecision RootMeanSquaredError SensitivityAtSpecificity SparseCategoricalAccuracy
    SparseCategoricalCrossentropy SparseTopKCategoricalAccuracy SpecificityAtSensitivity SquaredHinge Sum
    TopKCategoricalAccuracy TrueNegatives TruePositives
"""
# Roles of classes: what an argument may hold is an object of one role.
LAYER, MODEL, INITIALIZER, REGULARIZER, CONSTRAINT, POLICY, QUANTIZER = (
    "layer", "model", "initializer", "regularizer", "constraint", "dtype policy", "quantizer",
)  # fmt: skip
OPTIMIZER, SCHEDULE, LOSS, METRIC = "optimizer", "schedule", "loss", "metric"
# Module as a file has it -> (role, names).
CLASSES = {
    module: (role, frozenset(names.split()))
    for module, role, names in (
        ("keras", MODEL, "Sequential"),
        ("keras.models", MODEL, "Sequential"),
        ("keras.src.models.sequential", MODEL, "Sequential"),
        ("keras.src.models.functional", MODEL, "Functional"),
        ("keras.layers", LAYER, _LAYERS),
        ("keras.src.applications.convnext", LAYER, "LayerScale"),
        ("keras.src.applications.inception_resnet_v2", LAYER, "CustomScaleLayer"),
        ("keras.src.ops.numpy", LAYER, _NUMPY),
        ("keras.src.ops.nn", LAYER, _NEURAL),
        ("keras.src.ops.math", LAYER, "Erf Erfinv Logsumexp Rsqrt TopK"),
        ("keras.src.ops.core", LAYER, "Cast Slice StopGradient Unstack"),
        ("keras.src.ops.image", LAYER, "CropImages ExtractPatches HSVToRGB PadImages RGBToGrayscale RGBToHSV Resize"),
        ("keras.src.ops.linalg", LAYER, "Norm"),
        (
            "keras.initializers", INITIALIZER,
            "Constant GlorotNormal GlorotUniform HeNormal HeUniform Identity IdentityInitializer LecunNormal "
            "LecunUniform Ones Orthogonal OrthogonalInitializer RandomNormal RandomUniform STFT STFTInitializer "
            "TruncatedNormal VarianceScaling Zeros",
        ),
        ("keras.regularizers", REGULARIZER, "L1 L1L2 L2 OrthogonalRegularizer"),
        ("keras.constraints", CONSTRAINT, "MaxNorm MinMaxNorm NonNeg UnitNorm"),
        (
            "keras.dtype_policies", POLICY,
            "DTypePolicy DTypePolicyMap FloatDTypePolicy Int4DTypePolicy QuantizedDTypePolicy "
            "QuantizedFloat8DTypePolicy",
        ),
        (
            "keras.quantizers", QUANTIZER,
            "AbsMaxQuantizer Float8QuantizationConfig Int4QuantizationConfig Int8QuantizationConfig",
        ),
        (
            "keras.optimizers", OPTIMIZER,
            "Adadelta Adafactor Adagrad Adam AdamW Adamax Ftrl Lamb Lion LossScaleOptimizer Muon Nadam RMSprop SGD "
            "ScheduleFreeAdamW",
        ),
        (
            "keras.optimizers.schedules", SCHEDULE,
            "CosineDecay CosineDecayRestarts ExponentialDecay InverseTimeDecay PiecewiseConstantDecay PolynomialDecay",
        ),
        ("keras.losses", LOSS, _LOSSES),
        ("keras.metrics", METRIC, _METRICS),
    )
}  # fmt: skip
# `keras` itself also has the policy of most layers.
POLICIES_OF_KERAS = ("DTypePolicy", "FloatDTypePolicy")
# The library's own classes may be named if their module begins with one of these, except for those that read files.
PACKAGES = tuple(
    f"tfrobust.{name}."
    for name in ("adapters", "attacks", "augment", "losses", "methods", "models", "ops", "pairs", "training")
)
# Backbones of KerasHub that take images; they read files in `from_preset` alone, which no description reaches.
BACKBONES = frozenset(
    """
    CSPNetBackbone DINOV2Backbone DINOV3Backbone DeiTBackbone DenseNetBackbone EfficientNetBackbone HGNetV2Backbone
    MiTBackbone MobileNetBackbone MobileNetV5Backbone ResNetBackbone SwinTransformerBackbone VGGBackbone ViTBackbone
    ViTDetBackbone XceptionBackbone
    """.split()
)

_SHORT_NAMES = "mse mae mape msle bce kld acc accuracy crossentropy ce MSE MAE MAPE MSLE BCE KLD"
DTYPES = frozenset(
    "bool uint8 uint16 uint32 uint64 int4 int8 int16 int32 int64 float8_e4m3fn float8_e5m2 bfloat16 float16 float32 "
    "float64".split()
)
_POLICY = re.compile(r"(int8|int4(/-?\d{1,5})?|float8)_from_\w{1,24}|mixed_b?float16")
_QUANTIZATION = re.compile(r"int8|int4(/-?\d{1,5})?|float8")
_LETTERS = re.compile(r"[A-Za-z.]{0,52}(,[A-Za-z.]{0,52}){0,8}(->[A-Za-z.]{0,52})?")
# Of names of variables, in optimizers: without groups, and with few repetitions, so that a search is fast.
_EXCLUDED = re.compile(r"[\w /$^-]{0,60}(\.?[*+?]?[\w /$^-]{0,60}){0,3}", re.ASCII)


def _snake(names: str) -> set[str]:
    """Return the words by which Keras finds classes of these names, as its `to_snake_case` parts them."""
    capital = (re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name) for name in names.split())
    parted = (re.sub("([a-z])([A-Z])", r"\1_\2", name).lower() for name in capital)
    return {*parted, *names.split(), *_SHORT_NAMES.split()}


ACTIVATIONS = frozenset(
    "celu elu exponential gelu glu hard_shrink hard_sigmoid hard_silu hard_swish hard_tanh leaky_relu linear "
    "log_sigmoid log_softmax mish relu relu6 selu sigmoid silu soft_shrink softmax softplus softsign sparse_plus "
    "sparse_sigmoid sparsemax squareplus swish tanh tanh_shrink threshold".split()
)
# Words by role, in place of an object.
NAMED = {
    INITIALIZER: frozenset(
        "constant glorot_normal glorot_uniform he_normal he_uniform identity lecun_normal lecun_uniform ones "
        "orthogonal random_normal random_uniform truncated_normal uniform normal variance_scaling zeros".split()
    )
    | CLASSES["keras.initializers"][1],
    REGULARIZER: frozenset("l1 l2 l1_l2 L1 L2 L1L2 orthogonal_regularizer OrthogonalRegularizer".split()),
    CONSTRAINT: frozenset("max_norm min_max_norm non_neg unit_norm MaxNorm MinMaxNorm NonNeg UnitNorm".split()),
    OPTIMIZER: frozenset({name.lower() for name in CLASSES["keras.optimizers"][1]} | CLASSES["keras.optimizers"][1]),
    LOSS: frozenset(_snake(_LOSSES)),
    METRIC: frozenset(_snake(_METRICS)),
}
# Words by the name of an argument, in any class of Keras.
WORDS = {
    name: frozenset(words.split())
    for name, words in {
        "average_type": "micro macro weighted",
        "average": "micro macro weighted",
        "curve": "ROC PR",
        "data_format": "channels_last channels_first NDHWC NHWC NWC",
        "distribution": "truncated_normal untruncated_normal uniform normal",
        "fill_mode": "constant nearest reflect wrap mirror",
        "interpolation": "nearest bilinear bicubic lanczos3 lanczos5 area gaussian mitchellcubic",
        "jit_compile": "auto",
        "merge_mode": "sum mul concat ave",
        "method": "linear lower higher midpoint nearest",
        "mode": "fan_in fan_out fan_avg horizontal vertical horizontal_and_vertical log magnitude psd real imag angle "
        "stft constant reflect symmetric edge",
        "ord": "fro nuc",
        "order": "fro nuc",
        "output_mode": "int one_hot multi_hot count",
        "padding": "valid same causal",
        "pool_mode": "max average",
        "reduction": "sum sum_over_batch_size mean mean_with_sample_weight none auto",
        "scaling": "density spectrum",
        "score_mode": "dot concat scale",
        "summation_method": "interpolation minoring majoring",
        "use_cudnn": "auto",
        "window": "hann hamming",
    }.items()
}
PATTERNS = {
    "name": re.compile(r"[^\x00-\x1f\x7f]{0,512}"),
    "equation": _LETTERS,
    "subscripts": _LETTERS,
    "bias_axes": _LETTERS,
    # Kept as a record; no class opens it.
    "origin": re.compile(r"[\w .+:/-]{0,200}", re.ASCII),
    "exclude": _EXCLUDED,
    "exclude_layers": _EXCLUDED,
}
# Arguments with a name of a dtype or a policy; `mode` of a policy is its quantization.
_DTYPE_ARGUMENTS = re.compile(r"(\w+_)?dtype|source_name")
# Arguments of the library's own classes: words, and names of variables and layers. No path has this form.
OWN_WORD = re.compile(r"[\w .+-]{0,200}", re.ASCII)
# Arguments that name something outside of the file. They must be empty.
OUTSIDE = re.compile(
    r"(file|dir|data|asset|vocabulary|weights?|model|checkpoint)?_?(path|file|dir|folder|url|uri)|filepath|filename|"
    r"preset|weights|vocabulary|vocabulary_path|checkpoint|origin_path|handle|treebank|lists"
)
# How often something is repeated when a model is built.
REPETITIONS = re.compile(
    r"(\w+_)?(depths?|layers|blocks|repeats|branches|ops|chains|stacks|thresholds)|power_iterations|ns_steps"
)
MOST_REPETITIONS = 1000
# An array of weights has at least this many entries.
WEIGHTED = frozenset({"units", "filters", "input_dim", "output_dim"})


def is_dtype(name: str, argument: str) -> bool:
    """Return True if a word is a dtype, or a policy, for an argument of that name."""
    return bool(_DTYPE_ARGUMENTS.fullmatch(argument)) and (name in DTYPES or bool(_POLICY.fullmatch(name)))


def is_policy(name: str) -> bool:
    """Return True if a word is the name of a dtype policy, or of its quantization."""
    return name in DTYPES or bool(_POLICY.fullmatch(name)) or bool(_QUANTIZATION.fullmatch(name))
