"""95 % intervals of the numbers in a report, in closed form."""

from __future__ import annotations

import numpy as np

from tfrobust.errors import InputError

# The 97.5 % quantile of the standard normal.
Z = 1.959963984540054
# The kind of the interval of `independent_drop`, as measurements state it.
INDEPENDENT_DROP = "from two Wilson intervals"


def wilson_interval(successes: int, count: int) -> tuple[float, float]:
    """Return the Wilson score interval of a proportion p = s/n.

    (p + z^2/2n -+ z sqrt(p (1-p) / n + z^2 / 4n^2)) / (1 + z^2/n)

    Args:
        successes: s, 0 <= s <= n.
        count: n >= 1.

    Returns:
        (low, high), within [0, 1]; the width is never 0, not even at p = 0 or 1.

    Raises:
        ValueError: count < 1 or successes outside [0, count].

    Source:
        Wilson 1927, JASA 22; Brown, Cai, DasGupta 2001, Statistical Science 16, eq. (4).
    """
    if count < 1 or not 0 <= successes <= count:
        raise InputError(f"An interval needs 0 <= successes <= count and count >= 1, not {successes} of {count}.")
    share, shrink = successes / count, 1 + Z**2 / count
    center = (share + Z**2 / (2 * count)) / shrink
    half = Z * np.sqrt(share * (1 - share) / count + Z**2 / (4 * count**2)) / shrink
    # Exact at p = 0 and 1, where rounding would give 1 - 1e-16.
    low = 0.0 if successes == 0 else max(0.0, float(center - half))
    high = 1.0 if successes == count else min(1.0, float(center + half))
    return low, high


def mean_interval(values: np.ndarray) -> tuple[float, float]:
    """Return mean -+ z s / sqrt(n) of independent values [n]; (mean, mean) for n = 1."""
    values = np.asarray(values, np.float64)
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return float(values.mean() - Z * error), float(values.mean() + Z * error)


def paired_drop_kind(example: str) -> str:
    """Return the kind of the interval of `relative_drop`, as measurements state it."""
    return f"delta method, or Wilson if no {example} becomes correct"


def share_kind(example: str) -> str:
    """Return the kind of `share_interval` where each example has a share, as measurements state it."""
    return f"of each {example}'s mean, normal; Wilson's where all are 0 or all 1"


def share_interval(values: np.ndarray) -> tuple[float, float]:
    """Return the interval of the mean of values [n] in [0, 1]: `mean_interval`, or Wilson's if all are 0 or all 1."""
    values = np.asarray(values, np.float64)
    for extreme in (0.0, 1.0):
        if np.allclose(values, extreme):
            return wilson_interval(int(extreme) * len(values), len(values))
    low, high = mean_interval(values)
    return max(0.0, low), min(1.0, high)


def student_interval(values: np.ndarray, resolution: float = 0.0) -> tuple[float, float]:
    """Return Student's interval of the mean of a few independent values, such as one per seed.

    mean -+ t s / sqrt(n), t the 97.5 % quantile of Student's distribution with n - 1 degrees of freedom.

    Args:
        values: float [n], n >= 2, about normally distributed.
        resolution: the distance of neighboring values, such as 1 / 360 of shares of 360 images. s is at least that of
            the rounding to them, resolution / sqrt(12), so that two equal values do not look certain.

    Returns:
        (low, high).

    Raises:
        ValueError: fewer than two values.

    Source:
        Student 1908, Biometrika 6.
    """
    from scipy import special

    values = np.asarray(values, np.float64)
    if values.ndim != 1 or len(values) < 2:
        raise InputError(f"Student's interval needs at least two values, not the shape {values.shape}.")
    deviation = max(values.std(ddof=1), resolution / np.sqrt(12.0))
    half = special.stdtrit(len(values) - 1, 0.975) * deviation / np.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)


def jackknife_interval(value: float, left_out: np.ndarray) -> tuple[float, float, float]:
    """Return the interval of a smooth statistic from its values without each of n examples.

    theta -+ z sqrt((n - 1) / n sum_i (theta_i - mean_i theta_i)^2)

    Args:
        value: theta, from all examples.
        left_out: float [n], theta_i, from all but the i-th; n >= 2.

    Returns:
        (theta, low, high); the ends are NaN if a theta_i is.

    Source:
        Efron and Stein 1981, Annals of Statistics 9.
    """
    left_out = np.asarray(left_out, np.float64)
    error = np.sqrt((len(left_out) - 1) * left_out.var())
    return value, float(value - Z * error), float(value + Z * error)


