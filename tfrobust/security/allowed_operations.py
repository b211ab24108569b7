"""Allowed TensorFlow operations of a model: computation on tensors, and access to its own variables and tables."""

# Why a list, and not a property of TensorFlow's registry: "stateless" there means that a result may be cached, not that
# an operation has no side effects. ReadFile, MatchingFiles, ImmutableConst (maps a file), DecodeProtoV2 (reads a
# descriptor file), DebugIdentity (writes to any URL), PyFuncStateless and Abort (ends the process) all count as
# stateless, while reading a variable does not. A list also rejects unknown operations, custom ones included.
# Excluded on purpose: files, printing, summaries, Python, data sets, queues and staging, sockets and remote calls, host
# calls of other devices, debugging, compression, protocol buffers by descriptor, and XLA modules, whose content the
# scan does not see; also the uninitialized-array operations, which return memory that was never written.

_ARITHMETIC = """
Abs AccumulateNV2 Acos Acosh Add AddN AddV2 Angle ApproximateEqual Asin Asinh Atan Atan2 Atanh Betainc Cast Ceil
ClipByValue Complex ComplexAbs Conj Cos Cosh Digamma Div DivNoNan Equal Erf Erfc Erfinv Exp Expm1 Floor FloorDiv
FloorMod Greater GreaterEqual Igamma IgammaGradA Igammac Imag Inv InvGrad IsFinite IsInf IsNan Less LessEqual Lgamma
Log Log1p LogicalAnd LogicalNot LogicalOr Maximum Minimum Mod Mul MulNoNan Ndtri Neg NextAfter NotEqual Polygamma Pow
Real RealDiv Reciprocal ReciprocalGrad Rint Round Rsqrt RsqrtGrad Sigmoid SigmoidGrad Sign Sin Sinh Sqrt SqrtGrad
Square SquaredDifference Sub Tan Tanh TanhGrad TruncateDiv TruncateMod Xdivy Xlog1py Xlogy Zeta BesselI0 BesselI0e
BesselI1 BesselI1e BesselJ0 BesselJ1 BesselK0 BesselK0e BesselK1 BesselK1e BesselY0 BesselY1 Dawsn Expint FresnelCos
FresnelSin Spence BitwiseAnd BitwiseOr BitwiseXor Invert LeftShift PopulationCount RightShift
"""

_REDUCTIONS = """
All Any ArgMax ArgMin Bincount Bucketize Cumprod Cumsum CumulativeLogsumexp DenseBincount DenseCountSparseOutput
EuclideanNorm HistogramFixedWidth Max Mean Min Prod RaggedBincount RaggedCountSparseOutput SegmentMax SegmentMaxV2
SegmentMean SegmentMin SegmentMinV2 SegmentProd SegmentProdV2 SegmentSum SegmentSumV2 SparseBincount
SparseCountSparseOutput SparseSegmentMean SparseSegmentMeanGrad SparseSegmentMeanWithNumSegments SparseSegmentSqrtN
SparseSegmentSqrtNGrad SparseSegmentSqrtNWithNumSegments SparseSegmentSum SparseSegmentSumGrad
SparseSegmentSumWithNumSegments Sum UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentSum
"""

_LINEAR_ALGEBRA = """
BandedTriangularSolve BatchMatMul BatchMatMulV2 BatchMatMulV3 Cholesky CholeskyGrad Cross Eig Einsum
LogMatrixDeterminant Lu MatMul MatrixDeterminant MatrixExponential MatrixInverse MatrixLogarithm MatrixSolve
MatrixSolveLs MatrixSquareRoot MatrixTriangularSolve Qr SelfAdjointEigV2 SparseMatMul Svd TridiagonalMatMul
TridiagonalSolve FFT FFT2D FFT3D FFTND IFFT IFFT2D IFFT3D IFFTND IRFFT IRFFT2D IRFFT3D IRFFTND RFFT RFFT2D RFFT3D
RFFTND
"""

