"""VaSCL's perturbation and contrast as one would compute them on paper: sentence by sentence, number by number."""

import math

import torch

from tests.registry.losses.literal import cosine, unit


def neighbors(rows, k):
    """Return, row by row, the k others with the largest inner products."""
    found = []
    for i, e in enumerate(rows):
        products = {j: sum(a * b for a, b in zip(e, other, strict=True)) for j, other in enumerate(rows) if j != i}
        found.append(sorted(products, key=products.get, reverse=True)[:k])
    return found


def contrast(rows, positives, others, near, tau):
    """Return the mean over rows of −log of the positive's share among it and the neighbors in each of `others`."""
    total = 0.0
    for i, row in enumerate(rows):
        positive = math.exp(cosine(row, positives[i]) / tau)
        below = sum(math.exp(cosine(row, other[j]) / tau) for other in others for j in near[i])
        total -= math.log(positive / (positive + below))
    return total / len(rows)


def both_ways(clean, moved, near, tau):
    """Return VaSCL's second loss: each of the 2N rows has its neighbors among the clean and the moved vectors."""
    others = (clean, moved)
    return (contrast(clean, moved, others, near, tau) + contrast(moved, clean, others, near, tau)) / 2


def project(encoder, rows):
    """What the encoder's head makes of rows of numbers."""
    return encoder.project(torch.tensor(rows, dtype=torch.float64)).tolist()


def moved_by(rows, directions, epsilon):
    return [[x + epsilon * d for x, d in zip(row, by, strict=True)] for row, by in zip(rows, directions, strict=True)]


def hardest(encoder, rows, first, near, epsilon, tau):
    """The directions of the gradient, by central differences of the contrast of moved vectors with clean ones."""
    found, clean = [], project(encoder, rows)
    for i, direction in enumerate(first):
        slopes = []
        for place in range(len(direction)):
            ends = []
            for shift in (1e-6, -1e-6):
                changed = [list(d) for d in first]
                changed[i][place] += shift
                moved = project(encoder, moved_by(rows, changed, epsilon))
                ends.append(contrast(moved, clean, (clean,), near, tau))
            slopes.append((ends[0] - ends[1]) / 2e-6)
        found.append(unit(slopes))
    return found
