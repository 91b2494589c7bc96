"""Accuracy and time of both classifiers on the seven transfer tasks of one model.

    CSE_DATA=../shared/data python -m benchmarks.transfer MODEL [--tasks mr,cr] [--threads 2] [--literal trec,mrpc]

"senteval" trains many classifiers in parallel with SentEval's own settings. "logistic" trains to the optimum.
`--literal` also trains SentEval's classifiers one after the other, as torch modules with torch's Adam, to show that the
parallel classifiers are the same except for rounding. Accuracies are × 100. Encoding has a separate column of seconds.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from cse_cli.core.devices import choose
from cse_cli.evaluation.encoder import SentenceEncoder
from registry import EVALUATORS
from registry.encoders.saved import open_encoder
from registry.evaluators.classifiers import Fit, LinearProbe, Rows, read_labeled
from registry.types import Encode

TASKS = ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc")
L2 = (1e-5, 1e-4, 1e-3, 1e-2)
SEED = 1111


def one_by_one(features: Tensor, labels: Rows, fits: Sequence[Fit]) -> list[list[float]]:
    """Train the classifiers one after the other, as SentEval does."""
    targets = torch.from_numpy(labels)
    with torch.enable_grad():
        return [[_trained(features, targets, fit, l2) for l2 in fit.l2] for fit in fits]


def _trained(features: Tensor, targets: Tensor, fit: Fit, l2: float) -> float:
    shuffles = np.random.RandomState(SEED)
    torch.manual_seed(SEED)
    layer = nn.Linear(features.shape[1], int(targets.max()) + 1)
    adam = torch.optim.Adam(layer.parameters(), weight_decay=l2)
    train, stop = fit.train, fit.stop
    if stop is None:
        order = shuffles.permutation(len(train))
        train, stop = train[order[int(0.05 * len(train)) :]], train[order[: int(0.05 * len(train))]]
    own, wanted = features[train], targets[train]
    best, failures, passes, kept = -1.0, 0, 0, layer.state_dict()
    while failures <= 5 and passes <= 200:
        for _ in range(4):
            shuffled = torch.from_numpy(shuffles.permutation(len(own)))
            for start in range(0, len(own), 64):
                batch = shuffled[start : start + 64]
                adam.zero_grad()
                nn.functional.cross_entropy(layer(own[batch]), wanted[batch]).backward()
                adam.step()
        passes += 4
        found = _share(layer, features[stop], targets[stop])
        if found > best:
            best, kept = found, copy.deepcopy(layer.state_dict())
        else:
            failures += 1
    layer.load_state_dict(kept)
    return _share(layer, features[fit.scored], targets[fit.scored])


@torch.no_grad()
def _share(layer: nn.Linear, features: Tensor, targets: Tensor) -> float:
    return float((layer(features).argmax(dim=1) == targets).double().mean())


def literal(task: str, encode: Encode) -> tuple[dict[str, float], float]:
    """Return the accuracies of the classifiers trained one by one, and the seconds of training."""
    data = read_labeled(task)
    features = data.features(encode)
    began = time.perf_counter()
    found = LinearProbe(data, features, one_by_one, L2, 10, SEED).accuracies()
    return {"accuracy": found.test, "dev_accuracy": found.dev}, time.perf_counter() - began


def timed(task: str, classifier: str, encode: Encode) -> tuple[dict[str, float], float]:
    """Return the accuracies and the seconds, including the time to read the data."""
    evaluator = EVALUATORS["transfer"].build({"task": task, "classifier": classifier})
    began = time.perf_counter()
    return evaluator(encode), time.perf_counter() - began


def main() -> None:
    """Print a line per task, then means, the largest difference and the sum of the seconds."""
    wanted = arguments()
    torch.set_num_threads(wanted.threads)
    encoder, length = open_encoder(wanted.model, wanted.pooling)
    encode = SentenceEncoder(encoder.eval(), choose("cpu", "fp32"), 4096, length)
    print(f"{wanted.model}, width {encoder.dim}, {wanted.threads} threads; accuracy (dev accuracy), seconds")
    print("task  | rows  | encoding | logistic              | senteval              | difference | one by one")
    rows = []
    for task in wanted.tasks.split(","):
        data = read_labeled(task)
        began = time.perf_counter()
        encode([text for row in data.texts for text in row])
        encoding = time.perf_counter() - began
        optimum, early = (timed(task, classifier, encode) for classifier in ("logistic", "senteval"))
        rows.append((optimum[0]["accuracy"], early[0]["accuracy"], encoding, optimum[1], early[1]))
        last = shown(literal(task, encode)) if task in wanted.literal.split(",") else "-"
        difference = rows[-1][0] - rows[-1][1]
        print(f"{task:5} | {len(data.labels):5} | {encoding:6.1f} s | {shown(optimum)} | {shown(early)} "
              f"| {difference:+10.2f} | {last}", flush=True)  # fmt: skip
        encode.forget()
    mean = np.mean(rows, axis=0)
    largest = max((row[0] - row[1] for row in rows), key=abs)
    print(f"mean: logistic {mean[0]:.2f}, senteval {mean[1]:.2f}; largest difference {largest:+.2f}")
    print("total seconds: encoding {:.0f}, logistic {:.0f}, senteval {:.0f}".format(*np.sum(rows, axis=0)[2:]))


def shown(found: tuple[dict[str, float], float]) -> str:
    """Return the text "accuracy (dev accuracy) seconds"."""
    values, seconds = found
    return f"{values['accuracy']:5.2f} ({values['dev_accuracy']:5.2f}) {seconds:5.1f} s"


def arguments() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(description="The seven transfer tasks of one model, with both classifiers.")
    parser.add_argument("model", help="Directory, Hub ID or name, as in `cse evaluate`.")
    parser.add_argument("--pooling", help="Pooling. Default: the model's own.")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--literal", default="", help="Tasks whose classifiers are also trained one by one.")
    return parser.parse_args()


if __name__ == "__main__":
    main()
