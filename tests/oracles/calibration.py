"""Calibration scores, image by image and bin by bin."""

import math

from scipy.special import softmax


def expected_calibration_error(confidence, correct, bins):
    """Guo et al. 2017, eq. 3, with the bins (lo, hi] of Erichson et al.'s (2022) script."""
    total = 0.0
    for j in range(bins):
        low, high = j / bins, (j + 1) / bins
        inside = [i for i, c in enumerate(confidence) if (low < c <= high) or (j == 0 and c == 0)]
        if inside:
            mean_confidence = sum(confidence[i] for i in inside) / len(inside)
            mean_accuracy = sum(1.0 if correct[i] else 0.0 for i in inside) / len(inside)
            total += len(inside) / len(confidence) * abs(mean_accuracy - mean_confidence)
    return total


def brier(logits, labels):
    """Brier 1950, eq. 2: mean over images of the squared distance to the one-hot label."""
    scores = []
    for row, label in zip(logits, labels, strict=True):
        probabilities = softmax(row)
        scores.append(sum((p - (1.0 if k == label else 0.0)) ** 2 for k, p in enumerate(probabilities)))
    return sum(scores) / len(scores)


def negative_log_likelihood(logits, labels):
    return -sum(math.log(softmax(row)[label]) for row, label in zip(logits, labels, strict=True)) / len(labels)


def rms_calibration_error(confidence, correct, bin_size, last_bin_counts):
    """Sorted examples, bin by bin; the last bin is stretched to the end, and in the authors' sum it is missing."""
    pairs = sorted(zip(confidence, correct, strict=True), key=lambda pair: pair[0])
    borders = [[i * bin_size, (i + 1) * bin_size] for i in range(len(pairs) // bin_size)]
    borders[-1][1] = len(pairs)
    total = 0.0
    for start, stop in borders if last_bin_counts else borders[:-1]:
        inside = pairs[start:stop]
        gap = sum(c for c, _ in inside) / len(inside) - sum(1.0 for _, is_correct in inside if is_correct) / len(inside)
        total += len(inside) / len(pairs) * gap**2
    return math.sqrt(total)


def aurra(confidence, correct):
    """The accuracy at each response rate, from the most confident on; their mean."""
    order = sorted(range(len(confidence)), key=lambda i: confidence[i], reverse=True)
    correct_count, accuracies = 0, []
    for answered, i in enumerate(order, start=1):
        correct_count += bool(correct[i])
        accuracies.append(correct_count / answered)
    return sum(accuracies) / len(accuracies)
