"""Any task of the mteb package, scored with the trained encoder."""

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
from registry.errors import CseError, MissingError, UnknownNameError, suggestion
from registry.types import Encode, Evaluator

BATCH = 1024
"""Batch size of mteb. The batches are joined before encoding."""


@EVALUATORS.register("mteb")
class Mteb(Evaluator):
    """Score one task of the Massive Text Embedding Benchmark, × 100.

    The mteb package loads the data, requests embeddings and computes the main score of the task: Spearman's ρ for STS,
    nDCG@10 for retrieval, accuracy for classification, V-measure for clustering. mteb reports it between 0 and 1, and
    it is multiplied by 100 here. If a task has several subsets, for example languages, it is the mean over them.

    No prompt or instruction is added to a sentence, even if the task suggests one. mteb's cache is neither read nor
    written. mteb sets the seed of every random number generator, and their states are restored afterwards, so training
    is not affected.

    Shapes: mteb's batches of n texts → (n, D) embeddings, compared by cosine similarity.

    Source: Muennighoff et al. 2023; package mteb 2, installed by `pip install -e ".[mteb]"`. The data come from the
    Hugging Face Hub.
    Doubtful: mteb has its own copies of data sets that are also in the catalog, such as STS12 to STS16, so a score can
    differ from that of `sts`. The fingerprint is the revision of mteb's copy.

    Args:
        task: Name of the task, such as "STSBenchmark" or "SciFact".
        split: Split of the task. mteb lists the splits of each task.
        languages: ISO 639-3 codes of the languages, such as "eng". Default: all languages.

    Example:
        [evaluators.scifact]
        name = "mteb"
        task = "SciFact"
    """

    metric: ClassVar[str] = "main_score"
    metrics: ClassVar[tuple[str, ...]] = ("main_score",)

    def __init__(self, task: str, split: str = "test", languages: list[str] | None = None) -> None:
        if importlib.util.find_spec("mteb") is None:
            raise MissingError(
                f"evaluator mteb, task '{task}': the package mteb is not installed",
                'run `pip install "cse-registry[mteb]"`',
                code="evaluators.no_package",
            )
        self.task = task
        self.split = split
        self.languages = languages or []

    @classmethod
    def parameters_for(cls, name: str) -> dict[str, Any] | None:
        """Return the parameters of "mteb/task"."""
        owner, _, task = name.partition("/")
        return {"task": task} if owner == "mteb" and task else None

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Return the main score of the task. An undefined score, such as a correlation with a constant, counts as 0."""
        with preserve_random_state(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # from scikit-learn and mteb, without use for the user
            task = self._task()
            score = self._score(MtebModel(encode, self.task), task)
        return {"main_score": 0.0 if math.isnan(score) else 100 * score}

    def fingerprints(self) -> dict[str, str]:
        """Return "mteb task/split" → revision of the data on the Hub. The first call downloads them before training."""
        return {f"mteb {self.task}/{self.split}": self._revision}

    @cached_property
    def _revision(self) -> str:
        with preserve_random_state(), self._reachable():
            task = self._task()
            for part in getattr(task, "tasks", [task]):  # a task can consist of others
                part.load_data()
                part.unload_data()
            return str(task.metadata.revision)

    def _task(self) -> Any:
        """Return a new task object, so that each call draws the same random numbers.

        Raises:
            CseError: If the task, split or language does not exist.
        """
        import mteb

        try:
            task = mteb.get_task(self.task, languages=self.languages or None, eval_splits=[self.split])
        except KeyError as error:
            message = str(error.args[0]).removeprefix("KeyError: ")
            raise UnknownNameError(
                f"mteb: {message}",
                "run `python -c 'import mteb; print(mteb.get_tasks())'` to see all tasks",
                code="evaluators.unknown_task",
            ) from error
        except ValueError as error:
            raise CseError(
                f"mteb task '{self.task}': {error}",
                "use ISO 639-3 codes of the task's languages, such as eng, deu or zho",
                code="evaluators.unknown_language",
            ) from error
        known = list(task.metadata.eval_splits)
        if self.split not in known:
            raise CseError(
                f"mteb task '{self.task}' has no split '{self.split}'.{suggestion(self.split, known)}",
                f"use one of {', '.join(known[:5])}",
                code="data.unknown_split",
            )
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
        """Report missing data with the command that downloads them."""
        try:
            yield
        except OSError as error:
            raise MissingError(
                f"mteb task '{self.task}': its data are not on this machine, and the download failed: {error}",
                f"run `python -c \"import mteb; mteb.get_task('{self.task}').load_data()\"` on a machine with a "
                "network, then copy ~/.cache/huggingface or $HF_HOME to this machine",
                code="evaluators.missing_data",
            ) from error


class MtebModel:
    """An encoder with the interface `mteb.models.EncoderProtocol`.

    Args:
        encode: Encoder.
        task: Name of the task, for messages.
    """

    def __init__(self, encode: Encode, task: str) -> None:
        self._encode = encode
        self._task = task

    def encode(self, inputs: Iterable[Mapping[str, Any]], **about: Any) -> np.ndarray[Any, Any]:  # noqa: ARG002
        """Return (n, D) embeddings of the texts of all batches, without prompts.

        Raises:
            CseError: If the task contains other data than texts.
        """
        texts: list[str] = []
        for batch in inputs:
            if "text" not in batch:
                found = ", ".join(batch)
                raise CseError(
                    f"mteb task '{self._task}' requires embeddings of {found}, not of texts",
                    "set `task` to a task with texts",
                    code="evaluators.not_texts",
                )
            texts += batch["text"]
        return self._encode(texts).numpy()

    def similarity(self, first: Any, second: Any) -> Tensor:
        """Return (n, m) cosine similarities of all pairs."""
        return _unit(first) @ _unit(second).T

    def similarity_pairwise(self, first: Any, second: Any) -> Tensor:
        """Return (n,) cosine similarities of corresponding rows."""
        return (_unit(first) * _unit(second)).sum(dim=-1)

    @property
    def mteb_model_meta(self) -> Any:
        """Metadata that mteb requires. They are not stored."""
        from mteb.models import ModelMeta

        return ModelMeta.create_empty({"name": "cse/encoder", "revision": "none"})


def _unit(vectors: Any) -> Tensor:
    rows = torch.as_tensor(vectors)
    return F.normalize(rows if rows.ndim == 2 else rows.unsqueeze(0), dim=-1)


@contextmanager
def preserve_random_state() -> Iterator[None]:
    """Restore the random states of Python, NumPy and torch, because mteb sets all seeds, even on import."""
    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