_ARRAYS = """
BatchToSpace BatchToSpaceND Bitcast BroadcastArgs BroadcastGradientArgs BroadcastTo CheckNumerics CheckNumericsV2
Concat ConcatOffset ConcatV2 ConjugateTranspose Const DepthToSpace Dequantize Diag DiagPart DynamicPartition
DynamicStitch EditDistance EnsureShape ExpandDims ExtractImagePatches ExtractVolumePatches FakeQuantWithMinMaxArgs
FakeQuantWithMinMaxArgsGradient FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsGradient
FakeQuantWithMinMaxVarsPerChannel FakeQuantWithMinMaxVarsPerChannelGradient Fill Fingerprint Gather GatherNd GatherV2
GuaranteeConst Identity IdentityN InvertPermutation LinSpace ListDiff LowerBound MatrixBandPart MatrixDiag
MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3 MatrixDiagV2 MatrixDiagV3 MatrixSetDiag MatrixSetDiagV2
MatrixSetDiagV3 MirrorPad MirrorPadGrad NthElement OneHot OnesLike Pack Pad PadV2 ParallelDynamicStitch Placeholder
PlaceholderV2 PlaceholderWithDefault PreventGradient QuantizeAndDequantize QuantizeAndDequantizeV2
QuantizeAndDequantizeV3 QuantizeAndDequantizeV4 QuantizeAndDequantizeV4Grad QuantizeV2 Range Rank Reshape Reverse
ReverseSequence ReverseV2 Roll ScatterNd ScatterNdNonAliasingAdd Select SelectV2 Shape ShapeN Size Slice Snapshot
SpaceToBatch SpaceToBatchND SpaceToDepth Split SplitV Squeeze StopGradient StridedSlice StridedSliceGrad
TensorScatterAdd TensorScatterMax TensorScatterMin TensorScatterSub TensorScatterUpdate TensorStridedSliceUpdate Tile
TileGrad TopK TopKV2 Transpose Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2 Unpack UnravelIndex UpperBound
Where ZerosLike
"""

_NETWORKS = """
ApproxTopK AvgPool AvgPool3D AvgPool3DGrad AvgPoolGrad BatchNormWithGlobalNormalization BiasAdd BiasAddGrad BiasAddV1
BlockLSTM BlockLSTMV2 CTCBeamSearchDecoder CTCGreedyDecoder CTCLoss CTCLossV2 Conv Conv2D Conv2DBackpropFilter
Conv2DBackpropFilterV2 Conv2DBackpropInput Conv2DBackpropInputV2 Conv3D Conv3DBackpropFilter Conv3DBackpropFilterV2
Conv3DBackpropInput Conv3DBackpropInputV2 CudnnRNN CudnnRNNCanonicalToParamsV2 CudnnRNNParamsSize CudnnRNNV2
CudnnRNNV3 DataFormatDimMap DataFormatVecPermute DepthwiseConv2dNative DepthwiseConv2dNativeBackpropFilter
DepthwiseConv2dNativeBackpropInput Dilation2D Dilation2DBackpropFilter Dilation2DBackpropInput Elu EluGrad
FractionalAvgPool FractionalMaxPool FusedBatchNorm FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3
FusedBatchNormV2 FusedBatchNormV3 FusedPadConv2D FusedResizeAndPadConv2D GRUBlockCell InTopK InTopKV2
IsotonicRegression L2Loss LRN LRNGrad LSTMBlockCell LeakyRelu LeakyReluGrad LogSoftmax MaxPool MaxPool3D MaxPool3DGrad
MaxPoolGrad MaxPoolGradV2 MaxPoolGradWithArgmax MaxPoolV2 MaxPoolWithArgmax Relu Relu6 Relu6Grad ReluGrad Selu
SeluGrad Softmax SoftmaxCrossEntropyWithLogits Softplus SoftplusGrad Softsign SoftsignGrad
SparseSoftmaxCrossEntropyWithLogits
"""

