"""Transfer tasks: linear classifiers on frozen embeddings, by SentEval's protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, get_args

import torch
from pydantic import Field

from registry import EVALUATORS
from registry.errors import CseError
from registry.evaluators.classifiers import Classifier, LinearProbe, early_stopped, logistic, read_labeled
from registry.resources import catalog
from registry.types import Encode, Evaluator, Resource

L2 = Annotated[float, Field(gt=0)]
Task = Literal["mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc"]
SEVEN: tuple[str, ...] = get_args(Task)
"""The seven data sets of the papers' tables, in order."""


@EVALUATORS.register("transfer")
class Transfer(Evaluator):
    """Train linear classifiers on frozen embeddings, and return their accuracy × 100.

    argmin over W, b of mean cross-entropy(softmax(Wx + b), label) + λ/2 ‖(W, b)‖², with x the embedding of a sentence,
    or [|u − v| ; u ∘ v] of a pair, not centered or scaled. λ is the weight in `l2` with the best mean accuracy on
    held-out rows:

    * mr, cr, subj, mpqa: each stratified fold is the test split once, and λ is selected by cross-validation on the
    others.
      `accuracy` and `dev_accuracy` are means over the outer folds.
    * trec, mrpc: λ is selected by cross-validation on the training split. One classifier of the whole training split is
      scored on the test split.
    * sst2: λ is selected on the dev split, and the classifier is scored on the test split, without folds.

    "senteval" trains by Adam from one seed with early stopping, as SentEval does: every 4 passes it evaluates on the
    held-out rows, or on 5% of the training rows if no rows are held out. It stops at the 6th evaluation without a new
    best, and keeps the best. Its `dev_accuracy` is optimistic, because early stopping uses the same rows. "logistic"
    trains to the optimum, independently of the order of rows within a fold. Both compute all folds and all of `l2`
    together.

    Rows are sorted by number of words and label, as in SentEval, because folds depend on the order. Empty texts are
    kept. Of equal accuracies to two decimals, the first of `l2` is selected. Unlike SentEval's, accuracies are not
    rounded.

    Shapes: embeddings (n, D), or (n, 2D) for pairs. Both classifiers have a bias, which `l2` also penalizes.

    Source: SentEval's `tools/validation.py` and `tools/classifier.py`, with SimCSE's settings of its test mode
    (methods/simcse.md §7).
    Doubtful: SentEval intended to sum the cross-entropy of a batch, but the `size_average = False` that it sets on the
    loss has no effect since torch 1.0, so the papers' runs used the mean. For Adam, a sum is equivalent to `l2` divided
    by 64. Whether a paper reports test or dev accuracy: MoCoSE's code returns the latter (methods/mocose.md M14), so
    both are reported.

    Args:
        task: Data set in the catalog.
        classifier: "senteval" for the papers' results. "logistic" for the optimum, much faster for two classes.
        l2: Candidates for the weight λ.
        folds: Number of folds of every cross-validation, inner and outer.
        seed: Seed of folds, initial weights and shuffles.
        device: Device for training the classifiers. On a GPU the last digit can differ.

    Example:
        [evaluators.mr]
        name = "transfer"
        task = "mr"
        classifier = "logistic"
    """

    metric: ClassVar[str] = "accuracy"
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "dev_accuracy")
    suites: ClassVar[Mapping[str, tuple[str, ...]]] = {"transfer": SEVEN, "all": SEVEN}

    def __init__(
        self,
        task: Annotated[Task, Resource("dataset")],
        classifier: Literal["senteval", "logistic"] = "senteval",
        l2: Annotated[list[L2], Field(min_length=1)] = [1e-5, 1e-4, 1e-3, 1e-2],  # noqa: B006 - never changed
        folds: Annotated[int, Field(ge=2)] = 10,
        seed: Annotated[int, Field(ge=0, lt=2**32)] = 1111,
        device: Literal["cpu", "cuda"] = "cpu",
    ) -> None:
        if device == "cuda" and not torch.cuda.is_available():
            raise CseError(
                "transfer: device = 'cuda', but this machine has no CUDA device",
                "set device = 'cpu', which takes minutes",
                code="evaluators.no_cuda_device",
            )
        self.task = task
        self.classifier: Classifier = logistic if classifier == "logistic" else partial(early_stopped, seed=seed)
        self.l2 = tuple(l2)
        self.folds, self.seed, self.device = folds, seed, device

    @classmethod
    def parameters_for(cls, name: str) -> dict[str, Any] | None:
        """Return the parameters of a data set, which has no selectable splits."""
        task, slash, _ = name.partition("/")
        if task not in SEVEN:
            return None
        if slash:
            raise CseError(
                f"'{name}': data set {task} has a fixed protocol without a choice of split",
                f"write {task}",
                code="evaluators.fixed_split",
            )
        return {"task": task}

    @torch.no_grad()
    def __call__(self, encode: Encode) -> dict[str, float]:
        """Return the accuracy on test rows and on held-out rows."""
        data = read_labeled(self.task, self.limit)
        features = data.features(encode).to(self.device)
        found = LinearProbe(data, features, self.classifier, self.l2, self.folds, self.seed).accuracies()
        return {"accuracy": found.test, "dev_accuracy": found.dev}

    def texts(self) -> Sequence[str]:
        """Return every distinct sentence of all splits of the data set."""
        return list(dict.fromkeys(text for row in read_labeled(self.task, self.limit).texts for text in row))

    def fingerprints(self) -> dict[str, str]:
        """Return "dataset/split" → content digest for every split."""
        return {
            f"{self.task}/{split}": catalog.fingerprint(self.task, split) for split in catalog.entry(self.task).splits
        }
