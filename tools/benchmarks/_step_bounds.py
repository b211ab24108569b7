"""Lower bounds on a training step: its indispensable work, with which tools/benchmarks/bench_step.py compares it."""

import contextlib


def attacks(method) -> bool:
    """Return True if the method trains on adversarial examples."""
    return getattr(method, "adversary", None) is not None


def make_bound(method, images, labels):
    """Return a function without arguments that does the indispensable work of one training step and waits for it."""
    import tensorflow as tf

    attack, on_divergence = method.adversary.attack, method.adversary.objective == "kl"

    def cross_entropy(images, training):
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, method(images, training=training))

    @tf.function(autograph=False)
    def passes(images):
        def attack_step(step, point):
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(point)
                value = tf.reduce_sum(cross_entropy(point, training=False))
            # The sum prevents pruning of the pass; it is the least that an attack can do with a gradient.
            return step + 1, point + tape.gradient(value, point)

        clean = method(images, training=False) if on_divergence else tf.zeros([1])
        _, point = tf.while_loop(lambda step, _: step < attack.steps, attack_step, (0, images), parallel_iterations=1)
        return point, clean

    @tf.function(autograph=False)
    def update(images, adversarial):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(cross_entropy(images, True)) + tf.reduce_mean(cross_entropy(adversarial, True))
        gradients = tape.gradient(loss, method.trainable_variables)
        method.optimizer.apply_gradients(zip(gradients, method.trainable_variables, strict=True))
        return loss

    def bound():
        passes(images)
        # The clean images stand in for adversarial ones: the values of pixels do not change the work.
        return float(update(images, images))

    return bound


def compares_instances(method) -> bool:
    """Return True if the method trains projections of views, with adversaries of them (RoCL) or without (SimCLR)."""
    return hasattr(method, "represent")


def make_instance_bound(method, images, labels):
    """Return the bound of SimCLR or RoCL, in the form of `make_bound`.

    SimCLR trains two views. RoCL trains three, after the attack and the projections of the clean views.
    """
    import tensorflow as tf

    attack = method.adversary.attack if attacks(method) else None
    copies = 3 if attack else 2

    def project(images, training):
        embedding = method.encoder(images, training=training)
        return embedding, method.projection(embedding, training=training)

    @tf.function(autograph=False)
    def passes(images):
        def attack_step(step, point):
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(point)
                value = tf.reduce_sum(project(point, False)[1] ** 2)
            return step + 1, point + tape.gradient(value, point)

        clean = project(tf.tile(images, [2, 1, 1, 1]), False)[1]
        _, point = tf.while_loop(lambda step, _: step < attack.steps, attack_step, (0, images), parallel_iterations=1)
        return point, clean

    @tf.function(autograph=False)
    def update(images):
        with tf.GradientTape() as tape:
            embedding, projected = project(tf.tile(images, [copies, 1, 1, 1]), True)
            logits = method.head(tf.stop_gradient(embedding))
            entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.tile(labels, [copies]), logits)
            loss = tf.reduce_mean(projected**2) + tf.reduce_mean(entropy)
        gradients = tape.gradient(loss, method.trainable_variables)
        method.optimizer.apply_gradients(zip(gradients, method.trainable_variables, strict=True))
        return loss

    def bound():
        if attack:
            passes(images)
        return float(update(images))

    return bound


def has_targets(method) -> bool:
    """Return True if the method predicts a momentum network (BYOL, MoCo v3) or assignments (SwAV, DINO)."""
    return hasattr(method, "target_networks") or hasattr(method, "prototypes")


def make_target_bound(method, views, labels):
    """Return the bound of BYOL, MoCo v3, SwAV or DINO, in the form of `make_bound`.

    It is one training pass of each view through encoder, projection and prediction or prototypes, one pass of the two
    global views through the momentum network, and the updates of both networks.

    Args:
        method: built and compiled.
        views: name -> images [b, h, w, c], in the order of the method.
        labels: int32 [b].
    """
    import tensorflow as tf

    from tfrobust.methods.shared.momentum import weight_pairs

    predict = getattr(method, "prediction", None) or method.prototypes
    followed = [pair for parts in getattr(method, "followed_parts", ()) for pair in weight_pairs(*parts)]
    followed = [(online, target) for online, target in followed if online.trainable]

    def project(views, encoder, projection):
        stacks = views
        if method.forward == "joint":  # one pass of all views of a size
            sizes = dict.fromkeys(view.shape[1:] for view in views)
            stacks = [tf.concat([view for view in views if view.shape[1:] == size], axis=0) for size in sizes]
        with getattr(encoder, "accepting_any_size", contextlib.nullcontext)():
            embedding = tf.concat([encoder(stack, training=True) for stack in stacks], axis=0)
        return embedding, projection(embedding, training=True)

    @tf.function(autograph=False)
    def update(views):
        targets = project(views[:2], *method.target_networks)[1] if followed else tf.zeros([1])
        with tf.GradientTape() as tape:
            embedding, projected = project(views, method.encoder, method.projection)
            logits = method.head(tf.stop_gradient(embedding[: 2 * len(labels)]))
            entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.tile(labels, [2]), logits)
            loss = tf.reduce_mean(predict(projected, training=True) ** 2) + tf.reduce_mean(entropy)
        gradients = tape.gradient(loss, method.trainable_variables)
        method.optimizer.apply_gradients(zip(gradients, method.trainable_variables, strict=True))
        for online, target in followed:
            target.assign_add(0.01 * (online.value - target.value))
        return loss + 0.0 * tf.reduce_sum(targets)  # the sum prevents pruning of the pass

    view_tensors = tuple(views.values())
    return lambda: float(update(view_tensors))


def make_stacked_bound(method, images, labels):
    """Return the bound of a method without an attack, in the form of `make_bound`.

    It is one stacked pass of the method's views, after an input gradient if the method takes one.
    """
    import tensorflow as tf

    asks_utility = hasattr(method, "utility")
    copies = method.passes_per_step - asks_utility

    @tf.function(autograph=False)
    def utility(images):
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(images)
            logits = method(images, training=False)
            value = tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        return tape.gradient(value, images)

    @tf.function(autograph=False)
    def update(images):
        with tf.GradientTape() as tape:
            logits = method(tf.tile(images, [copies, 1, 1, 1]), training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(tf.tile(labels, [copies]), logits))
        gradients = tape.gradient(loss, method.trainable_variables)
        method.optimizer.apply_gradients(zip(gradients, method.trainable_variables, strict=True))
        return loss

    def bound():
        if asks_utility:
            utility(images)
        return float(update(images))

    return bound
