"""Models that pass a gray image and then crash, hang or eat the machine; each is refused within limits."""

import resource

import numpy as np
import pytest
import stored
import tensorflow as tf
from hostile import programs

from tfrobust.commands import evaluate
from tfrobust.data.checks import MOST_CLASSES
from tfrobust.errors import InputError
from tfrobust.evaluation.engine import loading, predictor
from tfrobust.security import memory, rehearsal, saved_models


def _flat(images):
    return tf.reshape(images, (-1, 64))[:, :3]


def _where_bright(function):
    """Adds a number to the logits of images that are not gray, which the function returns."""
    return lambda images: _flat(images) + tf.cond(tf.reduce_max(images) > 0.55, function, lambda: 0.0)


def _root():
    return tf.reduce_sum(tf.linalg.sqrtm(tf.eye(6000)))


def _endless_list():
    def longer(size, items):
        return size + 1, tf.raw_ops.TensorListPushBack(
            input_handle=items, tensor=tf.fill([2**22], tf.cast(size, tf.float32))
        )

    empty = tf.raw_ops.EmptyTensorList(element_shape=[2**22], max_num_elements=-1, element_dtype=tf.float32)
    shapes = tf.TensorShape([]), tf.TensorShape([])
    size, _ = tf.while_loop(lambda size, _: size < 10**8, longer, (0, empty), shape_invariants=shapes)
    return tf.cast(size, tf.float32)


def _pool():
    return tf.reduce_sum(tf.nn.max_pool3d(tf.zeros([1, 150, 150, 150, 2]), 149, 1, "SAME"))


def _padded():
    read = tf.raw_ops.DecodePaddedRaw(input_bytes=["abcdefgh"], fixed_length=2 * 10**9, out_type=tf.uint8)
    return tf.cast(tf.reduce_max(read), tf.float32)


def _outside():
    """Writes far outside of its memory."""
    position = tf.fill([1, 4, 4, 1], tf.constant(2**40, tf.int64))
    options = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
    zeros = tf.zeros([1, 8, 8, 1])
    return tf.reduce_sum(
        tf.raw_ops.MaxPoolGradWithArgmax(input=zeros, grad=zeros[:, :4, :4], argmax=position, **options)
    )


def _with_gradient(backward):
    function = tf.custom_gradient(lambda images: (images, backward))
    return lambda images: _flat(function(images))


def _endless_gradient(upstream):
    return tf.while_loop(lambda value: tf.reduce_max(tf.abs(value)) < 2.0, lambda value: (value * 0.5,), (upstream,))[0]


def _crashing_gradient(upstream):
    return upstream + _outside()


def _other_batch(images):
    return _flat(images) + tf.cond(tf.shape(images)[0] > 2, _outside, lambda: 0.0)


CRASH, HANG, MEMORY = "crashes on it", r"takes more than|within 40 s", "more memory than it may|needs more than"
KINDS = stored.table(globals(), "kinds")


def _saved(function, path):
    module = tf.Module()
    module.answer = tf.function(
        lambda images: {"logits": function(images)},
        input_signature=[tf.TensorSpec([None, 8, 8, 1], name="images")],
        autograph=False,
    )
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.answer})
    return path


@pytest.mark.rest
@pytest.mark.parametrize("name", KINDS)
def test_what_one_gray_image_does_not_show(tmp_path, monkeypatch, name):
    function, part = KINDS[name]
    # Only calls without end need a limit; on a busy machine, TensorFlow alone takes half a minute to import.
    monkeypatch.setattr(rehearsal, "SECONDS", 40 if HANG in part else 250)
    model = _saved(function, tmp_path / "model")
    assert saved_models.scan(model) == []
    examples = np.random.default_rng(0).uniform(0.6, 0.9, (20, 8, 8, 1)).astype(np.float32)
    use = rehearsal.Use(batch_size=20, gradient_batch=20, examples=examples)
    with pytest.raises(InputError, match=part) as error:
        loading.load(str(model), use=use)
    assert len(str(error.value)) <= 300
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 2**21, "KiB"


def test_a_process_is_limited_while_it_evaluates():
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with memory.limited(2**28):
        with pytest.raises(MemoryError):
            bytearray(2**30)
        bytearray(2**20)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


@pytest.mark.parametrize("free, most", [(2**40, 2**30), (2**20, int(0.9 * 2**20)), (None, 2**30)])
def test_a_model_gets_no_more_than_is_free(monkeypatch, free, most):
    monkeypatch.setattr(memory, "available", lambda: free)
    assert memory.bounded(2**30) == most


@pytest.mark.parametrize(
    "most, statistics, left",
    [
        ("1000", "anon 80\ninactive_file 500\nactive_file 300\nslab_reclaimable 20\nslab 70\n", 920),
        ("1000", "anon 80\n", 100),
        ("1000", None, 100),
        ("max", "inactive_file 500\n", None),
    ],
)
def test_the_page_cache_of_a_container_is_free(monkeypatch, tmp_path, most, statistics, left):
    files = {"memory.max": most, "memory.current": "900\n", "memory.stat": statistics}
    for name, text in files.items():
        if text is not None:
            (tmp_path / name).write_text(text)
    monkeypatch.setattr(memory, "_CONTROL_GROUP", tmp_path)
    assert memory._of_container() == left


def test_a_lack_of_memory_is_one_line():
    with pytest.raises(InputError, match="^a model fails when it is called: it takes more memory than it may$"):
        with saved_models.answering("a model"):
            raise MemoryError
    with pytest.raises(InputError, match="more memory than it may"), saved_models.answering("a model"):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")


def test_a_million_classes_are_refused():
    with pytest.raises(InputError, match=f"has {MOST_CLASSES + 1} classes; at most {MOST_CLASSES}"):
        predictor.from_function(lambda x: tf.zeros([len(x), MOST_CLASSES + 1]), image_shape=(2, 2, 1))


class _Asked(Exception):
    """The rehearsal was begun."""


@pytest.mark.parametrize("attack, gradient_batch", [("pgd", 128), ("clean", 2)])
def test_the_command_says_how_it_will_call_the_model(
    export_copy, evaluate_flags, monkeypatch, tmp_path, attack, gradient_batch
):
    asked = []

    def run(model, growth, seconds, use):
        asked.append((use, growth))
        return "is not asked any more"

    monkeypatch.setattr(rehearsal, "run", run)
    programs.changed(lambda graph: programs.new_node(graph.graph_def.node, "more", "NoOp"))(export_copy)
    (tmp_path / "clean.gin").write_text("evaluate.evaluators = [@CleanAccuracy()]\n")
    flags = evaluate_flags(export_copy)
    if attack == "clean":
        flags[2:4] = [f"--gin_file={tmp_path / 'clean.gin'}"]
    assert evaluate.main(flags) == 2
    ((use, growth),) = asked
    with np.load(flags[1].partition("=")[2]) as data:
        np.testing.assert_allclose(use.examples, data["images"] / np.float32(255), rtol=1e-6)
    assert (use.batch_size, use.gradient_batch) == (128, gradient_batch)
    files = sum(path.stat().st_blocks * 512 for path in export_copy.rglob("*") if path.is_file())
    assert 2**30 < growth <= 2**30 + 16 * files + 4096 * 128 * 256 + 2**26 * 64
