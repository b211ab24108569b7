"""Views that the input pipeline makes ahead of the step, or the step itself where nobody did."""

import numpy as np
import tensorflow as tf

from oracles import tiny_network
from tfrobust.losses import classification
from tfrobust.methods.shared.method import Method
from tfrobust.ops import randomness


class Halved(Method):
    terms = ("ce",)
    host_view_names = ("noisy",)

    def host_views(self, images, key):
        return {"noisy": images + randomness.draw(randomness.uniform(), key, images.shape)}

    def make_views(self, batch, context):
        return self.extra_views(batch, context)

    def loss_terms(self, views, batch, context):
        _, logits = self.propagate(views["noisy"])
        return {"ce": classification.cross_entropy(logits, batch.labels)}, logits


def test_views_come_from_the_pipeline_or_by_the_key_of_the_step():
    method = tiny_network.build(Halved)
    batch, context = tiny_network.batch()
    noisy = tf.ones_like(batch.images)
    assert method.make_views(batch._replace(extra={"noisy": noisy}), context)["noisy"] is noisy
    first, again = (method.make_views(batch, context)["noisy"] for _ in range(2))
    other = method.make_views(batch, context._replace(key=randomness.fold(context.key, 1)))["noisy"]
    assert np.array_equal(first, again) and not np.any(np.isclose(first, other))
    plain = tiny_network.build(Method)
    assert plain.extra_views(batch, context) == {} == plain.host_views(batch.images, context.key)
