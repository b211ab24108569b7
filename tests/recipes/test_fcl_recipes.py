"""The recipes of paper 000 hold the numbers that the paper prints: all of them literal here, none read from gin/."""

import functools
import re

import numpy as np
import pytest

from conformance import recipes
from conformance.recipes import method_of, rates

bound = functools.partial(recipes.bound, "fcl")

ROWS = ("xe", "xe_gaussian", "cl_gaussian", "fcl", "patch_gaussian", "patch_gaussian_fcl")
# Table 2: clean, UN, NUN, each with its standard deviation.
NOISY = {
    "cifar10": """
0.9389 0.0014 0.1317 0.0135 0.1256 0.0089
0.9375 0.0016 0.3409 0.0580 0.3175 0.0532
0.9362 0.0009 0.2646 0.0165 0.2464 0.0159
0.9375 0.0010 0.3749 0.0293 0.3432 0.0231
0.9334 0.0035 0.7842 0.0087 0.7669 0.0086
0.9354 0.0023 0.8210 0.0013 0.8066 0.0033""",
    "cifar100": """
0.7323 0.0052 0.0366 0.0078 0.0356 0.0084
0.7297 0.0057 0.0806 0.0187 0.0763 0.0162
0.7294 0.0022 0.0668 0.0122 0.0640 0.0134
0.7252 0.0076 0.1477 0.0227 0.1007 0.0160
0.7315 0.0028 0.0385 0.0102 0.0377 0.0091
0.7254 0.0045 0.1590 0.0200 0.1033 0.0174""",
}
# Table 3: all with its standard deviation, noise, blur, weather, digital; Table 4: the 15 corruptions.
CORRUPTED = {
    "cifar10_c": """
0.7137 0.0038 0.4967 0.6833 0.8309 0.7537
0.7379 0.0089 0.5800 0.6967 0.8389 0.7572
0.7253 0.0028 0.5446 0.6939 0.8312 0.7530
0.7446 0.0055 0.6416 0.6886 0.8338 0.7530
0.8311 0.0027 0.8951 0.7625 0.8540 0.8021
0.8319 0.0029 0.8993 0.7639 0.8536 0.8000""",
    "cifar100_c": """
0.4428 0.0038 0.2113 0.4323 0.5527 0.4855
0.4512 0.0067 0.2502 0.4308 0.5524 0.4848
0.4480 0.0057 0.2350 0.4350 0.5514 0.4865
0.4706 0.0031 0.3528 0.4355 0.5467 0.4847
0.4448 0.0030 0.2198 0.4344 0.5483 0.4896
0.4742 0.0054 0.3699 0.4353 0.5490 0.4851""",
    "imagenet_c": """
0.3406 0.0007 0.2615 0.2816 0.4214 0.3783
0.3414 0.0012 0.2623 0.2829 0.4224 0.3783
0.3418 0.0016 0.2658 0.2824 0.4223 0.3778
0.3437 0.0022 0.2696 0.2850 0.4188 0.3827
0.3625 0.0023 0.3053 0.3041 0.4300 0.3964
0.3634 0.0045 0.3077 0.3034 0.4308 0.3976""",
}
BY_CORRUPTION = {
    "cifar10_c": """
0.4049 0.5374 0.5477 0.7912 0.4846 0.7350 0.7222 0.7933 0.7486 0.8587 0.9231 0.7310 0.8092 0.6991 0.7756
0.5029 0.6221 0.6149 0.7992 0.5192 0.7315 0.7369 0.8027 0.7711 0.8601 0.9218 0.7240 0.8104 0.7195 0.7750
0.4767 0.5922 0.5650 0.7919 0.5383 0.7238 0.7215 0.7930 0.7589 0.8542 0.9189 0.7267 0.8023 0.7083 0.7747
0.5505 0.6431 0.7311 0.7922 0.5140 0.7273 0.7210 0.7988 0.7555 0.8590 0.9217 0.7233 0.8092 0.7036 0.7758
0.8995 0.9082 0.8776 0.8252 0.6731 0.7634 0.7883 0.8306 0.8353 0.8303 0.9198 0.7085 0.8417 0.7919 0.8664
0.8983 0.9078 0.8918 0.8268 0.6764 0.7601 0.7924 0.8324 0.8374 0.8256 0.9189 0.6937 0.8416 0.7994 0.8652""",
    "cifar100_c": """
0.1644 0.2446 0.2249 0.5577 0.2022 0.4884 0.4808 0.5023 0.4370 0.5874 0.6842 0.4884 0.5458 0.4500 0.4578
0.2024 0.2816 0.2667 0.5557 0.2055 0.4812 0.4807 0.5061 0.4403 0.5825 0.6805 0.4793 0.5431 0.4582 0.4585
0.1880 0.2668 0.2502 0.5562 0.2110 0.4903 0.4827 0.5034 0.4392 0.5822 0.6807 0.4796 0.5484 0.4560 0.4621
0.2551 0.3186 0.4847 0.5571 0.2137 0.4861 0.4852 0.5007 0.4333 0.5748 0.6779 0.4640 0.5441 0.4583 0.4724
0.1773 0.2542 0.2279 0.5596 0.2001 0.4897 0.4883 0.4970 0.4308 0.5834 0.6819 0.4843 0.5483 0.4635 0.4623
0.2729 0.3349 0.5020 0.5487 0.2310 0.4845 0.4768 0.5050 0.4403 0.5756 0.6750 0.4687 0.5394 0.4634 0.4688""",
    "imagenet_c": """
0.2860 0.2651 0.2335 0.2945 0.2312 0.2844 0.3163 0.2773 0.3304 0.4695 0.6083 0.3273 0.4096 0.2998 0.4763
0.2876 0.2654 0.2339 0.2978 0.2293 0.2851 0.3193 0.2748 0.3323 0.4736 0.6088 0.3298 0.4101 0.2989 0.4743
0.2898 0.2694 0.2383 0.2955 0.2290 0.2873 0.3177 0.2745 0.3327 0.4728 0.6091 0.3309 0.4060 0.2978 0.4768
0.2954 0.2738 0.2395 0.2989 0.2374 0.2861 0.3176 0.2739 0.3297 0.4674 0.6044 0.3278 0.4143 0.3111 0.4777
0.3265 0.3070 0.2822 0.3333 0.2571 0.2923 0.3337 0.2891 0.3464 0.4735 0.6110 0.3352 0.4331 0.3232 0.4939
0.3304 0.3107 0.2821 0.3344 0.2571 0.2920 0.3302 0.2880 0.3495 0.4761 0.6097 0.3368 0.4313 0.3290 0.4934""",
}
COLUMNS = "gauss. shot impulse defocus glass motion zoom snow frost fog bright contrast elastic pixel JPEG".split()
MNIST = {
    "xe": "BAL 0.9250 +- 0.0088, UN 0.4123 +- 0.1176, NUN 0.5473 +- 0.0703",
    "fcl": "BAL 0.9207 +- 0.0129, UN 0.6384 +- 0.0530, NUN 0.6896 +- 0.0349",
    "fcl_margin": "similar results to those of FCL; no numbers",
}
# Section 4.1.
SST2 = {"xe": 0.6702, "fcl": 0.7613}


