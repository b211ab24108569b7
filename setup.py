"""What pyproject.toml cannot say of the package: PyPI's page, and the gin files under the name tfrobust.gin_files."""

import pathlib
import re

from setuptools import find_packages, setup

HERE = pathlib.Path(__file__).resolve().parent
# Of the public repository; until there is one, PyPI's page names the files of README's links without a link.
URL = ""
README = HERE / "README.md"


def for_pypi(text: str) -> str:
    """Return README as a page outside of the repository: links and pictures get the URL, or lose their target."""

    def is_relative(target: str) -> bool:
        return bool(target) and not re.match("[a-z]+:|#", target)

    def picture(match):
        target = match["source"] or match["target"] or ""
        if not is_relative(target):
            return match[0]
        return match[0].replace(target, f"{URL}/raw/main/{target}") if URL else ""

    def link(match):
        if not is_relative(match["target"]):
            return match[0]
        return f"[{match['text']}]({URL}/blob/main/{match['target']})" if URL else match["text"]

    text = re.sub(r'<img[^>]*\ssrc="(?P<source>[^"]*)"[^>]*>|!\[[^]]*\]\((?P<target>[^)\s]*)\)', picture, text)
    return re.sub(r"\[(?P<text>(?:!\[[^]]*\]\([^)]*\)|[^][])*)\]\((?P<target>[^)\s]*)\)", link, text)


setup(
    long_description=for_pypi(README.read_text("utf-8")) if README.is_file() else "",
    long_description_content_type="text/markdown",
    # The folder gin/ has no __init__.py, which would shadow gin-config; it travels as package tfrobust.gin_files.
    packages=[*find_packages(include=["tfrobust", "tfrobust.*"]), "tfrobust.gin_files"],
    package_dir={"tfrobust.gin_files": "gin"},
)