def median(values: np.ndarray) -> tuple[float | None, float | None, float | None]:
    """Return the median of independent values [n] with its interval from order statistics.

    The r-th smallest and the r-th largest of n values enclose the median with probability
    1 - 2 P(B < r), B binomial (n, 1/2); r is the largest with at least 95 %.

    Args:
        values: float [n], n >= 1; infinity means "larger than all others".

    Returns:
        (median, low, high); None in place of infinity, and for both ends if n < 6, which leaves no such r.

    Source:
        Conover, Practical Nonparametric Statistics, 3rd edition, section 3.2.
    """
    values = np.sort(np.asarray(values, np.float64))
    count = len(values)
    middle = np.inf if np.isinf(values[count // 2]) else np.median(values)
    smaller = np.arange(1, count + 1)
    logarithms = np.concatenate([[0.0], np.cumsum(np.log((count - smaller + 1) / smaller))]) - count * np.log(2)
    rank = int(np.sum(2 * np.cumsum(np.exp(logarithms)) <= 0.05))  # number of values that may be left out at either end
    ends = (values[rank - 1], values[count - rank]) if rank else (np.inf, np.inf)
    return tuple(None if np.isinf(value) else float(value) for value in (middle, *ends))


def paired_difference(first: np.ndarray, second: np.ndarray) -> tuple[float, float, float]:
    """Return the mean difference of paired values, first - second, with its interval.

    d = mean(a_i - b_i), d -+ z s_d / sqrt(n), s_d the sample deviation of the n differences. Variation that the pairs
    share cancels, so that this is much narrower than two separate intervals suggest.

    Args:
        first: bool or float [n], n >= 1.
        second: the same.

    Returns:
        (difference, low, high).

    Raises:
        ValueError: unequal or zero lengths.
    """
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if first.shape != second.shape or first.ndim != 1 or not len(first):
        raise InputError(f"Paired values have one equal length >= 1, not the shapes {first.shape}, {second.shape}.")
    low, high = mean_interval(first - second)
    return float(np.mean(first - second)), low, high


def relative_drop(clean: np.ndarray, changed: np.ndarray) -> tuple[float | None, float | None, float | None]:
    """Return the drop of accuracy relative to the clean accuracy, with its interval.

    drop = (C - A) / C, C = mean(c_i), A = mean(a_i) over the same images. With R = A/C the delta method gives var(drop)
    = sum_i (a_i - R c_i)^2 / (n C)^2. Where every a_i <= c_i, as under an attack, that is R (1-R) / sum(c): the
    variance of a proportion among the correctly classified images. Wilson's interval is used for it, because that of
    the delta method has width 0 at a drop of 0 or 1.

    Args:
        clean: bool [n], True for correctly classified clean images.
        changed: bool [n], True for images that are correctly classified when changed.

    Returns:
        (drop, low, high), at most 1; negative if the change helps; (None, None, None) if no clean image is correctly
        classified.

    Source:
        Gupta et al. 2023, eq. 3.
    """
    clean, changed = np.asarray(clean, bool), np.asarray(changed, bool)
    correct_count = int(clean.sum())
    if correct_count == 0:
        return None, None, None
    drop = 1 - changed.sum() / correct_count
    if not np.any(changed & ~clean):
        return float(drop), *wilson_interval(correct_count - int(changed.sum()), correct_count)
    error = np.sqrt(np.sum((changed - (1 - drop) * clean) ** 2)) / correct_count
    return float(drop), float(drop - Z * error), float(min(1.0, drop + Z * error))


def drop_scores(clean: np.ndarray, changed: np.ndarray) -> np.ndarray:
    """Return one score for each image, so that drops of two models can be compared image by image.

    s_i = drop + ((1 - drop) c_i - a_i) / C. The mean of the scores is the drop of `relative_drop`, and the variance of
    that mean is that of its delta method.

    Args:
        clean: bool [n], True for correctly classified clean images, at least one.
        changed: bool [n], True for images that are correctly classified when changed.

    Returns:
        float64 [n].
    """
    clean, changed = np.asarray(clean, np.float64), np.asarray(changed, np.float64)
    drop = 1.0 - changed.mean() / clean.mean()
    return drop + ((1.0 - drop) * clean - changed) / clean.mean()


def independent_drop(clean: np.ndarray, changed: np.ndarray) -> tuple[float | None, float | None, float | None]:
    """Return the relative drop of accuracy between two different sets of images, with its interval.

    drop = 1 - A / C. With Wilson's intervals [l, u] of A (accuracy when changed) and C (clean accuracy), the ratio
    A / C lies between (AC - sqrt((AC)^2 - l_A u_C (2A - l_A)(2C - u_C))) / (u_C (2C - u_C)) and
    (AC + sqrt((AC)^2 - u_A l_C (2A - u_A)(2C - l_C))) / (l_C (2C - l_C)).

    Args:
        clean: bool [n], True for correctly classified clean images.
        changed: bool [m], True for correctly classified changed images.

    Returns:
        (drop, low, high), at most 1; (None, None, None) if no clean image is correctly classified, and no interval if
        too few are.

    Source:
        Donner and Zou 2012, Statistical Methods in Medical Research 21 (MOVER-R).
    """
    clean, changed = np.asarray(clean, bool), np.asarray(changed, bool)
    if not clean.any():
        return None, None, None
    top, bottom = changed.mean(), clean.mean()
    low_top, high_top = wilson_interval(int(changed.sum()), len(changed))
    low_bottom, high_bottom = wilson_interval(int(clean.sum()), len(clean))
    drop = float(1 - top / bottom)
    if high_bottom >= 2 * bottom:
        return drop, None, None
    ends = []
    for sign, numerator, denominator in ((-1, low_top, high_bottom), (1, high_top, low_bottom)):
        square = (top * bottom) ** 2 - numerator * denominator * (2 * top - numerator) * (2 * bottom - denominator)
        ends.append((top * bottom + sign * np.sqrt(max(0.0, square))) / (denominator * (2 * bottom - denominator)))
    return drop, float(1 - ends[1]), float(min(1.0, 1 - ends[0]))
