"""In-batch contrast as one would compute it on paper: cell by cell, one exponential at a time."""

import math

import pytest
import torch

from registry.testing.materials import WidthOnly
from registry.types import Negatives


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


class Headed(WidthOnly):
    """An encoder with one head and nothing else, in double."""

    def __init__(self, dim, head):
        super().__init__(dim)
        self.head = head
        self.head.fit(dim, self)
        self.double()

    def project(self, pooled):
        return self.head(pooled, ())


def agree(found, expected, leaves, share=1e-6):
    """Check a value, and its gradient in the norm of each leaf, up to a share of them."""
    assert found.item() == pytest.approx(expected.item(), rel=share)
    for mine, theirs in zip(torch.autograd.grad(found, leaves), torch.autograd.grad(expected, leaves), strict=True):
        assert (mine - theirs).norm() <= share * theirs.norm()


def unit(row):
    length = math.hypot(*row)
    return [x / length for x in row]


def draw(n, k, dim=6, seed=0):
    """Return anchor, positive, hard, reference (n, dim) and a queue of k entries, the first switched off, in double."""
    g = torch.Generator().manual_seed(seed)
    views = [torch.randn(n, dim, generator=g, dtype=torch.float64) for _ in range(4)]
    weights = torch.rand(k, generator=g, dtype=torch.float64)
    weights[: min(k, 1)] = 0.0
    return *views, Negatives(torch.randn(k, dim, generator=g, dtype=torch.float64), weights.log())


def cells(positive_logit, negative_logit, views, negatives, hard=None, reference=None, **about):
    """Return, row by row, [(logit of the positive, True)] + [(logit, False)] of every column that takes part.

    Args:
        about: hard_weight, in_batch, false_negative, weight_on, as the losses call them.
    """
    anchor, positive = (v.tolist() for v in views)
    others = [] if hard is None else hard.tolist()
    rows = []
    for i, h in enumerate(anchor):
        takes_part = [j for j in range(len(anchor)) if j == i or about.get("in_batch", True)]
        logits = []
        for j in (j for j in takes_part if j != i):
            limit = about.get("false_negative")
            alike = limit is not None and cosine(reference[i].tolist(), reference[j].tolist()) > limit
            logits += _weighted(negative_logit(cosine(h, positive[j])), 0.0 if alike else 1.0, about)
        for j in (j for j in takes_part if others):
            logits.append(negative_logit(cosine(h, others[j])) + (about["hard_weight"] if i == j else 0.0))
        for entry, log_weight in zip(negatives.vectors.tolist(), negatives.log_weights.tolist(), strict=True):
            logits += _weighted(negative_logit(cosine(h, entry)), math.exp(log_weight), about)
        rows.append([(positive_logit(cosine(h, positive[i])), True)] + [(logit, False) for logit in logits])
    return rows


def _weighted(logit, weight, about):
    """Return the logit with its weight in a list, or nothing where the weight removes the column."""
    if about.get("weight_on") == "logit":
        return [weight * logit]
    return [logit + math.log(weight)] if weight > 0 else []


def cross_entropy(rows):
    """Return the mean over rows of −log softmax at the positive."""
    total = 0.0
    for row in rows:
        below = sum(math.exp(logit) for logit, _ in row)
        total -= math.log(math.exp(row[0][0]) / below)
    return total / len(rows)


def binary_cross_entropy(rows, columns):
    """Return −(y log p + (1−y) log(1−p)) added up over cells and divided by rows · columns."""
    total = 0.0
    for row in rows:
        below = sum(math.exp(logit) for logit, _ in row)
        for logit, right in row:
            p = math.exp(logit) / below
            total -= math.log(p) if right else math.log(1 - p)
    return total / (len(rows) * columns)


def softmax_of_cosines(left, right, tau):
    """Return, row by row, the shares of e^(cosine/tau) of each row of `left` with every row of `right`."""
    rows = [[math.exp(cosine(a, b) / tau) for b in right.tolist()] for a in left.tolist()]
    return [[cell / sum(row) for cell in row] for row in rows]


def ranking_distillation(form, anchor, positive, teachers, tau, teacher_tau, mix, diagonal=False, epsilon=1e-7):
    """Return RankCSE's second loss, list by list and place by place."""
    n, total = len(anchor), 0.0
    shares = [1.0] if len(teachers) == 1 else [mix, 1 - mix]
    for i, h in enumerate(anchor.tolist()):
        others = [j for j in range(n) if diagonal or j != i]
        scores = {j: cosine(h, positive[j].tolist()) / tau for j in others}
        wanted = {
            j: sum(share * cosine(t[i].tolist(), t[j].tolist()) for share, t in zip(shares, teachers, strict=True))
            for j in others
        }
        if form == "list_net":
            below = sum(math.exp(w / teacher_tau) for w in wanted.values())
            choice = math.log(sum(math.exp(s) for s in scores.values()))
            total -= sum(math.exp(wanted[j] / teacher_tau) / below * (scores[j] - choice) for j in others) / n
        else:
            order = sorted(others, key=lambda j: -wanted[j])
            for place, j in enumerate(order):
                left = sum(math.exp(scores[k]) for k in order[place:]) + epsilon * math.exp(max(scores.values()))
                total += (math.log(left) - scores[j]) / n
    return total


def mixtures(kind, anchor, positive, share, tau, normalize=True, off="out"):
    """Return, row by row, the logits that MixCSE adds to InfoNCE's."""
    n = len(anchor)

    def scaled(row):
        return [x / math.hypot(*row) for x in row] if normalize else row

    def mixed(rows, i):
        pair = zip(scaled(rows[i]), scaled(rows[(i + 1) % n]), strict=True)
        return [share * own + (1 - share) * other for own, other in pair]

    if kind == "own":
        return [[cosine(anchor[i], mixed(positive, i)) / tau] for i in range(n)]
    silent = [0.0] if off == "zero" else []
    made = []
    for i in range(n):
        row = []
        for j in range(n):
            row += silent if (j + 1) % n == i else [cosine(anchor[i], mixed(positive, j)) / tau]
            row += silent if (i + 1) % n == j else [cosine(mixed(anchor, i), positive[j]) / tau]
        made.append(row)
    return made
