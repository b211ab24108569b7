"""The part of the LiteRT schema that classifiers need: tables, types and operators that a `.tflite` file may have.

Source: tensorflow/compiler/mlir/lite/schema/schema.fbs. A field or an operator that is not listed here is refused.
"""

# Kinds of fields as in `security.flatbuffer.Reader`.
TABLES = {
    "Model": {
        "version": "I",
        "operator_codes": "[OperatorCode]",
        "subgraphs": "[SubGraph]",
        "description": "str",
        "buffers": "[Buffer]",
        "metadata_buffer": "[i]",
        "metadata": "[Metadata]",
        "signature_defs": "[SignatureDef]",
    },
    "OperatorCode": {"deprecated_builtin_code": "b", "custom_code": "str", "version": "i", "builtin_code": "i"},
    "SubGraph": {
        "tensors": "[Tensor]",
        "inputs": "[i]",
        "outputs": "[i]",
        "operators": "[Operator]",
        "name": "str",
        "debug_metadata_index": "i",
    },
    "Tensor": {
        "shape": "[i]",
        "type": "b",
        "buffer": "I",
        "name": "str",
        "quantization": "Quantization",
        "is_variable": "?",
        "sparsity": "",
        "shape_signature": "[i]",
        "has_rank": "?",
    },
    "Quantization": {
        "min": "[f]",
        "max": "[f]",
        "scale": "[f]",
        "zero_point": "[q]",
        "details_type": "",
        "details": "",
        "quantized_dimension": "i",
    },
    "Operator": {
        "opcode_index": "I",
        "inputs": "[i]",
        "outputs": "[i]",
        "builtin_options_type": "B",
        "builtin_options": "@",
        "custom_options": "",
        "custom_options_format": "b",
        "mutating_variable_inputs": "[?]",
        "intermediates": "[i]",
        "large_custom_options_offset": "",
        "large_custom_options_size": "",
        "builtin_options_2_type": "",
        "builtin_options_2": "",
        "debug_metadata_index": "i",
    },
    "Buffer": {"data": "[B]", "offset": "", "size": ""},
    "Metadata": {"name": "str", "buffer": "I"},
    "SignatureDef": {
        "inputs": "[TensorMap]",
        "outputs": "[TensorMap]",
        "signature_key": "str",
        "": "",
        "subgraph_index": "I",
    },
    "TensorMap": {"name": "str", "tensor_index": "I"},
}

# Names of metadata that do not change what the interpreter does.
METADATA = ("min_runtime_version", "CONVERSION_METADATA", "TFLITE_METADATA", "reduced_precision_support")

# Name of a type -> bytes of an element.
TYPES = {"FLOAT32": 4, "FLOAT16": 2, "INT8": 1, "UINT8": 1, "INT16": 2, "INT32": 4, "INT64": 8, "BOOL": 1}

