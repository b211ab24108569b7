"""The table of a plan: its arithmetic, its verdicts, and that stored results are neither repeated nor mistaken."""

import itertools
import json
import shlex

import _recipes
import _results_markdown as markdown
import _results_plan
import numpy as np
import pytest
import results_table
import stored
import tensorflow as tf

from tfrobust.errors import InputError

PLAN = stored.text(globals(), "plan")


@pytest.fixture
def plan_file(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(PLAN.format(folder=tmp_path))
    return path


def result(row, seed, correct, **measured):
    outcomes = {"a": results_table.pack(correct)} if correct else {}
    measurements = {name: {"value": value} for name, value in measured.items()}
    return {"row": row, "seed": seed, "outcomes": outcomes, "measurements": measurements, "seconds": {}}


def runs(row, *outcomes, **measured):
    return {seed: result(row, seed, correct, **measured) for seed, correct in enumerate(outcomes)}


def predictor(folder):
    version = folder / "1" if (folder / "1").is_dir() else folder
    function = tf.saved_model.load(str(version)).signatures["serving_default"]
    return lambda images: tf.nn.softmax(function(images=images)["logits"]).numpy()


def test_means_and_differences_of_seeds_by_hand():
    first = runs("first", "1111", "1110", "1100")
    second = runs("second", "1110", "1100", "1000")
    # Means of images 1, 1, 2/3, 1/3: 3/4, sd sqrt(11/108), half 1.96 sd / 2 = 0.3128. Seeds: 1, 3/4, 1/2: t = 4.3027,
    # sd 1/4: 4.3027 / 4 / sqrt(3) = 0.6210.
    assert markdown.accuracy_cell(first, "a") == "75.0 [43.7, 100.0] ±62.1"
    # Of 4 images, by Wilson with z = 1.96: (3/4 + z²/8 ∓ z sqrt(3/64 + z²/256) ... ) / (1 + z²/4) = [0.3006, 0.9544].
    assert markdown.accuracy_cell({0: result("x", 0, "1110")}, "a") == "75.0 [30.1, 95.4]"
    # Per image 0, 1/3, 1/3, 1/3: mean 1/4, sd 1/6, half 0.1633; per seed 1/4 each, without a spread.
    middle, images, seeds = markdown.difference(first, second, "a")
    np.testing.assert_allclose([middle, *images, *seeds], [0.25, 0.0867, 0.4133, 0.25, 0.25], atol=1e-4)
    assert markdown.difference_cell((middle, images, seeds)) == "**+25.0 [+8.7, +41.3] ±0.0**"
    # Seeds with other numbers of images are not compared.
    shorter = runs("second", "1110", "11", "1000")
    assert markdown.difference(first, shorter, "a")[2] is None
    assert markdown.difference(first, {}, "a") is None
    # Nor are those of other images.
    for seed, run in first.items():
        run["data"] = {"test_fingerprint": "x"}
        second[seed]["data"] = {"test_fingerprint": "y" if seed else "x"}
    assert markdown.difference(first, second, "a")[0] == 0.25 and markdown.difference(first, second, "a")[2] is None
    first[0]["data"] = {"test_fingerprint": "z"}
    assert markdown.difference(first, second, "a") is None


def test_the_difference_of_one_seed_has_a_width_even_without_discordant_images():
    first, second = runs("first", "1110"), runs("second", "1110")
    # Bonett and Price: p10 = p01 = 1/6, half 1.96 sqrt(2/6 / 6) = 0.4620.
    middle, images, seeds = markdown.difference(first, second, "a")
    np.testing.assert_allclose([middle, *images], [0.0, -0.4620, 0.4620], atol=1e-4)
    assert seeds is None


def dropping(row, clean, attacked):
    """One seed that loses accuracy under an attack."""
    run = result(row, 0, "", **{"attack.x.drop": 1 - attacked.count("1") / clean[: len(attacked)].count("1")})
    run["outcomes"] = {
        "accuracy.clean": results_table.pack(clean),
        "attack.x.accuracy": results_table.pack(attacked),
    }
    return {0: run}


def test_relative_drops_are_compared_image_by_image():
    first, second = dropping("first", "111101", "1100"), dropping("second", "110111", "1000")
    # Of the first four images: drops 1/2 and 2/3. Scores 1/2 + (c/2 - a): 0, 0, 1, 1; with c = 1, 1, 0, 1 and mean 3/4,
    # 2/3 + (c/3 - a) / (3/4): -2/9, 10/9, 2/3, 10/9. Differences 2/9, -10/9, 1/3, -1/9: sd 0.6573, half 1.96 sd / 2.
    middle, images, _ = markdown.difference(first, second, "attack.x.drop")
    np.testing.assert_allclose([middle, *images], [-1 / 6, -0.8108, 0.4775], atol=1e-4)
    # A drop of other images than the first ones is compared as that of two samples, if at all.
    first[0]["measurements"]["attack.x.drop"]["value"] = 0.4
    assert markdown.difference(first, second, "attack.x.drop")[:2] == (pytest.approx(0.4 - 2 / 3), None)


def test_without_outcomes_the_intervals_of_two_samples_are_averaged_over_seeds():
    def measured(row, *intervals):
        seeds = {seed: result(row, seed, "", m=value) for seed, (value, _, _) in enumerate(intervals)}
        for seed, (_, low, high) in enumerate(intervals):
            seeds[seed]["measurements"]["m"] |= {"low": low, "high": high}
        return seeds

    first = measured("first", (0.5, 0.47, 0.53), (0.7, 0.64, 0.76))
    second = measured("second", (0.4, 0.36, 0.44), (0.5, 0.42, 0.58))
    # Halves hypot(0.03, 0.04) and hypot(0.06, 0.08).
    assert markdown.difference(first, second, "m")[:2] == (pytest.approx(0.15), pytest.approx((0.075, 0.225)))
    first[1]["measurements"]["m"]["low"] = None
    assert markdown.difference(first, second, "m")[1] is None


def test_an_ensemble_is_compared_with_each_of_its_networks():
    rows = (_results_plan.Row("one", (), 1), _results_plan.Row("both", (), 1, members="one"))
    table = _results_plan.Table("title", {"clean": "a"}, rows, reference="one")
    seeds = {"one": runs("one", "1000", "1100", "1110"), "both": runs("both", "1111")}
    for run in (*seeds["one"].values(), *seeds["both"].values()):
        run["seconds"] = {"processor_seconds": 1}
    # Per image 0, 1/3, 2/3, 1: mean 1/2, sd 0.4303; seeds 3/4, 1/2, 1/4.
    (line,) = [line for line in markdown.table_text(table, seeds).splitlines() if "+" in line]
    assert line == "| both | 3 | +50.0 [+7.8, +92.2] ±62.1 |"


def test_a_later_evaluation_belongs_to_the_row_of_its_export(plan_file):
    trained, attacked = result("plain", 1, "10", clean=0.5), result("attacked", 1, "", clean=0.4, later=0.25)
    results = [result("plain", 0, "11", clean=1.0), trained, attacked, result("mixed", 1, "01")]
    rows = markdown.results_by_row(_results_plan.read(plan_file), results)
    measured = {"clean": {"value": 0.5}, "later": {"value": 0.25}}  # that of the training where both have one
    assert rows["plain"] == {0: results[0], 1: {**trained, "measurements": measured}}
    assert list(rows) == ["plain", "mixed"]
    assert markdown.results_by_row(_results_plan.read(plan_file), [attacked]) == {}


def test_a_claim_holds_only_where_every_interval_says_so():
    positive, negative, both = (0.01, 0.02), (-0.02, -0.01), (-0.01, 0.01)
    expected = {positive: "holds", negative: "does not hold", both: "undecided"}
    for images, seeds in itertools.product(expected, repeat=2):
        alike = expected[images] if images == seeds else "undecided"
        assert markdown.verdict((0.0, images, seeds)) == alike
    assert markdown.verdict((0.0, None, None)) == "undecided"
    assert markdown.verdict(None) == "not run"


@pytest.mark.parametrize(("larger", "line"), [(True, "does not hold | **-100.0"), (False, "holds | **+100.0")])
def test_the_difference_of_a_claim_is_positive_where_it_favours_it(larger, line):
    claim = _results_plan.Claim("text", "source", "first", "second", "a", larger=larger)
    seeds = {"first": runs("first", 20 * "0"), "second": runs("second", 20 * "1")}
    assert f"| text | source | {line}" in markdown.claim_table((claim,), seeds)


def test_a_printed_command_binds_what_the_run_binds():
    """Each name once, with the last of its values, in lines of the width."""

    def bound(arguments):
        return dict(argument.split("=", 2)[1:] for argument in arguments if argument.startswith("--gin_param="))

    plan = _results_plan.read(results_table.PLAN.with_name("fine_tuning.toml"))
    repetitions = []
    for run in results_table.runs_of(plan, []):
        shown = run.shown(100)
        words = shlex.split(shown.replace("\\\n", ""))
        (command,) = run.commands()
        expected = {name: value.replace(str(run.exported), "exported") for name, value in bound(command).items()}
        assert bound(words) == expected and len(words) == len(set(words))
        assert sum(word.startswith("--gin_param=") for word in words) == len(expected)
        assert all(len(line) <= 100 or len(shlex.split(line.rstrip("\\"))) == 1 for line in shown.splitlines())
        repetitions.append(sum(argument.startswith("--gin_param=") for argument in command) - len(expected))
    assert max(repetitions) > 0


@pytest.mark.parametrize("name", ["fashion_mnist", "fine_tuning"])
def test_a_plan_of_the_repository_names_files_that_exist_and_fits_its_budget(name):
    plan = _results_plan.read(results_table.PLAN.with_name(f"{name}.toml"))
    chosen = results_table.runs_of(plan, [])
    missing = [file for run in chosen for file in run.files if not (_recipes.ROOT / file).is_file()]
    assert missing == []
    assert sum(row.minutes * len(row.seeds) for _, row in plan.rows().values()) <= 60 * plan.hours
    long = [run.row.minutes > results_table.LONG for run in chosen]
    order = [(run.members != [], run.row.seeds.index(run.seed), late) for run, late in zip(chosen, long, strict=True)]
    assert order == sorted(order)
    # Raises if a stored result is of other settings than the plan's; the pages have the numbers of all.
    for page, content in results_table.contents(plan).items():
        assert results_table.written(page, content) == page.read_text("utf-8")


def test_tables_share_the_rows_of_the_plan(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(stored.text(globals(), "shared_rows").format(folder=tmp_path))
    plan = _results_plan.read(path)
    assert list(plan.rows()) == ["alone", "cnn", "cnn_trades", "vit", "vit_trades"]
    first, second = (run.commands()[0] for run in results_table.runs_of(plan, ["cnn_trades", "vit_trades"]))
    exported = tmp_path / "work/exported"
    assert f"--gin_param=Pretrained.path='{exported}/cnn-seed3'" in first and "--gin_param=STEPS=7" in first
    assert f"--gin_param=Pretrained.path='{exported}/vit-seed3'" in second and "--gin_import=my_vit" in second
    assert not any(argument.startswith("--gin_import") for argument in first)
    claims = [(claim.text, claim.better, claim.worse) for claim in plan.claims]
    assert claims == [
        ("TRADES is better on cnn", "cnn_trades", "cnn"),
        ("TRADES is better on vit", "vit_trades", "vit"),
        ("alone is best", "alone", "cnn"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds = [1], params", "seeds = [1, 2], params", "'attacked' evaluates seeds that 'plain' does not train"),
        ('better = "mixed"', 'better = "mixup"', "'mixup' is no row"),
        ('evaluates = "plain"', 'evaluates = "both"', "'both' is no row"),
        ('name = "both"', 'name = "mixed"', "two rows 'mixed'"),
        ('source = "no paper"', 'sources = "no paper"', "is no plan: .*unexpected keyword argument 'sources'"),
    ],
)
def test_a_plan_with_a_mistake_says_which(plan_file, old, new, message):
    text = plan_file.read_text()
    assert text.count(old) == 1
    plan_file.write_text(text.replace(old, new))
    with pytest.raises(InputError, match=message):
        _results_plan.read(plan_file)


def test_the_small_convnext_is_the_published_block():
    """A stem, then in stages of width w: 7x7 depthwise, normalization, w to 4 w to w; and a last normalization."""
    from backbones import small_convnext  # registers it with gin

    network = small_convnext(side=16, depths=(1, 2), widths=(4, 6))
    blocks = [(49 + 1) * width + 2 * width + (width + 1) * 4 * width + (4 * width + 1) * width for width in (4, 6, 6)]
    assert network.count_params() == 16 * 3 * 4 + 4 + 2 * 4 + sum(blocks) + 2 * 4 + 4 * 4 * 6 + 6 + 2 * 6
    assert network.output_shape == (None, 2, 2, 6)


@pytest.mark.rest
def test_runs_are_stored_once_and_compared(run_tool, plan_file, tmp_path):
    early = run_tool("results_table", f"--plan={plan_file}", "--only=both")
    assert early.code == 0 and "both-seed0 waits for plain-seed0" in early.out
    done = run_tool("results_table", f"--plan={plan_file}")
    assert done.code == 0, done.err
    stored = {path.name: path.read_text() for path in (tmp_path / "results").iterdir()}
    names = {f"{row}-seed{seed}" for row in ("plain", "mixed") for seed in (0, 1)} | {"both-seed0"}
    assert set(stored) == {f"{run}.json" for run in (*names, "attacked-seed1")}
    result_of_run = json.loads(stored["plain-seed1.json"])
    assert result_of_run["outcomes"]["accuracy.clean"]["images"] == result_of_run["measurements"]["accuracy.clean"]["n"]
    assert str(tmp_path) not in "".join(stored.values()) and len(stored["plain-seed1.json"]) < 8000
    predict = {run: predictor(tmp_path / "work/exported" / run) for run in names}
    images = np.random.default_rng(0).uniform(size=(5, 8, 8, 1)).astype(np.float32)
    mean = (predict["plain-seed0"](images) + predict["plain-seed1"](images)) / 2
    np.testing.assert_allclose(predict["both-seed0"](images), mean, rtol=1e-5)
    assert json.loads(stored["both-seed0.json"])["members"] == ["plain-seed0", "plain-seed1"]
    attacked = json.loads(stored["attacked-seed1.json"])
    value = attacked["measurements"]["attack.pgd_linf_0.1.accuracy"]["value"]
    (line,) = [line for line in done.out.splitlines() if line.startswith("| plain | 2 |")]
    assert attacked["members"] == ["plain-seed1"] and f" | {100 * value:.1f} [" in line
    assert (
        "| both | 1 |" in done.out
        and "| plain | 2 |" in done.out
        and "| minus plain, points | seeds | clean |" in done.out
    )
    again = run_tool("results_table", f"--plan={plan_file}")
    assert again.code == 0 and "planned" not in again.out and "| mixed | 2 |" in again.out
    assert {path.name: path.read_text() for path in (tmp_path / "results").iterdir()} == stored
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n{results_table.BEGIN}\nold\n")
    refused = run_tool("results_table", f"--plan={plan_file}", "--write")
    assert refused.code == 2 and "needs a line '<!-- Written by" in refused.err
    page.write_text(f"# Title\n{results_table.BEGIN}\nold\n{results_table.END}\nmore\n")
    assert run_tool("results_table", f"--plan={plan_file}", "--write").code == 0
    assert page.read_text().endswith("<!-- end -->\nmore\n") and "\nold\n" not in page.read_text()
    assert "[seed 1](results/mixed-seed1.json)" in page.read_text()
    plan_file.write_text(plan_file.read_text().replace("EPOCHS=1", "EPOCHS=2"))
    refused = run_tool("results_table", f"--plan={plan_file}", "--print")
    assert refused.code == 2 and "other gin files or values than the plan" in refused.err
