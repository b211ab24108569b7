"""Lower bounds on a training step: its indispensable work, with which tools/benchmarks/bench_step.py compares it."""


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
        def one(step, point):
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(point)
                value = tf.reduce_sum(cross_entropy(point, training=False))
            # The sum prevents pruning of the pass; it is the least that an attack can do with a gradient.
            return step + 1, point + tape.gradient(value, point)

        clean = method(images, training=False) if on_divergence else tf.zeros([1])
        _, point = tf.while_loop(lambda step, _: step < attack.steps, one, (0, images), parallel_iterations=1)
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
        def one(step, point):
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(point)
                value = tf.reduce_sum(project(point, False)[1] ** 2)
            return step + 1, point + tape.gradient(value, point)

        clean = project(tf.tile(images, [2, 1, 1, 1]), False)[1]
        _, point = tf.while_loop(lambda step, _: step < attack.steps, one, (0, images), parallel_iterations=1)
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
