"""The table of methods on the digits: its arithmetic, and that it goes on where it was stopped."""

import collections
import json
import re

import digits_table as tool
import printed
from printed import READ, ROOT


def result(method, fold, clean, attacked, **changes):
    outcomes = {"clean": clean, "PGD-100 linf 0.2": attacked}
    settings = {"folds": 2, "seed": fold, "epochs": 40, "source_sha256": "a", "data_fingerprint": f"fold{fold}"}
    settings["seconds"] = {"training": 10.0 + 6 * fold, "attacks": 1.0}
    return {"method": method, "fold": fold, "outcomes": outcomes, **settings, **changes}


def rows_of(text):
    return [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]


def rows(text):
    return {(cells[0], number): cells[1:] for number, cells in enumerate(rows_of(text))}


def test_accuracies_are_pooled_over_folds_and_differences_paired_by_image():
    text = tool.tables(
        [
            result("mine", 0, "1111", "1101"),
            result("mine", 1, "1110", "1010"),
            result("other", 0, "1110", "0001"),
            result("other", 1, "1111", "0010"),
        ],
        "other",
    )
    cells = rows(text)
    # 7 of 8 and 5 of 8; Wilson's interval of 5/8 is [0.306, 0.863] (Brown, Cai, DasGupta, eq. 4, by hand).
    assert cells["mine", 2] == ["8", "87.5 [52.9, 97.8]", "62.5 [30.6, 86.3]", "13"]
    assert cells["other", 3] == ["8", "87.5 [52.9, 97.8]", "25.0 [7.1, 59.1]", "13"]
    # Clean: differences +1 and -1, six zeros: sd = sqrt(2/7), half width 1.96 sqrt(2/7) / sqrt(8) = 0.370.
    # PGD: 1 1 0 0 1 0 0 0: mean 3/8, sd = sqrt((8 x 3/8 x 5/8) / 7), half width 0.3586.
    assert cells["mine", 6] == ["8", "+0.0 [-37.0, +37.0]", "**+37.5 [+1.6, +73.4]**"]
    assert ("other", 7) not in cells and "seeds 0, 1" in text and "states" not in text


def test_differences_rest_on_the_folds_that_both_have():
    results = [result("mine", 0, "10", "00"), result("mine", 1, "11", "11"), result("other", 1, "10", "01")]
    cells = rows(tool.tables(results, "other"))
    assert cells["mine", 2][0] == "4" and cells["mine", 6][:2] == ["2", "+50.0 [-48.0, +148.0]"]
    results[2]["data_fingerprint"] = "another split"
    assert "+50.0" not in tool.tables(results, "other")
    results[2]["source_sha256"] = "b"
    assert "2 states of the code" in tool.tables(results, "other")


# ------------------------------------------------------------------------------------ what the documents say


def commands_of(text, read=printed.commands):
    """The flags of every command of this tool in a text."""
    commands = []
    for command in read(text):
        if command.program == "tools/benchmarks/digits_table.py":
            flags = tool.parser().parse_args(command.arguments)
            tool.take_apart(flags)
            commands.append(flags)
    return commands


def all_commands():
    pages = [flags for path in READ for flags in commands_of(path.read_text("utf-8"))]
    return [*pages, *commands_of(tool.__doc__, printed.usages)]


def parts(text):
    """A page cut before each heading and behind each block of this tool's commands."""
    part = ""
    for paragraph in printed.prose(text).split("\n\n"):
        if paragraph.lstrip("\n").startswith("#"):
            yield part
            part = ""
        part += paragraph + "\n\n"
        if paragraph.startswith("    ") and "digits_table" in paragraph:
            yield part
            part = ""
    yield part


def methods_of_columns(text):
    """Return the gin files with numbers in a text's tables, by column; a row of two methods has two in a cell."""
    columns = collections.defaultdict(set)
    for line in text.splitlines():
        first, *cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else [""]
        stems = [word for word in re.findall(r"\w+", first) if (ROOT / "gin" / f"{word}.gin").is_file()]
        for number, cell in enumerate(cells):
            values = re.findall(r"\d\.\d", re.sub(r"\[.*?\]", "", cell)) if re.match(r"[-+*\d]", cell) else []
            columns[number] |= {*stems[: len(values)]}
    return list(columns.values())


def test_the_commands_of_the_documents_can_be_configured():
    seen = set()
    for flags in all_commands():
        for method in flags.methods:
            settings = (method, *flags.gin_file, *flags.gin_param, *flags.values)
            if settings not in seen:
                seen.add(settings)
                tool.configure_all(flags, [(method, flags.only_folds[0])])


def test_a_table_s_rows_are_the_methods_of_the_commands_beside_it():
    seen = 0
    for path in READ:
        for part in parts(path.read_text("utf-8")):
            commands, columns = commands_of(part), methods_of_columns(part)
            if commands and any(columns):
                assert {name for flags in commands for name in flags.methods} == set().union(*columns), part
                seen += len(commands)
                for flags in commands:  # one with parameters makes a variant of a row
                    is_variant = any({*flags.methods} <= column for column in columns)
                    assert flags.gin_param or is_variant, (flags.methods, columns)
    assert seen >= 5


def test_two_methods_on_two_folds_and_again(run_tool, tmp_path):
    flags = ["--output=out", "--methods=adversarial_training,ascl_leaked", "--folds=2", "--epochs=1"]
    flags += ["--gin_file=gin/eval/quick.gin", "--gin_param=STEPS=2", "--gin_param=pgd20/PGD.steps=5"]
    done = run_tool("digits_table", *flags)
    assert done.code == 0, done.err
    files = sorted((tmp_path / "out").iterdir())
    results = [json.loads(file.read_text()) for file in files]
    assert [(r["method"], r["fold"], r["seed"]) for r in results] == [
        (method, fold, fold) for method in ("adversarial_training", "ascl_leaked") for fold in (0, 1)
    ]
    names = ["clean", "FGSM linf 0.2", "PGD-5 linf 0.2"]
    for run in results:
        assert list(run["outcomes"]) == names and {len(row) for row in run["outcomes"].values()} <= {898, 899}
        # An attack begins with the clean prediction: it never puts one right.
        assert all(a <= c for a, c in zip(run["outcomes"][names[2]], run["outcomes"]["clean"], strict=True))
    assert rows(done.out)["ascl_leaked", 3][0] == "1797" and rows(done.out)["ascl_leaked", 6][0] == "1797"

    files[2].unlink()
    times = {file: file.stat().st_mtime_ns for file in files if file.exists()}
    again = run_tool("digits_table", *flags)
    assert again.code == 0 and "3 of 4 runs" in again.err
    first, second = (re.sub(r" \d+ \|$", "", stream.out, flags=re.MULTILINE) for stream in (done, again))  # no seconds
    assert first == second and first != done.out
    assert json.loads(files[2].read_text())["outcomes"] == results[2]["outcomes"]
    assert all(file.stat().st_mtime_ns == time for file, time in times.items())
