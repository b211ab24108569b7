"""The package: the library tfrobust, and the gin files under the name tfrobust.gin_files."""

import pathlib
import re

from setuptools import find_packages, setup

HERE = pathlib.Path(__file__).resolve().parent
VERSION = re.search(r'^__version__ = "([^"]+)"', (HERE / "tfrobust/__init__.py").read_text("utf-8"), re.MULTILINE)[1]
README = HERE / "README.md"

setup(
    name="tfrobust",
    version=VERSION,
    description="Train robust Keras models, measure how robust they are, serve them with that knowledge attached.",
    long_description=README.read_text("utf-8") if README.is_file() else "",
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.11,<3.14",
    # The folder gin/ has no __init__.py, which would shadow gin-config; it travels as package tfrobust.gin_files.
    packages=[*find_packages(include=["tfrobust", "tfrobust.*"]), "tfrobust.gin_files"],
    package_dir={"tfrobust.gin_files": "gin"},
    package_data={"tfrobust": ["py.typed", "report/*.json"], "tfrobust.gin_files": ["**/*.gin"]},
    install_requires=[
        "tensorflow>=2.21,<3",
        "keras>=3.15,<4",
        "tensorflow-datasets",
        "importlib_resources",  # tensorflow-datasets needs it and does not say so
        "gin-config",
        "absl-py",
        "scikit-learn",
        "scipy",
        "threadpoolctl",  # scikit-learn brings both
        "matplotlib",
        "tensorboard",  # TensorFlow 2.21 no longer brings it
        "tensorflow-serving-api",
    ],
    extras_require={
        "test": [
            "pytest",
            "pytest-xdist",
            "hypothesis",
            "jsonschema",
            "pillow",
            "opencv-python-headless",
            "openvino",  # a second runtime that reads the exports
            "safetensors",
            "ruff",
            "setuptools>=64",
            "shtab",
            "tokenizers",
            "waitress",
            "wheel",
        ],
        "serve": ["waitress"],  # tfrobust serve --development
        "text": ["tokenizers"],
        "checkpoints": ["safetensors"],
        "completion": ["shtab"],
        "dev": ["pre-commit", "ruff"],
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
