"""Classifiers on the features of a frozen encoder that are fitted directly, without gradient steps.

Such a head has `fit_features`. `runs.experiment.train` calls it instead of training, and reports its output.
"""

import logging

import keras
import numpy as np
import tensorflow as tf

from tfrobust.common import arrays
from tfrobust.common.configured import Configured
from tfrobust.common.settings import require_least, require_whole
from tfrobust.errors import InputError
from tfrobust.models.heads.linear import _DenseChain
from tfrobust.ops import similarity

_log = logging.getLogger(__name__)

# Vote of a class without any neighbor, as a share of the nearest neighbor's vote.
_FLOOR = 1e-12


@keras.saving.register_keras_serializable(package="tfrobust")
class LogisticRegression(_DenseChain):
    """Linear head at the minimum of the mean cross-entropy + regularization x the sum of squared kernel entries.

    The problem is convex: there is no learning rate, there are no epochs, and the result is always the same (L-BFGS in
    double precision). A warning is logged if the optimizer stops before the minimum, because of `iterations` or
    otherwise.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> head = robust.layers.LogisticRegression(2)
        >>> _ = head.fit_features(np.array([[-1.0], [1.0], [2.0]], "float32"), np.array([0, 1, 1]))
        >>> np.argmax(head(np.array([[-3.0], [3.0]], "float32")), axis=-1).tolist()
        [0, 1]

    Args:
        class_count: k >= 2.
        regularization: >= 0; scikit-learn's C is 1 / (2 n regularization) for n examples.
        iterations: largest number of iterations, >= 1.
        normalized: divide features by their norm.

    Returns:
        Of `call`: float32 [b, k].

    Raises:
        ValueError: fewer than two classes, a negative regularization, no iteration.
    """

    def __init__(
        self,
        class_count: int,
        *,
        regularization: float = 1e-4,
        iterations: int = 1000,
        normalized: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.class_count = require_whole(class_count, "LogisticRegression.class_count", minimum=2)
        self.regularization = require_least(regularization, "LogisticRegression.regularization", 0)
        self.iterations = require_whole(iterations, "LogisticRegression.iterations")
        self.normalized = normalized
        self.chain = [keras.layers.Dense(class_count, kernel_initializer="he_normal", dtype=self.dtype_policy)]

    def fit_features(self, features: np.ndarray, labels: np.ndarray) -> dict:
        """Fit kernel and bias.

        Args:
            features: float32 [n, d].
            labels: ids in 0 .. k - 1, [n] or [n, 1], or one-hot [n, k].

        Returns:
            `converged`, the number of `iterations`, and the `largest_slope` at the end, for a report.

        Raises:
            ValueError: labels of another number, or that are no classes.
        """
        from scipy import optimize

        labels = arrays.check_labels(labels, len(features), self.class_count, type(self).__name__, floats=True)
        if not self.built:
            self.build(features.shape)
        if self.normalized:
            features = similarity.normalize(tf.constant(features)).numpy()
        features = np.asarray(features, np.float64)
        targets = np.eye(self.class_count)[labels]
        shape = (features.shape[1] + 1, self.class_count)

        def objective(flat):
            weights = flat.reshape(shape)
            logits = features @ weights[:-1] + weights[-1]
            logits -= logits.max(axis=1, keepdims=True)
            logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
            off = (np.exp(logs) - targets) / len(features)
            slope = np.vstack([features.T @ off + 2 * self.regularization * weights[:-1], off.sum(axis=0)])
            value = -(targets * logs).sum() / len(features) + self.regularization * np.square(weights[:-1]).sum()
            return value, slope.ravel()

        options = {"maxiter": self.iterations, "maxfun": 10 * self.iterations, "gtol": 1e-7, "ftol": 1e-12}
        optimum = optimize.minimize(objective, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B", options=options)
        weights = optimum.x.reshape(shape)
        self.chain[0].kernel.assign(weights[:-1])
        self.chain[0].bias.assign(weights[-1])
        slope = float(np.abs(optimum.jac).max())
        if not optimum.success:
            _log.warning(
                "LogisticRegression was stopped after %d iterations with a slope of %.2g left: raise its iterations "
                "(%d) or its regularization (%g), or set normalized = True.",
                *(optimum.nit, slope, self.iterations, self.regularization),
            )
        return {"converged": bool(optimum.success), "iterations": int(optimum.nit), "largest_slope": slope}


@keras.saving.register_keras_serializable(package="tfrobust")
class KNearestNeighbours(Configured, keras.layers.Layer):
    """Vote of the nearest training examples by cosine similarity; the layer stores the examples.

    logit_c = log( sum over the neighbors i of class c of exp(s_i / temperature) / the same sum over all neighbors ), s
    the cosine: the softmax is each class's share of the votes. A class without a neighbor has 1e-12 of the nearest
    one's vote. All logits are equal before any examples are stored.

    The logits are differentiable in the embedding, so that attacks apply. If all neighbors have one class, however,
    those gradients are almost 0. Evaluate robustness with neighbours=None, where every example votes, or by an attack
    without gradients.

    Example:
        >>> import numpy as np, tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> head = robust.layers.KNearestNeighbours(2, neighbours=3, temperature=0.5)
        >>> _ = head.fit_features(np.array([[2.0, 0.0], [0.0, 1.0], [0.0, 3.0]], "float32"), np.array([0, 1, 1]))
        >>> votes = tf.nn.softmax(head(tf.constant([[1.0, 0.0]])))  # 1 to twice exp(-2)
        >>> [round(float(share), 3) for share in votes[0]]
        [0.787, 0.213]

    Args:
        class_count: k >= 2.
        neighbours: number of examples that vote, >= 1; None for all.
        temperature: > 0; a lower temperature increases the weight of the nearest examples.
        examples: n >= 1, number of stored examples; `fit_features` and `runs.experiment.train` set it.

    Returns:
        Of `call`: float32 [b, k].

    Raises:
        ValueError: a number out of its range; in `build`, an unknown number of examples.

    Source:
        Wu et al. 2018 (instance discrimination), https://arxiv.org/abs/1805.01978, section 3.4: 200 neighbors,
        temperature 0.07.
    """

    def __init__(
        self,
        class_count: int,
        *,
        neighbours: int | None = 200,
        temperature: float = 0.07,
        examples: int | None = None,
        name: str | None = None,
        **kwargs,
    ):
        kwargs.setdefault("dtype", "float32")
        super().__init__(name=name, **kwargs)
        self.class_count = require_whole(class_count, "KNearestNeighbours.class_count", minimum=2)
        if neighbours is not None:
            neighbours = require_whole(neighbours, "KNearestNeighbours.neighbours")
        if not temperature > 0:
            raise InputError(f"KNearestNeighbours.temperature is {temperature}; it must be > 0.")
        self.neighbours, self.temperature, self.examples = neighbours, temperature, examples

    def build(self, input_shape):
        """Create the variables for the stored features and labels."""
        if self.examples is None:
            raise InputError("KNearestNeighbours stores every training example: set examples to their number.")
        settings = {"trainable": False, "autocast": False, "initializer": "zeros"}
        shape = (self.examples, int(input_shape[-1]))
        self.features = self.add_weight(name="features", shape=shape, dtype="float32", **settings)
        # Label -1 has no vote, so that all classes are equal before examples are stored.
        settings["initializer"] = keras.initializers.Constant(-1)
        self.labels = self.add_weight(name="labels", shape=(self.examples,), dtype="int64", **settings)

    def compute_output_shape(self, input_shape):
        """Return (b, k)."""
        return (*tuple(input_shape)[:-1], self.class_count)

    def fit_features(self, features: np.ndarray, labels: np.ndarray) -> dict:
        """Store the examples.

        Args:
            features: float32 [n, d].
            labels: ids in 0 .. k - 1, [n] or [n, 1], or one-hot [n, k].

        Returns:
            `examples`, the number of stored examples, and `neighbours`, the number that vote, for a report.

        Raises:
            ValueError: labels of another number, or that are no classes.
        """
        labels = arrays.check_labels(labels, len(features), self.class_count, type(self).__name__, floats=True)
        if not self.built:
            self.examples = len(features)
            self.build(features.shape)
        self.features.assign(similarity.normalize(tf.constant(features, tf.float32)))
        self.labels.assign(labels)
        stored = int(self.features.shape[0])
        return {"examples": stored, "neighbours": min(self.neighbours or stored, stored)}

    def call(self, embedding):
        """Compute the logarithm of each class's share of the votes."""
        embedding = similarity.normalize(tf.cast(embedding, tf.float32))
        cosine = tf.matmul(embedding, self.features, transpose_b=True)
        labels = tf.convert_to_tensor(self.labels)
        if self.neighbours is not None and self.neighbours < self.features.shape[0]:
            cosine, nearest = tf.math.top_k(cosine, self.neighbours, sorted=False)
            labels = tf.gather(labels, nearest)
        peak = tf.reduce_max(cosine, axis=-1, keepdims=True)
        weights = tf.exp((cosine - peak) / self.temperature)[..., None, :]
        votes = tf.matmul(weights, tf.one_hot(labels, self.class_count))[..., 0, :] + _FLOOR
        return tf.math.log(votes / tf.reduce_sum(votes, axis=-1, keepdims=True))