def cells(text: str) -> dict[str, list[str]]:
    """Row -> its numbers."""
    return {row: line.split() for row, line in zip(ROWS, text.strip().splitlines(), strict=True)}


def published() -> dict[str, str]:
    """stem -> what its page must print."""
    texts = {f"mnist_lenet_{row}": text for row, text in MNIST.items()}
    for row, value in SST2.items():
        text = f"Accuracy 87.5 %, correlation of token sensitivity and sentiment strength {value}"
        texts[f"sst2_transformer_{row}"] = text
    for data, text in NOISY.items():
        for row, line in cells(text).items():
            values = "Clean {} +- {}, UN {} +- {}, NUN {} +- {}".format(*line)
            texts[f"noisy_{data}_resnet56_{row}"] = values
    for data, text in CORRUPTED.items():
        by_corruption = cells(BY_CORRUPTION[data])
        for row, line in cells(text).items():
            values = "All {} +- {}, noise {}, blur {}, weather {}, digital {}.".format(*line)
            values += f" {', '.join(map(' '.join, zip(COLUMNS, by_corruption[row], strict=True)))}"
            texts[f"{data}_{'resnet50_v2' if 'imagenet' in data else 'resnet56'}_{row}"] = values
    return texts


PUBLISHED = published()
# Appendix C. Gaussian rows: sigma, (temperature,) weight(, where it begins); FCL: k, sigma, temperature, weight, where
# it begins; Patch Gaussian: patch, sigma.
TEN = {
    "xe_gaussian": (0.3, 1e-4),
    "cl_gaussian": (0.5, 0.5, 1e-4, 14000),
    "fcl": (256, 0.5, 2.0, 1e-4, 14000),
    "patch_gaussian": (25, 0.1),
    "patch_gaussian_fcl": (256, 0.5, 1.0, 1e-4, 14000, 25, 0.1),
}
HUNDRED = {
    "xe_gaussian": (0.3, 1e-4),
    "cl_gaussian": (0.5, 0.5, 1e-4, 10000),
    "fcl": (256, 0.5, 0.1, 1e-4, 10000),
    "patch_gaussian": (25, 0.05),
    "patch_gaussian_fcl": (256, 0.5, 0.1, 1e-4, 10000, 25, 0.05),
}
APPENDIX_C = {
    "noisy_cifar10": TEN,
    "noisy_cifar100": HUNDRED,
    "cifar10_c": {**TEN, "patch_gaussian_fcl": (256, 0.5, 1.0, 1e-4, 10000, 25, 0.1)},
    "cifar100_c": {**HUNDRED, "patch_gaussian": (25, 0.1)},
    "imagenet_c": {
        "xe_gaussian": (0.5, 1e-4),
        "cl_gaussian": (0.5, 0.5, 1e-4, 78000),
        "fcl": (512, 1.0, 0.5, 2e-4, 60 * 1251),  # no ramp_up: "after 60 epochs"
        "patch_gaussian": ((1, 250), 1.0),
        "patch_gaussian_fcl": (2048, 0.5, 1.0, 4e-4, 78000, (1, 250), 1.0),
    },
}
PASSES = {"xe": 1, "xe_gaussian": 2, "cl_gaussian": 2, "fcl": 4, "patch_gaussian": 1, "patch_gaussian_fcl": 4}
PASSES["fcl_margin"] = 4


