"""Signs of catastrophic overfitting: a network that withstands a single gradient step, and no other attack."""

# At the epsilon of the training. A network trained by PGD on the digits has a gap of 0.1 and a cosine of 0.83.
WIDEST_GAP, LEAST_COSINE = 0.2, 0.3


def signs(single: float, several: float, cosine: float) -> list[str]:
    """Return a clause for each sign of catastrophic overfitting; none for a healthy network.

    Args:
        single: accuracy under FGSM.
        several: accuracy under an attack of several steps, such as PGD, in the same threat model.
        cosine: mean cosine between the input gradients at an image and at a random point of its ball.
    """
    clauses = []
    if single - several > WIDEST_GAP:
        clauses.append(f"FGSM leaves {single:.1%} accuracy, and several steps leave {several:.1%}")
    if cosine < LEAST_COSINE:
        clauses.append(f"input gradients near an image have a cosine of {cosine:.2f} with its own")
    return clauses
