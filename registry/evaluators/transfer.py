"""Transfer: what a linear classifier reads off frozen embeddings, by SentEval's protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, get_args

import torch
from pydantic import Field

from registry import EVALUATORS, catalogue
from registry.errors import CseError
from registry.evaluators.classifiers import EarlyStopped, Logistic
from registry.evaluators.protocol import Classifier, Trial, read_labelled
from registry.types import Encode, Evaluator, Resource

L2 = Annotated[float, Field(gt=0)]
Task = Literal["mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc"]
SEVEN: tuple[str, ...] = get_args(Task)
"""The data sets of every table, in the papers' order."""


@EVALUATORS.register("transfer")
class Transfer(Evaluator):
    """Train linear classifiers on frozen embeddings, and return their accuracy × 100.

    argmin over W, b of mean cross-entropy(softmax(Wx + b), label) + λ/2 ‖(W, b)‖², x a sentence's vector, or of a pair
    [|u − v| ; u ∘ v], neither centred nor scaled; λ is the weight of `l2` with the best mean accuracy on held-out rows:

    * mr, cr, subj, mpqa: each stratified fold is the test once; λ by cross-validation within the others. `accuracy`
      and `dev_accuracy` are means over the outer folds.
    * trec, mrpc: λ by cross-validation on the training split, then one classifier of all of it, scored on the test
      split.
    * sst2: λ by the dev split, then scored on the test split; there are no folds.

    "senteval" trains by Adam from one seed and stops early, as SentEval does: every 4 passes it looks at the held-out
    rows, or at 5% of the training rows where there are none, and ends at the 6th look that brings no new best; the
    best is kept. Its `dev_accuracy` is optimistic, since the same rows chose when to stop. "logistic" trains to the
    optimum: the same for every order of the rows within a fold. Both compute all folds and all of `l2` together.

    Rows are sorted by number of words and label, as in SentEval, because folds depend on the order. Empty texts stay.
    At a tie of two decimals the first of `l2` wins. Accuracies are not rounded on the way; SentEval's are.

    Shapes: vectors (n, D) or, of pairs, (n, 2D); both classifiers have a bias, which `l2` shrinks as well.

    Source: SentEval's `tools/validation.py` and `tools/classifier.py`, with SimCSE's settings of its test mode
    (methods/simcse.md §7).
    Doubtful: SentEval meant to sum a batch's cross-entropy, but the `size_average = False` it sets on the finished loss
    has no effect since torch 1.0, so that the papers' runs took the mean; to sum is, for Adam, to divide `l2` by 64.
    Whether a paper prints test or dev accuracy: MoCoSE's code returns the latter (methods/mocose.md M14), so both are
    told.

    Args:
        task: Name in the data catalogue.
        classifier: "senteval" for the papers' figures; "logistic" for the optimum, with two classes many times faster.
        l2: Weights λ tried.
        folds: Of every cross-validation, inner and outer.
        seed: Of folds, first weights and shuffles.
        device: Where the classifiers are trained; a GPU may round to a different last digit.
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
            raise CseError("transfer: device 'cuda' is not on this machine", "set device = 'cpu': it takes minutes")
        self.task = task
        self.classifier: Classifier = Logistic() if classifier == "logistic" else EarlyStopped(seed)
        self.l2 = tuple(l2)
        self.folds, self.seed, self.device = folds, seed, device

    @classmethod
    def parameters_for(cls, name: str) -> dict[str, Any] | None:
        """Return those of one of its data sets, which are always read whole."""
        task, slash, _ = name.partition("/")
        if task not in SEVEN:
            return None
        if slash:
            raise CseError(f"'{name}': {task} has its own protocol and takes no split", f"write {task}")
        return {"task": task}

    @torch.no_grad()
    def __call__(self, encode: Encode) -> dict[str, float]:
        """Return the accuracies on test and on held-out rows."""
        data = read_labelled(self.task)
        features = data.features(encode).to(self.device)
        found = Trial(data, features, self.classifier, self.l2, self.folds, self.seed).accuracies()
        return {"accuracy": found.test, "dev_accuracy": found.dev}

    def texts(self) -> Sequence[str]:
        """Return every distinct sentence of the data set, of all splits."""
        return list(dict.fromkeys(text for row in read_labelled(self.task).texts for text in row))

    def fingerprints(self) -> dict[str, str]:
        """Return "dataset/split" → content digest, of every split."""
        return {
            f"{self.task}/{split}": catalogue.fingerprint(self.task, split)
            for split in catalogue.entry(self.task).splits
        }
