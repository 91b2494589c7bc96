"""Any task of the mteb package, scored with our encoder."""

from __future__ import annotations

import importlib.util
import math
import random
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from registry import EVALUATORS
from registry.errors import CseError, MissingError, UnknownNameError
from registry.types import Encode, Evaluator

BATCH = 1024
"""Texts mteb hands over at a time; they are put together again before they are encoded."""


@EVALUATORS.register("mteb")
class Mteb(Evaluator):
    """Score one task of the Massive Text Embedding Benchmark, × 100.

    The mteb package loads the data, asks for vectors and computes the task's own main score: Spearman's ρ for STS,
    nDCG@10 for retrieval, accuracy for classification, V-measure for clustering. mteb prints it between 0 and 1; here
    × 100, as everything else. Where a task has several subsets, languages for example, it is the mean over them.

    No prompt or instruction is put before a sentence, whatever the task suggests. Results are neither read from mteb's
    cache nor written to it. mteb seeds every random number generator it finds; they are put back, so that training goes
    on as if it had not run.

    Shapes: mteb's batches of n texts → (n, D) vectors; cosine is the similarity.

    Source: Muennighoff et al. 2023; package mteb 2. `pip install -e ".[mteb]"`; data come from the Hugging Face hub.
    Doubtful: mteb has copies of its own of data sets that are also here, such as STS12 to STS16: a score need not be
    that of `sts` on the data set of like name. The fingerprint is the revision of mteb's copy.

    Args:
        task: Name of the task, such as "STSBenchmark" or "SciFact".
        split: Split of it; what a task has is in mteb's own list.
        languages: ISO 639-3 codes such as "eng": only the subsets in these. Empty means all.
    """

    metric: ClassVar[str] = "main_score"
    metrics: ClassVar[tuple[str, ...]] = ("main_score",)

    def __init__(self, task: str, split: str = "test", languages: list[str] | None = None) -> None:
        if importlib.util.find_spec("mteb") is None:
            raise MissingError(
                f"evaluator mteb, task '{task}': the package mteb is not installed", 'pip install "cse-registry[mteb]"'
            )
        self.task = task
        self.split = split
        self.languages = languages or []

    @classmethod
    def parameters_for(cls, name: str) -> dict[str, Any] | None:
        """Return those of "mteb/task"."""
        owner, _, task = name.partition("/")
        return {"task": task} if owner == "mteb" and task else None

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Return the task's main score; 0 where mteb's is undefined, as a correlation with a constant is."""
        with randomness_kept(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn's and mteb's own: nothing a reader could act on
            task = self._task()
            score = self._score(MtebModel(encode, self.task), task)
        return {"main_score": 0.0 if math.isnan(score) else 100 * score}

    def fingerprints(self) -> dict[str, str]:
        """Return "mteb task/split" → revision of the data on the hub; fetches them the first time, before training."""
        return {f"mteb {self.task}/{self.split}": self._revision}

    @cached_property
    def _revision(self) -> str:
        with randomness_kept(), self._reachable():
            task = self._task()
            for part in getattr(task, "tasks", [task]):  # a task may be made of others
                part.load_data()
                part.unload_data()
            return str(task.metadata.revision)

    def _task(self) -> Any:
        """Return the task, new, so that each call draws the same random numbers.

        Raises:
            CseError: No such task, split or language.
        """
        import mteb

        try:
            task = mteb.get_task(self.task, languages=self.languages or None, eval_splits=[self.split])
        except KeyError as error:
            message = str(error.args[0]).removeprefix("KeyError: ")
            raise UnknownNameError(f"mteb: {message}", "mteb.get_tasks() lists them") from error
        except ValueError as error:
            raise CseError(
                f"mteb task '{self.task}': {error}",
                "name languages that the task has, by their ISO 639-3 codes: eng, deu, zho",
            ) from error
        known = list(task.metadata.eval_splits)
        if self.split not in known:
            raise CseError(f"mteb task '{self.task}' has no split '{self.split}'", f"its splits: {', '.join(known)}")
        return task

    def _score(self, model: MtebModel, task: Any) -> float:
        import mteb

        settings = {"batch_size": BATCH, "show_progress_bar": False}
        with self._reachable():
            done = mteb.evaluate(
                model, task, co2_tracker=False, cache=None, encode_kwargs=settings, show_progress_bar=False
            )
        return float(done.task_results[0].get_score(splits=[self.split]))

    @contextmanager
    def _reachable(self) -> Iterator[None]:
        """Say what to do where data cannot be fetched."""
        try:
            yield
        except OSError as error:
            raise MissingError(
                f"mteb task '{self.task}': its data are not on this machine and cannot be fetched: {error}",
                f"on a machine with a network: python -c \"import mteb; mteb.get_task('{self.task}').load_data()\", "
                "then copy ~/.cache/huggingface, or what $HF_HOME names",
            ) from error


class MtebModel:
    """An encoder as `mteb.models.EncoderProtocol` wants it.

    Args:
        encode: Makes the vectors.
        task: Name of the task, for messages.
    """

    def __init__(self, encode: Encode, task: str) -> None:
        self._encode = encode
        self._task = task

    def encode(self, inputs: Iterable[Mapping[str, Any]], **about: Any) -> np.ndarray[Any, Any]:  # noqa: ARG002
        """Return (n, D) vectors of the texts of all batches, asked for at once; nothing stands before a text.

        Raises:
            CseError: The task has something else than texts.
        """
        texts: list[str] = []
        for batch in inputs:
            if "text" not in batch:
                found = ", ".join(batch)
                raise CseError(f"mteb task '{self._task}' asks for vectors of {found}", "take a task of texts")
            texts += batch["text"]
        return self._encode(texts).numpy()

    def similarity(self, first: Any, second: Any) -> Tensor:
        """Return (n, m) cosines of all pairs."""
        return _unit(first) @ _unit(second).T

    def similarity_pairwise(self, first: Any, second: Any) -> Tensor:
        """Return (n,) cosines of row i of one with row i of the other."""
        return (_unit(first) * _unit(second)).sum(dim=-1)

    @property
    def mteb_model_meta(self) -> Any:
        """What mteb calls the model; nothing is looked up or stored under the name."""
        from mteb.models import ModelMeta

        return ModelMeta.create_empty({"name": "cse/encoder", "revision": "none"})


def _unit(vectors: Any) -> Tensor:
    rows = torch.as_tensor(vectors)
    return F.normalize(rows if rows.ndim == 2 else rows.unsqueeze(0), dim=-1)


@contextmanager
def randomness_kept() -> Iterator[None]:
    """Give Python's, NumPy's and torch's random numbers back as they were: mteb seeds them all, even when imported."""
    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
