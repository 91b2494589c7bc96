"""A task of the mteb package whose few pairs are in memory, registered as if mteb had brought it."""

import sys

import pytest

NAME = "FewPairs"
PAIRS = [
    ("a red cat", "the red cat", 5.0),
    ("a small dog", "a big dog", 3.0),
    ("a woman sings", "the street", 1.0),
    ("a red cat", "two houses", 0.0),
]


def serve(monkeypatch, pairs=PAIRS) -> str:
    """Let `mteb.get_task` know the task, with these pairs, and return its name, or skip without mteb."""
    pytest.importorskip("mteb", reason="mteb is not installed (extra 'mteb')")
    from datasets import Dataset, DatasetDict
    from mteb.abstasks import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata

    class FewPairs(AbsTaskSTS):
        min_score, max_score = 0, 5
        metadata = TaskMetadata(
            type="STS",
            name=NAME,
            description="A few pairs.",
            dataset={"path": "tests/few", "revision": "0123abc"},
            main_score="cosine_spearman",
            eval_langs=["eng-Latn"],
        )

        def load_data(self, **_):
            columns = dict(zip(("sentence1", "sentence2", "score"), map(list, zip(*pairs, strict=True)), strict=True))
            self.dataset = DatasetDict({"test": Dataset.from_dict(columns)})
            self.data_loaded = True

    monkeypatch.setitem(sys.modules["mteb.get_tasks"]._TASKS_REGISTRY, NAME, FewPairs)
    return NAME


def serve_benchmark(monkeypatch) -> str:
    """Let `mteb.get_benchmark` know a benchmark with the task of `serve`, and return its name."""
    import mteb

    few = mteb.Benchmark(name="MTEB(few, v1)", tasks=mteb.get_tasks(tasks=[NAME]))
    plain = mteb.get_benchmark
    monkeypatch.setattr(mteb, "get_benchmark", lambda name: few if name == few.name else plain(name))
    return few.name
