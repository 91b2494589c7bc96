"""VaSCL's perturbation and contrast as one would compute them on paper: sentence by sentence, number by number."""

from __future__ import annotations

import math

import torch

from tests.registry.losses.literal import cosine


def neighbors(rows, k):
    """Return, row by row, the k others with the largest inner products."""
    found = []
    for i, e in enumerate(rows):
        products = {j: sum(a * b for a, b in zip(e, other, strict=True)) for j, other in enumerate(rows) if j != i}
        found.append(sorted(products, key=products.get, reverse=True)[:k])
    return found


def contrast(rows, columns, near, tau):
    """Return the mean over rows of −log of the own column's share among it and the neighbors'."""
    total = 0.0
    for i, row in enumerate(rows):
        positive = math.exp(cosine(row, columns[i]) / tau)
        total -= math.log(positive / (positive + sum(math.exp(cosine(row, columns[j]) / tau) for j in near[i])))
    return total / len(rows)


def project(encoder, rows):
    """What the encoder's head makes of rows of numbers."""
    return encoder.project(torch.tensor(rows, dtype=torch.float64)).tolist()


def moved_by(rows, directions, epsilon):
    return [[x + epsilon * d for x, d in zip(row, by, strict=True)] for row, by in zip(rows, directions, strict=True)]


def unit(row):
    return [x / math.hypot(*row) for x in row]


def hardest(encoder, rows, first, near, epsilon, tau):
    """The directions of the gradient, by central differences of the one-way contrast."""
    found = []
    for i, direction in enumerate(first):
        slopes = []
        for place in range(len(direction)):
            ends = []
            for shift in (1e-6, -1e-6):
                changed = [list(d) for d in first]
                changed[i][place] += shift
                moved = project(encoder, moved_by(rows, changed, epsilon))
                ends.append(contrast(project(encoder, rows), moved, near, tau))
            slopes.append((ends[0] - ends[1]) / 2e-6)
        found.append(unit(slopes))
    return found