_PICTURES_AND_SOUND = """
AdjustContrast AdjustContrastv2 AdjustHue AdjustSaturation AudioSpectrogram CombinedNonMaxSuppression CropAndResize
CropAndResizeGradBoxes CropAndResizeGradImage DecodeAndCropJpeg DecodeBmp DecodeGif DecodeImage DecodeJpeg DecodePng
DecodeWav DrawBoundingBoxes DrawBoundingBoxesV2 EncodeJpeg EncodeJpegVariableQuality EncodePng EncodeWav
ExtractGlimpse ExtractGlimpseV2 ExtractJpegShape HSVToRGB ImageProjectiveTransformV2 ImageProjectiveTransformV3 Mfcc
NonMaxSuppression NonMaxSuppressionV2 NonMaxSuppressionV3 NonMaxSuppressionV4 NonMaxSuppressionV5
NonMaxSuppressionWithOverlaps RGBToHSV RandomCrop ResizeArea ResizeBicubic ResizeBicubicGrad ResizeBilinear
ResizeBilinearGrad ResizeNearestNeighbor ResizeNearestNeighborGrad SampleDistortedBoundingBox
SampleDistortedBoundingBoxV2 ScaleAndTranslate ScaleAndTranslateGrad StatelessSampleDistortedBoundingBox
"""

_RANDOM = """
Multinomial NonDeterministicInts ParameterizedTruncatedNormal RandomGamma RandomGammaGrad RandomIndexShuffle
RandomPoisson RandomPoissonV2 RandomShuffle RandomStandardNormal RandomUniform RandomUniformInt RngReadAndSkip RngSkip
StatefulRandomBinomial StatefulStandardNormalV2 StatefulTruncatedNormal StatefulUniform StatefulUniformFullInt
StatefulUniformInt StatelessMultinomial StatelessParameterizedTruncatedNormal StatelessRandomBinomial
StatelessRandomGammaV2 StatelessRandomGammaV3 StatelessRandomGetAlg StatelessRandomGetKeyCounter
StatelessRandomGetKeyCounterAlg StatelessRandomNormal StatelessRandomNormalV2 StatelessRandomPoisson
StatelessRandomUniform StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2 StatelessRandomUniformInt
StatelessRandomUniformIntV2 StatelessRandomUniformV2 StatelessShuffle StatelessTruncatedNormal
StatelessTruncatedNormalV2 TruncatedNormal
"""

_TEXT_AND_EXAMPLES = """
AsString DecodeBase64 DecodeCSV DecodeJSONExample DecodePaddedRaw DecodeRaw EncodeBase64 ParseExample ParseExampleV2
ParseSequenceExample ParseSequenceExampleV2 ParseSingleExample ParseSingleSequenceExample ReduceJoin RegexFullMatch
RegexReplace StaticRegexFullMatch StaticRegexReplace StringFormat StringJoin StringLength StringLower StringNGrams
StringSplit StringSplitV2 StringStrip StringToHashBucket StringToHashBucketFast StringToHashBucketStrong
StringToNumber StringUpper Substr UnicodeDecode UnicodeDecodeWithOffsets UnicodeEncode UnicodeScript UnicodeTranscode
UnsortedSegmentJoin
"""

_SPARSE_AND_RAGGED = """
DenseToDenseSetOperation DenseToSparseSetOperation DeserializeManySparse DeserializeSparse RaggedCross
RaggedFillEmptyRows RaggedGather RaggedRange RaggedTensorFromVariant RaggedTensorToSparse RaggedTensorToTensor
RaggedTensorToVariant RaggedTensorToVariantGradient SerializeManySparse SerializeSparse SetSize SparseAdd
SparseAddGrad SparseConcat SparseCross SparseCrossHashed SparseCrossV2 SparseDenseCwiseAdd SparseDenseCwiseDiv
SparseDenseCwiseMul SparseFillEmptyRows SparseFillEmptyRowsGrad SparseReduceMax SparseReduceMaxSparse SparseReduceSum
SparseReduceSumSparse SparseReorder SparseReshape SparseSlice SparseSliceGrad SparseSoftmax SparseSparseMaximum
SparseSparseMinimum SparseSplit SparseTensorDenseAdd SparseTensorDenseMatMul SparseToDense SparseToSparseSetOperation
"""

