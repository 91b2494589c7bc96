"""A queue as one would write it on paper: a list of (vector, step stored), and what tests need to drive a real one."""

import math
from types import SimpleNamespace

import torch


class LiteralQueue:
    def __init__(self, length):
        self.length = length
        self.rows = []
        self.steps = 0

    def push(self, batch):
        for row in batch.tolist():
            norm = math.hypot(*row)
            self.rows.append(([value / norm for value in row], self.steps))
            if len(self.rows) > self.length:
                self.rows.pop(0)
        self.steps += 1

    def vectors(self):
        return torch.tensor([vector for vector, _ in self.rows])

    def ages(self):
        return [self.steps - stored for _, stored in self.rows]


class StepOf:
    """A step whose view "anchor" has these sentence vectors."""

    def __init__(self, rows):
        self.rows = rows

    def sentences(self, view):
        assert view == "anchor"
        return self.rows


def bound(queue, dim=4):
    queue.bind(SimpleNamespace(dim=dim))
    return queue


def batches(sizes, dim=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, dim, generator=generator) for size in sizes]
