"""Encoding the seven English STS test sets: ours against SentEval's way, same model, process and machine, alternating.

    CSE_DATA=../shared/data python benchmarks/encoding.py MODEL [--repeats 3] [--threads 2]

SentEval's way: each subset by itself, its pairs sorted by the number of words of either side, batches of 128 pairs, the
two sides of a batch encoded as they come, padded to the longest; nothing shared. Ours: the distinct sentences of all
sets once, by length, batches of so many tokens. Prints seconds, tokens computed, real tokens, peak memory, and the
largest difference between the two ways' scores.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor

from cse_cli.core.devices import Compute, choose
from cse_cli.core.results import STS_TASKS
from cse_cli.evaluation.encoder import SentenceEncoder
from registry import EVALUATORS, catalogue
from registry.catalogue import Pair
from registry.encoders.saved import open_encoder
from registry.statistics import aggregates
from registry.tokens import Tokens
from registry.types import Encoder

BATCH = 128


class Counted:
    """An encoder's `represent`, with the tokens it was given."""

    def __init__(self, encoder: Encoder) -> None:
        self.plain = encoder.represent
        self.computed = self.real = 0

    def __call__(self, tokens: Tokens, embeddings: Tensor | None = None) -> Tensor:
        """Encode and count."""
        self.computed += tokens.ids.numel()
        self.real += int(tokens.mask.sum())
        return self.plain(tokens, embeddings)


def ours(encoder: Encoder, length: int, compute: Compute | None = None) -> dict[str, float]:
    """Return task → Spearman × 100."""
    encode = SentenceEncoder(encoder, compute or choose("cpu"), None, length)
    tasks = {name: EVALUATORS["sts"].build({"dataset": name, "split": "test"}) for name in STS_TASKS}
    return {name: task(encode)["spearman"] for name, task in tasks.items()}


@torch.inference_mode()
def senteval(encoder: Encoder, length: int) -> dict[str, float]:
    """Return the same, encoded as SentEval's `sts.py` and SimCSE's `batcher` do."""
    scores = {}
    for name in STS_TASKS:
        pairs = sorted(catalogue.read_pairs(name, "test"), key=_place)
        cosines: list[float] = []
        for _, subset in groupby(pairs, key=lambda pair: pair.subset):
            members = list(subset)
            for start in range(0, len(members), BATCH):
                batch = members[start : start + BATCH]
                left, right = (
                    _padded(encoder, [getattr(p, side) for p in batch], length) for side in ("first", "second")
                )
                cosines += torch.cosine_similarity(left, right).tolist()
        found = aggregates([pair.subset for pair in pairs], [pair.score for pair in pairs], cosines)
        scores[name] = found["spearman_all"]
    return scores


def _place(pair: Pair) -> tuple[str, int, int, float]:
    return pair.subset, len(pair.first.split()), len(pair.second.split()), pair.score


def _padded(encoder: Encoder, sentences: Sequence[str], length: int) -> Tensor:
    rows = encoder.vocabulary.ids([" ".join(s.split()) for s in sentences], length)
    return encoder.represent(encoder.vocabulary.pad(rows)).float()


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    encoder, length = open_encoder(asked.model)
    seconds: dict[str, list[float]] = {"ours": [], "SentEval's": []}
    scores: dict[str, dict[str, float]] = {}
    counts: dict[str, Counted] = {}
    for _ in range(asked.repeats):
        for name, way in (("ours", ours), ("SentEval's", senteval)):
            counts[name] = counted = Counted(encoder)
            encoder.represent = counted  # type: ignore[method-assign]
            began = time.perf_counter()
            scores[name] = way(encoder, length)
            seconds[name].append(time.perf_counter() - began)
            encoder.represent = counted.plain  # type: ignore[method-assign]
    report(seconds, scores, counts)


def report(seconds: dict[str, list[float]], scores: dict[str, dict[str, float]], counts: dict[str, Counted]) -> None:
    """Print what was measured."""
    median = {name: statistics.median(values) for name, values in seconds.items()}
    out = sys.stdout.write
    out("| way | median s | all s | tokens computed | real tokens |\n| --- | ---: | --- | ---: | ---: |\n")
    for name, values in seconds.items():
        every = ", ".join(f"{value:.1f}" for value in values)
        out(f"| {name} | {median[name]:.1f} | {every} | {counts[name].computed:,} | {counts[name].real:,} |\n")
    out(f"\nratio of medians: {median[next(reversed(median))] / median['ours']:.2f}\n")
    out(", ".join(f"{task} {score:.3f}" for task, score in scores["ours"].items()) + "\n")
    first, second = scores.values()
    out(f"largest difference of a score: {max(abs(first[task] - second[task]) for task in first):.1e}\n")
    out(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB\n")


if __name__ == "__main__":
    main()
