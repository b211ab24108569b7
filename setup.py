"""The package: the library tfrobust, and the gin files under the name tfrobust.gin_files."""

import itertools
import pathlib
import re

from setuptools import find_packages, setup

HERE = pathlib.Path(__file__).resolve().parent
# Of the public repository; until there is one, PyPI's page names the files of README's links without a link.
URL = ""
VERSION = re.search(r'^__version__ = "([^"]+)"', (HERE / "tfrobust/__init__.py").read_text("utf-8"), re.MULTILINE)[1]
README = HERE / "README.md"


def for_pypi(text: str) -> str:
    """Return README as a page outside of the repository: links and pictures get the URL, or lose their target."""

    def is_file(target: str) -> bool:
        return bool(target) and (HERE / target.partition("#")[0]).is_file()

    def picture(match):
        target = match["source"] or match["target"] or ""
        if not is_file(target):
            return match[0]
        return match[0].replace(target, f"{URL}/raw/main/{target}") if URL else ""

    def link(match):
        if not is_file(match["target"]):
            return match[0]
        return f"[{match['text']}]({URL}/blob/main/{match['target']})" if URL else match["text"]

    text = re.sub(r'<img[^>]*\ssrc="(?P<source>[^"]*)"[^>]*>|!\[[^]]*\]\((?P<target>[^)\s]*)\)', picture, text)
    return re.sub(r"\[(?P<text>(?:!\[[^]]*\]\([^)]*\)|[^][])*)\]\((?P<target>[^)\s]*)\)", link, text)


# tools/check_lower_bounds.py runs the tests with the lower bounds; about half of the first tier has run so.
EXTRAS = {
    "serve": ["waitress>=3.0"],  # tfrobust serve --development
    "text": ["tokenizers>=0.22.1"],
    "checkpoints": ["safetensors>=0.4.5"],
    "completion": ["shtab>=1.9.3"],
    "litert": ["ai-edge-litert>=2.1"],  # evaluate --model=x.tflite, export --litert
    "keras_hub": ["keras-hub>=0.32"],  # robust.models.Backbone(preset=...)
    "onnx": ["onnxruntime>=1.20", "tf2onnx>=1.17"],  # export --onnx; before 1.17 it needed protobuf 3 and NumPy 1
    "video": ["av>=14.0"],  # robust.data.Ucf101, Hmdb51
    "hub": ["huggingface_hub>=1.0"],  # tfrobust share, --model=hf://owner/name
}

setup(
    name="tfrobust",
    version=VERSION,
    description="Train robust Keras models, measure how robust they are, serve them with that knowledge attached.",
    url=URL or None,
    long_description=for_pypi(README.read_text("utf-8")) if README.is_file() else "",
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.11,<3.14",
    # The folder gin/ has no __init__.py, which would shadow gin-config; it travels as package tfrobust.gin_files.
    packages=[*find_packages(include=["tfrobust", "tfrobust.*"]), "tfrobust.gin_files"],
    package_dir={"tfrobust.gin_files": "gin"},
    package_data={
        "tfrobust": ["py.typed", "report/*.json", "guides/**/*.md", "guides/**/*.png"],
        "tfrobust.gin_files": ["**/*.gin", "**/README.md"],
    },
    install_requires=[
        "tensorflow>=2.21,<3",
        "keras>=3.15,<4",
        "numpy>=1.26.4",
        "h5py>=3.11",
        "ml_dtypes>=0.5.1",
        "protobuf>=6.31.1",
        "grpcio>=1.74",  # TensorFlow brings these five
        "tensorflow-datasets>=4.9.8",
        "importlib_resources>=6.4",  # tensorflow-datasets needs it and does not say so
        "gin-config>=0.5",
        "absl-py>=2.1",
        "scikit-learn>=1.5",
        "scipy>=1.13",
        "threadpoolctl>=3.5",  # scikit-learn brings both
        "matplotlib>=3.9",
        "rich>=13.7",
        "tensorboard>=2.20",  # TensorFlow 2.21 no longer brings it
        "tensorflow-serving-api>=2.21",
    ],
    extras_require={
        **EXTRAS,
        "test": [
            *itertools.chain.from_iterable(EXTRAS.values()),
            "hypothesis>=6.110",
            "jsonschema>=4.23",
            "kubernetes-validate>=1.31",
            "opencv-python-headless>=4.10",
            "openvino>=2025.0",  # a second runtime that reads the exports
            "pillow>=11",
            "pytest>=8.3",
            "pytest-xdist>=3.6",
            "ruff>=0.15",
            "setuptools>=75",
            "wheel>=0.44",
        ],
        "dev": ["pre-commit>=4.0", "ruff>=0.15"],
    },
    entry_points={"console_scripts": ["tfrobust = tfrobust.commands.__main__:main"]},
    classifiers=[
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "License :: OSI Approved :: Apache Software License",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
