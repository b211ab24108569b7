"""Under `--all`, count which statements of the package the tests execute, and print their share by package.

Every process of a run writes its own data: the workers of `pytest -n`, and the forks that they run tests in
(`children.py`). Commands that a test starts as processes are not measured.
"""

import collections
import json
import os
import pathlib
import tempfile

import pytest

# The folder of the data, for the workers that a run starts.
_FOLDER = "TFROBUST_COVERAGE"
PACKAGE = "tfrobust"


def pytest_configure(config):
    if config.getoption("--all"):
        config.pluginmanager.register(_Coverage(config))


class _Coverage:
    """Measures this process; the process that prints also joins the data of all others."""

    def __init__(self, config):
        import coverage

        self._prints = not hasattr(config, "workerinput")
        if self._prints:
            self._temporary = tempfile.TemporaryDirectory()
            os.environ[_FOLDER] = self._temporary.name
        file = pathlib.Path(os.environ[_FOLDER], "data")
        self._coverage = coverage.Coverage(
            data_file=str(file), data_suffix=True, source=[str(config.rootpath / PACKAGE)], config_file=False
        )
        self._coverage.set_option("run:patch", ["_exit"])
        self._coverage.set_option("run:disable_warnings", ["no-data-collected"])
        self._coverage.start()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self):
        self._coverage.stop()
        self._coverage.save()

    def pytest_terminal_summary(self, terminalreporter):
        if self._prints:
            terminalreporter.section("statements that the tests executed")
            for line in table(self._summaries()):
                terminalreporter.write_line(line)
            self._temporary.cleanup()

    def _summaries(self) -> dict[str, dict[str, int]]:
        """Return the counts of each file of the package, joined from the data of all processes."""
        from coverage.exceptions import NoDataError

        report = pathlib.Path(self._temporary.name, "report.json")
        try:
            self._coverage.combine()
            self._coverage.json_report(outfile=str(report), include="*.py")  # the code of guides runs, too
        except NoDataError:
            return {}
        files = json.loads(report.read_text("utf-8"))["files"]
        return {path: file["summary"] for path, file in files.items()}


def table(files: dict[str, dict[str, int]]) -> list[str]:
    """Return a line for each package and one for all, from the counts of each file below the root of the checkout."""
    counts = collections.defaultdict(collections.Counter)
    for path, summary in files.items():
        folders = pathlib.PurePath(path).parts[:-1]
        for name in ("/".join(folders[:2]), "all"):
            counts[name].update({key: summary[key] for key in ("num_statements", "missing_lines")})
    lines = [f"{'package':26}{'statements':>10}{'executed':>10}"]
    for name, count in sorted(counts.items(), key=lambda item: (item[0] == "all", item[0])):
        executed = 1 - count["missing_lines"] / max(count["num_statements"], 1)
        lines.append(f"{name:26}{count['num_statements']:10,}{100 * executed:8.1f} %")
    return lines