_FLOW = """
Assert Case ControlTrigger DeviceIndex Enter Exit FakeParam For If LoopCond Merge NextIteration NoOp OptionalFromValue
OptionalGetValue OptionalHasValue OptionalNone PartitionedCall StatefulPartitionedCall StatelessCase StatelessIf
StatelessWhile Switch ToBool While _Arg _Retval
"""

_LISTS = """
EmptyTensorList EmptyTensorMap TensorArrayCloseV3 TensorArrayConcatV3 TensorArrayGatherV3 TensorArrayGradV3
TensorArrayReadV3 TensorArrayScatterV3 TensorArraySizeV3 TensorArraySplitV3 TensorArrayV3 TensorArrayWriteV3
TensorListConcat TensorListConcatLists TensorListConcatV2 TensorListElementShape TensorListFromTensor TensorListGather
TensorListGetItem TensorListLength TensorListPopBack TensorListPushBack TensorListPushBackBatch TensorListReserve
TensorListResize TensorListScatter TensorListScatterIntoExistingList TensorListScatterV2 TensorListSetItem
TensorListSplit TensorListStack TensorMapErase TensorMapHasKey TensorMapInsert TensorMapLookup TensorMapSize
TensorMapStackKeys
"""

# These change only the model's own state: its variables and its lookup tables.
_OWN_STATE = """
Assign AssignAdd AssignAddVariableOp AssignSub AssignSubVariableOp AssignVariableOp DestroyResourceOp
DisableCopyOnRead IsVariableInitialized ReadVariableOp ResourceCountUpTo ResourceGather ResourceGatherNd
ResourceScatterAdd ResourceScatterDiv ResourceScatterMax ResourceScatterMin ResourceScatterMul ResourceScatterNdAdd
ResourceScatterNdMax ResourceScatterNdMin ResourceScatterNdSub ResourceScatterNdUpdate ResourceScatterSub
ResourceScatterUpdate ResourceStridedSliceAssign VarHandleOp VarIsInitializedOp Variable VariableShape VariableV2
AnonymousHashTable AnonymousMutableDenseHashTable AnonymousMutableHashTable AnonymousMutableHashTableOfTensors
HashTable HashTableV2 InitializeTable InitializeTableV2 LookupTableExport LookupTableExportV2 LookupTableFind
LookupTableFindV2 LookupTableImport LookupTableImportV2 LookupTableInsertV2 LookupTableRemoveV2 LookupTableSize
LookupTableSizeV2 MutableDenseHashTableV2 MutableHashTableOfTensorsV2 MutableHashTableV2
"""

ALLOWED = frozenset(
    " ".join(
        (
            *(_ARITHMETIC, _REDUCTIONS, _LINEAR_ALGEBRA, _ARRAYS, _NETWORKS, _PICTURES_AND_SOUND, _RANDOM),
            *(_TEXT_AND_EXAMPLES, _SPARSE_AND_RAGGED, _FLOW, _LISTS, _OWN_STATE),
        )
    ).split()
)

# Allowed only where loading and serving do not reach them: in the model's own saver, which a server never calls to
# save, and which a loader uses only to restore `variables/`.
SAVERS = frozenset({"MergeV2Checkpoints", "RestoreV2", "SaveV2", "ShardedFilename"})

# Position of the input that names a file. The name must come from the model's own `assets/` or, for the saver, from the
# caller that restores the model.
FILE_INPUTS = {"InitializeTableFromTextFile": 1, "InitializeTableFromTextFileV2": 1, "RestoreV2": 0}
