"""Any task or benchmark of the mteb package, scored with the trained encoder."""

from __future__ import annotations

import copy
import importlib.util
import math
import random
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from registry import EVALUATORS
from registry.errors import CseError, MissingError, UnknownNameError, install_command, suggestion
from registry.prompts import Side
from registry.types import Encode, Evaluator, Package

BATCH = 1024
"""Batch size of mteb. The batches are joined before encoding."""


@EVALUATORS.register("mteb")
class Mteb(Evaluator):
    """Score one task of the Massive Text Embedding Benchmark, × 100. Requires the package mteb.

    The mteb package loads the data, requests embeddings and computes the main score of the task: Spearman's ρ for STS,
    nDCG@10 for retrieval, accuracy for classification, V-measure for clustering. mteb reports it between 0 and 1, and
    it is multiplied by 100 here. If a task has several subsets, for example languages, it is the mean over them.

    The prompts are those of the encoder, under mteb's names: those of the task, of its type, and of queries and
    documents, for example "STS12", "Retrieval-query", "Clustering" and "query". The instruction that a task suggests is
    not used. mteb's cache of results is not read. `cse evaluate` writes the results in its format. mteb sets the seed
    of every random number generator, and their states are restored afterwards, so training is not affected.

    Shapes: mteb's batches of n texts → (n, D) embeddings, compared by cosine similarity.

    Source: Muennighoff et al. 2023; package mteb 2, installed by `pip install -e ".[mteb]"`. The data come from the
    Hugging Face Hub.
    Doubtful: mteb has its own copies of data sets that are also in the catalog, such as STS12 to STS16, so a score can
    differ from that of `sts`. The fingerprint is the revision of mteb's copy.

    Args:
        task: Name of the task, such as "STSBenchmark" or "SciFact".
        split: Split of the task. mteb lists the splits of each task.
        languages: ISO 639-3 codes of the languages, such as "eng". Default: all languages.
        benchmark: Name of a benchmark that contains the task, such as "MTEB(eng, v2)", whose splits and languages are
            used instead of `split` and `languages`. Default: none.

    Example:
        [evaluators.scifact]
        name = "mteb"
        task = "SciFact"
    """

    metric: ClassVar[str] = "main_score"
    metrics: ClassVar[tuple[str, ...]] = ("main_score",)

    def __init__(
        self,
        task: Annotated[str, Package("mteb")],
        split: str = "test",
        languages: list[str] | None = None,
        benchmark: str | None = None,
    ) -> None:
        if importlib.util.find_spec("mteb") is None:
            raise MissingError(
                f"evaluator mteb, task '{task}': the package mteb is not installed",
                f"run `{install_command('mteb')}`",
                code="evaluators.no_package",
            )
        self.task = task
        self.split = split
        self.languages = languages or []
        self.benchmark = benchmark
        self._result: Any = None

    @classmethod
    def tasks_of(cls, suite: str) -> Mapping[str, dict[str, Any]]:
        """Return the tasks of "mteb/benchmark", for example of "mteb/MTEB(eng, v2)"."""
        owner, _, name = suite.partition("/")
        if owner != "mteb" or importlib.util.find_spec("mteb") is None:
            return {}
        with preserve_random_state():
            import mteb

            try:
                tasks = list(mteb.get_benchmark(name).tasks)
            except KeyError:
                return {}
        shared = {"benchmark": name}
        return {
            f"mteb/{task.metadata.name}": {"task": task.metadata.name, "split": task.eval_splits[0], **shared}
            for task in tasks
        }

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
        """Return a new task object, so that each call draws the same random numbers."""
        import mteb

        if self.benchmark is not None:
            return self._task_of_benchmark()
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

    def _task_of_benchmark(self) -> Any:
        import mteb

        try:
            tasks = {task.metadata.name: task for task in mteb.get_benchmark(self.benchmark).tasks}
            return copy.deepcopy(tasks[self.task])
        except KeyError as error:
            raise UnknownNameError(
                f"mteb benchmark '{self.benchmark}' with the task '{self.task}' does not exist",
                "run `python -c 'import mteb; print(mteb.get_benchmarks())'` to see all benchmarks",
                code="evaluators.unknown_task",
            ) from error

    def _score(self, model: MtebModel, task: Any) -> float:
        import mteb

        settings = {"batch_size": BATCH, "show_progress_bar": False}
        with self._reachable():
            done = mteb.evaluate(
                model, task, co2_tracker=False, cache=None, encode_kwargs=settings, show_progress_bar=False
            )
        self._result = done.task_results[0]
        return float(self._result.get_score(splits=task.eval_splits))

    def save(self, folder: Path, about: Mapping[str, Any]) -> bool:
        """Write the result to a `mteb.ResultCache`: results/MODEL/REVISION/TASK.json. Settings are an experiment."""
        from mteb.cache import ResultCache
        from mteb.models import ModelMeta

        model = {"name": about["name"], "revision": about["revision"], "experiment_kwargs": about["settings"] or None}
        ResultCache(folder).save_to_cache(self._result, ModelMeta.create_empty(model))
        return True

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
    """An encoder with the interface `mteb.models.EncoderProtocol`."""

    def __init__(self, encode: Encode, task: str) -> None:
        self._encode = encode
        self._task = task

    def encode(
        self,
        inputs: Iterable[Mapping[str, Any]],
        *,
        task_metadata: Any = None,
        prompt_type: Any = None,
        **about: Any,  # noqa: ARG002
    ) -> np.ndarray[Any, Any]:
        """Return (n, D) embeddings of the texts of all batches, with the prompts of the encoder for the task."""
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
        side: Side | None = None if prompt_type is None else prompt_type.value
        names = [] if task_metadata is None else [task_metadata.name, task_metadata.type]
        ordered = [each for name in names for each in ([f"{name}-{side}"] if side else []) + [name]]
        return self._encode(texts, side, ordered).numpy()

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
