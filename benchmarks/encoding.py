"""Compare the encoding of the seven English STS test sets by `cse` and by SentEval's method.

    CSE_DATA=../shared/data python benchmarks/encoding.py MODEL [--repeats 3] [--threads 2]

Both use the same model, process and machine, alternating. SentEval encodes each subset separately, with pairs sorted by
their numbers of words, in batches of 128 pairs, where each side of a batch is padded to its longest sentence. `cse`
encodes each distinct sentence of all sets once, sorted by length, in batches with a limited number of tokens. Prints
seconds, computed tokens, real tokens, peak memory, and the largest difference between the two methods' scores.
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
from registry import EVALUATORS
from registry.encoders.saved import open_encoder
from registry.resources import catalog
from registry.resources.catalog import Pair
from registry.statistics import aggregates
from registry.tokens import Tokens
from registry.types import Encoder

BATCH = 128


class Counted:
    """An encoder's `encode_for_eval` that counts its input tokens."""

    def __init__(self, encoder: Encoder) -> None:
        self.plain = encoder.encode_for_eval
        self.computed = self.real = 0

    def __call__(self, tokens: Tokens, embeddings: Tensor | None = None) -> Tensor:
        """Encode and count."""
        self.computed += tokens.ids.numel()
        self.real += int(tokens.mask.sum())
        return self.plain(tokens, embeddings)


def with_cse(encoder: Encoder, length: int, compute: Compute | None = None) -> dict[str, float]:
    """Return task → Spearman × 100, encoded by `cse`."""
    encode = SentenceEncoder(encoder, compute or choose("cpu", "fp32"), None, length)
    tasks = {name: EVALUATORS["sts"].build({"dataset": name, "split": "test"}) for name in STS_TASKS}
    return {name: task(encode)["spearman"] for name, task in tasks.items()}


@torch.inference_mode()
def senteval(encoder: Encoder, length: int) -> dict[str, float]:
    """Return task → Spearman × 100, encoded as in SentEval's `sts.py` and SimCSE's `batcher`."""
    scores = {}
    for name in STS_TASKS:
        pairs = sorted(catalog.read_pairs(name, "test"), key=_place)
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
    return encoder.encode_for_eval(encoder.vocabulary.pad(rows)).float()


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    encoder, length = open_encoder(asked.model)
    seconds: dict[str, list[float]] = {"cse": [], "SentEval": []}
    scores: dict[str, dict[str, float]] = {}
    counts: dict[str, Counted] = {}
    for _ in range(asked.repeats):
        for name, way in (("cse", with_cse), ("SentEval", senteval)):
            counts[name] = counted = Counted(encoder)
            encoder.encode_for_eval = counted  # type: ignore[method-assign]
            began = time.perf_counter()
            scores[name] = way(encoder, length)
            seconds[name].append(time.perf_counter() - began)
            encoder.encode_for_eval = counted.plain  # type: ignore[method-assign]
    report(seconds, scores, counts)


def report(seconds: dict[str, list[float]], scores: dict[str, dict[str, float]], counts: dict[str, Counted]) -> None:
    """Print the measurements."""
    median = {name: statistics.median(values) for name, values in seconds.items()}
    out = sys.stdout.write
    out("| method | median s | all s | tokens computed | real tokens |\n| --- | ---: | --- | ---: | ---: |\n")
    for name, values in seconds.items():
        every = ", ".join(f"{value:.1f}" for value in values)
        out(f"| {name} | {median[name]:.1f} | {every} | {counts[name].computed:,} | {counts[name].real:,} |\n")
    out(f"\nratio of medians: {median[next(reversed(median))] / median['cse']:.2f}\n")
    out(", ".join(f"{task} {score:.3f}" for task, score in scores["cse"].items()) + "\n")
    first, second = scores.values()
    out(f"largest difference of a score: {max(abs(first[task] - second[task]) for task in first):.1e}\n")
    out(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB\n")


if __name__ == "__main__":
    main()