def parts_of(stem: str) -> tuple[str, str]:
    """The data and the row that a stem says."""
    return re.fullmatch(r"(.+?)_(?:lenet|resnet56|resnet50_v2|transformer)_(.+)", stem).groups()


def test_there_is_a_recipe_for_each_row_and_for_nothing_else():
    assert recipes.names("fcl") == set(PUBLISHED) and len(PUBLISHED) == 3 + 2 * 6 + 3 * 6 + 2


@pytest.mark.parametrize("stem", PUBLISHED)
def test_a_recipe_is_the_row_s(stem):
    bindings, (data, row), printed = bound(stem), parts_of(stem), recipes.ROWS[f"fcl/{stem}"]
    assert printed.published == PUBLISHED[stem]
    where = "section 4.1" if data == "sst2" else "appendix B" if row == "fcl_margin" else "Table"
    assert printed.tables.startswith(where)
    steps = {"mnist": 392 * 20, "imagenet_c": 1251 * 90, "sst2": 1052 * 10}.get(data, 48 * 450)
    method = method_of(bindings)
    assert method.passes_per_step == PASSES[row]
    passes = 3 + 64 / 3 if stem == "sst2_transformer_fcl" else PASSES[row]  # of 64 tokens; method_of builds nothing
    assert printed.cost.startswith(f"{steps:,} x {passes:.3g} = {steps * passes:,.0f}")
    {"mnist": check_mnist, "imagenet_c": check_imagenet, "sst2": check_sst2}.get(data, check_cifar)(data, bindings)
    if data == "mnist":
        check_mnist_method(row, method)
    elif data == "sst2":
        check_sst2_method(row, method)
    else:
        check_method(row, method, APPENDIX_C[data].get(row, ()), bindings["augmentation"].augmentations)