# Table of options -> the kinds of its fields, "-" for one that no file has any more; the operators that have it.
_OPERATORS = {
    "Conv2DOptions": ("b i i b i i b", "CONV_2D"),
    "DepthwiseConv2DOptions": ("b i i i b i i", "DEPTHWISE_CONV_2D"),
    "TransposeConvOptions": ("b i i b b", "TRANSPOSE_CONV"),
    "Pool2DOptions": ("b i i i i b", "AVERAGE_POOL_2D MAX_POOL_2D L2_POOL_2D"),
    "FullyConnectedOptions": ("b b ? ? b", "FULLY_CONNECTED"),
    "BatchMatMulOptions": ("? ? ?", "BATCH_MATMUL"),
    "SoftmaxOptions": ("f", "SOFTMAX"),
    "LogSoftmaxOptions": ("", "LOG_SOFTMAX"),
    "L2NormOptions": ("b", "L2_NORMALIZATION"),
    "LocalResponseNormalizationOptions": ("i f f f", "LOCAL_RESPONSE_NORMALIZATION"),
    "AddOptions": ("b ?", "ADD"),
    "SubOptions": ("b ?", "SUB"),
    "MulOptions": ("b", "MUL"),
    "DivOptions": ("b", "DIV"),
    "MaximumMinimumOptions": ("", "MAXIMUM MINIMUM"),
    "SquaredDifferenceOptions": ("", "SQUARED_DIFFERENCE"),
    "PowOptions": ("", "POW"),
    "AbsOptions": ("", "ABS"),
    "ExpOptions": ("", "EXP"),
    "NegOptions": ("", "NEG"),
    "SquareOptions": ("", "SQUARE"),
    "SignOptions": ("", "SIGN"),
    "CosOptions": ("", "COS"),
    "LeakyReluOptions": ("f", "LEAKY_RELU"),
    "HardSwishOptions": ("", "HARD_SWISH"),
    "GeluOptions": ("?", "GELU"),
    "ReducerOptions": ("?", "MEAN SUM REDUCE_MAX REDUCE_MIN REDUCE_PROD"),
    "ArgMaxOptions": ("b", "ARG_MAX"),
    "ReshapeOptions": ("[i]", "RESHAPE"),
    "SqueezeOptions": ("[i]", "SQUEEZE"),
    "ExpandDimsOptions": ("", "EXPAND_DIMS"),
    "TransposeOptions": ("", "TRANSPOSE"),
    "ConcatenationOptions": ("i b", "CONCATENATION"),
    "SplitOptions": ("i", "SPLIT"),
    "SplitVOptions": ("i", "SPLIT_V"),
    "PackOptions": ("i i", "PACK"),
    "UnpackOptions": ("i i", "UNPACK"),
    "SliceOptions": ("", "SLICE"),
    "StridedSliceOptions": ("i i i i i ?", "STRIDED_SLICE"),
    "GatherOptions": ("i i", "GATHER"),
    "PadOptions": ("", "PAD"),
    "PadV2Options": ("", "PADV2"),
    "MirrorPadOptions": ("b", "MIRROR_PAD"),
    "ResizeBilinearOptions": ("- - ? ?", "RESIZE_BILINEAR"),
    "ResizeNearestNeighborOptions": ("? ?", "RESIZE_NEAREST_NEIGHBOR"),
    "SpaceToDepthOptions": ("i", "SPACE_TO_DEPTH"),
    "DepthToSpaceOptions": ("i", "DEPTH_TO_SPACE"),
    "SpaceToBatchNDOptions": ("", "SPACE_TO_BATCH_ND"),
    "BatchToSpaceNDOptions": ("", "BATCH_TO_SPACE_ND"),
    "TileOptions": ("", "TILE"),
    "BroadcastToOptions": ("", "BROADCAST_TO"),
    "FillOptions": ("", "FILL"),
    "ShapeOptions": ("b", "SHAPE"),
    "CastOptions": ("b b", "CAST"),
    "QuantizeOptions": ("", "QUANTIZE"),
    "DequantizeOptions": ("", "DEQUANTIZE"),
    "SelectOptions": ("", "SELECT"),
    "SelectV2Options": ("", "SELECT_V2"),
    "LessOptions": ("", "LESS"),
    "LessEqualOptions": ("", "LESS_EQUAL"),
    "GreaterOptions": ("", "GREATER"),
    "GreaterEqualOptions": ("", "GREATER_EQUAL"),
    "EqualOptions": ("", "EQUAL"),
    "NotEqualOptions": ("", "NOT_EQUAL"),
    "LogicalAndOptions": ("", "LOGICAL_AND"),
    "LogicalOrOptions": ("", "LOGICAL_OR"),
    "LogicalNotOptions": ("", "LOGICAL_NOT"),
    # Without options.
    "NONE": (
        "",
        "RELU RELU6 RELU_N1_TO_1 RELU_0_TO_1 ELU PRELU LOGISTIC TANH RSQRT SQRT LOG SIN FLOOR CEIL ROUND",
    ),
}
OPTIONS = {operator: name for name, (_, operators) in _OPERATORS.items() for operator in operators.split()}
TABLES |= {
    name: {str(number): kind.strip("-") for number, kind in enumerate(kinds.split())}
    for name, (kinds, _) in _OPERATORS.items()
    if name != "NONE"
}
