"""Calibration scores, image by image and bin by bin."""

import math


def softmax(row):
    largest = max(row)
    powers = [math.exp(value - largest) for value in row]
    return [power / sum(powers) for power in powers]


def expected_calibration_error(confidence, correct, bins):
    """Guo et al. 2017, eq. 3, with the bins (lo, hi] of paper 001's script."""
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