def check_cifar(data: str, bindings: dict) -> None:
    classes = "100" if "100" in data else "10"
    assert (bindings["epochs"], bindings["batch_size"]) == (450, 1024)
    assert bindings["data"].path == f"data/cifar-{classes}-python.tar.gz" and bindings["data"].validation_size == 0
    optimizer, encoder = bindings["optimizer"](), bindings["encoder"]()
    assert (type(optimizer).__name__, optimizer.momentum, optimizer.nesterov) == ("SGD", 0.9, True)
    epochs = (0, 3, 15, 199, 200, 299, 300, 399, 400, 449)
    expected = [0, 0.2, 1, 1, 0.1, 0.1, 0.01, 0.01, 0.001, 0.001]
    assert rates(optimizer, [48 * epoch for epoch in epochs]) == pytest.approx(expected)
    assert rates(optimizer, [48 * epoch + 47 for epoch in epochs[3:]]) == pytest.approx(expected[3:])
    assert (type(encoder).__name__, encoder.depth, encoder.dim) == ("ResNet", 56, 64)
    decays = encoder.kernel_regularization, bindings["head"](class_count=10).kernel_regularization
    assert decays == (5e-5, 5e-5) and encoder.pixel_mean is None
    flip, crop, *_ = bindings["augmentation"].augmentations
    assert (flip.probability, crop.padding) == (0.5, 4)
    clean, judged = bindings["evaluators"]
    assert type(clean).__name__ == "CleanAccuracy"
    if data.startswith("noisy"):
        assert (judged.share, judged.levels, judged.count) == (0.15, "grey", "exact")
    else:
        extra = {"speckle_noise", "gaussian_blur", "spatter", "saturate"}
        assert judged.source.folder == f"data/CIFAR-{classes}-C" and judged.severities == (1, 2, 3, 4, 5)
        assert len(set(judged.names)) == 19 and set(judged.names[15:]) == extra


def check_imagenet(data: str, bindings: dict) -> None:
    assert (bindings["epochs"], bindings["batch_size"], 1_281_167 // 1024) == (90, 1024, 1251)
    optimizer, encoder = bindings["optimizer"](), bindings["encoder"]()
    assert (type(optimizer).__name__, optimizer.momentum, optimizer.nesterov) == ("SGD", 0.9, False)
    epochs = (0, 1, 5, 29, 30, 59, 60, 79, 80, 89)
    expected = [0, 0.16, 0.8, 0.8, 0.08, 0.08, 0.008, 0.008, 0.0008, 0.0008]
    assert rates(optimizer, [1251 * epoch for epoch in epochs]) == pytest.approx(expected)
    assert rates(optimizer, [1251 * epoch + 1250 for epoch in epochs[3:]]) == pytest.approx(expected[3:])
    assert (encoder.reading, encoder.stem, encoder.dim) == ("bottleneck_v2", "imagenet", 2048)
    assert encoder.kernel_regularization == 5e-5
    images = bindings["data"]
    assert (images.image_shape, images.short_side, images.validation_size) == ((224, 224, 3), 256, 0)
    assert bindings["augmentation"].augmentations[0].probability == 0.5
    judged = bindings["evaluators"][1]
    assert type(judged.source).__name__ == "ImageNetC" and len(judged.names) == 15


def check_mnist(data: str, bindings: dict) -> None:
    assert (bindings["epochs"], bindings["batch_size"], (10 * 5000 + 5 * 50) // 128) == (20, 128, 392)
    optimizer, digits = bindings["optimizer"](), bindings["data"]
    assert type(optimizer).__name__ == "Adam" and type(bindings["encoder"]()).__name__ == "LeNet"
    expected = [0.01 * 0.89**epoch for epoch in (0, 1, 19)]
    assert rates(optimizer, [0, 392, 392 * 19]) == pytest.approx(expected)
    assert (digits.source.dataset, digits.centre, digits.canvas) == ("mnist", 28, 28)
    assert (digits.per_class, digits.rare_share * digits.per_class, digits.balanced) == (5000, 50, 1000)
    assert type(bindings["evaluators"][1]).__name__ == "ReplacedPixels"


def check_sst2(data: str, bindings: dict) -> None:
    assert (bindings["epochs"], bindings["batch_size"], 67_349 // 64) == (10, 64, 1052)
    encoder, sentences = bindings["encoder"](), bindings["data"]
    assert (encoder.depth, encoder.heads, encoder.inner) == (3, 8, 256)
    assert sentences.dataset == "glue/sst2" and sentences.length == encoder.length == 64
    neutral = [
        evaluator.neutral for evaluator in bindings["evaluators"] if type(evaluator).__name__ == "TokenSensitivity"
    ]
    assert neutral == [0.05] and sentences.tokenizer.lowercase


def check_sst2_method(row: str, method) -> None:
    assert type(method).__name__ == {"xe": "Supervised", "fcl": "FCL"}[row]
    if row == "fcl":
        weight = method.term_weights["feature_contrast"]
        assert (method.perturbation.fraction, method.objective.temperature) == (0.1, 0.02)
        assert [float(weight(step)) for step in (0, 4999, 5000, 10519)] == [0, 0, 0.5, 0.5]


def check_mnist_method(row: str, method) -> None:
    if row == "xe":
        assert type(method).__name__ == "Supervised" and method.terms == ("ce",)
        return
    noise, weight = method.perturbation, method.term_weights["feature_contrast"]
    assert (noise.count, noise.deviation, noise.smallest_utility) == (256, 0.5, 1e-12)
    if row == "fcl_margin":
        assert type(method.objective).__name__ == "FeatureMargin"
    else:
        assert method.objective.temperature == 0.1
    highest = 1e-5 if row == "fcl_margin" else 1e-3
    weights = [float(weight(392 * epoch)) for epoch in (0, 2, 3, 4, 19)]
    assert weights == pytest.approx([0, 0, highest / 2, highest, highest])


def check_method(row: str, method, constants: tuple, pipeline: tuple) -> None:
    """The constants of appendix C, in its order."""
    kinds = {"fcl": "FCL", "patch_gaussian_fcl": "FCL", "cl_gaussian": "CLGaussian"}
    assert type(method).__name__ == kinds.get(row, "Supervised")
    patches = [
        (augmentation.patch, augmentation.deviation)
        for augmentation in pipeline
        if type(augmentation).__name__ == "PatchGaussian"
    ]
    assert patches == ([constants[-2:]] if row.startswith("patch") else [])
    if row in ("xe", "patch_gaussian"):
        assert method.terms == ("ce",)
    elif row == "xe_gaussian":
        assert (method.noise.deviation, float(method._weight("ce_noisy"))) == pytest.approx(constants)
    else:
        noise = method.noise if row == "cl_gaussian" else method.perturbation
        counted = () if row == "cl_gaussian" else (noise.count,)
        weight = method.term_weights["feature_contrast"]
        begins = int(constants[len(counted) + 3])
        described = (*counted, noise.deviation, method.objective.temperature, float(weight(begins)), begins)
        assert described == pytest.approx(constants[: len(described)])
        assert float(weight(begins - 1)) == 0 and float(weight(10**6)) == float(weight(begins))
        assert method.objective.scale == "mean"


def test_the_mean_of_all_is_over_19_corruptions_of_cifar_and_over_15_of_imagenet():
    """Check what cifar_c.gin and imagenet_c_resnet50_v2.gin state about Table 3."""
    for data, text in CORRUPTED.items():
        by_corruption = cells(BY_CORRUPTION[data])
        gaps = [float(line[0]) - np.mean(np.float64(by_corruption[row])) for row, line in cells(text).items()]
        low, high = (-1e-4, 1e-4) if data == "imagenet_c" else (0.007, 0.011)
        assert low < min(gaps) and max(gaps) < high
