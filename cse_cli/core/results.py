"""Result of a finished run, and the series behind its scores, on which `cse compare` compares two runs pair by pair."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, Field

from cse_cli.core.identity import SHORT, Identity, Plan
from registry.errors import CseError

if TYPE_CHECKING:
    import numpy as np

STS_TASKS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
"""The seven English sets in the papers' order: names of the data sets and of their evaluators in recipes."""

RANKED = "spearman"
"""Metric of the seven sets in every table."""

MAIN_SCORE = "score"
"""Metric of a task in results made elsewhere. Higher is better."""

Scores = dict[str, dict[str, float]]
"""Evaluator → metric → value."""

State = Literal["scores", "untrained", "word_overlap"]
"""Whose scores of a result: of the selected state, of the encoder before the first step, or of word overlap."""

WORD_OVERLAP = "word overlap"
"""Label of the last line of tables of STS scores."""


class Versions(BaseModel, frozen=True):
    """Versions of the software of a run.

    `git` is the commit of the recipe's repository, without uncommitted changes, `engine` the version of the code of the
    trainer and the evaluators, which is not part of the experiment's identity.
    """

    cse: str
    python: str
    torch: str
    transformers: str
    git: str | None = None
    engine: str = ""


class PaperRow(BaseModel, frozen=True):
    """Reported row that a result is compared with."""

    key: str
    table: str
    row: str


class Speed(BaseModel, frozen=True):
    """Wall time of the parts of a training, its throughput and its memory.

    Args:
        seconds: "data", "forward", "backward", "optimizer", "evaluation" or "other" → wall time. "other" is the loop
            around the steps: records, health, checkpoints.
        tokens_per_second: Tokens per second of steps that encoders read over all views and processes, without padding.
        padding: Share of padding in the batches.
        peak_memory: Largest memory in bytes, of the GPU if there is one, else of this process.
    """

    seconds: dict[str, float]
    tokens_per_second: float | None = None
    padding: float | None = None
    peak_memory: int

    @property
    def shares(self) -> dict[str, float]:
        """Each part's share of the time."""
        total = sum(self.seconds.values())
        return {part: seconds / total for part, seconds in self.seconds.items()} if total else {}


class EarlyStop(BaseModel, frozen=True):
    """End of a training before its last step, by `train.patience`.

    There is no `best_step` if every score was NaN. `evaluations` counts those without a better score.
    """

    step: int
    best_step: int | None
    evaluations: int
    metric: str

    @property
    def text(self) -> str:
        """Step and reason in one phrase."""
        since = "" if self.best_step is None else f" since step {self.best_step}"
        times = "1 evaluation" if self.evaluations == 1 else f"{self.evaluations} evaluations"
        return f"stopped early at step {self.step}: no better {self.metric} in {times}{since}"


ASKED = {
    "recipe", "source", "identity", "plan", "started", "seed", "paper", "test_selected", "commits", "run_id"
}  # fmt: skip
"""Fields of a result that `run.toml` and the recorded plans have. Only records of version 0.1 repeat them."""


class Result(BaseModel, frozen=True):
    """The outcome of one run of one recipe with one seed.

    Args:
        recipe: Name or path of the recipe on the command line, whose file is `source`.
        plan: Seeds that were planned with this one, or None if it was started without a plan.
        scores: Scores of the selected state. `untrained` has those before the first step, if they were measured.
        word_overlap: Values of `Evaluator.word_overlap`, the baseline without an encoder.
        curve: Step → value of the selecting metric.
        early_stop: End before the last of `steps`, or None if all steps were trained.
        metric_for_best_model: "evaluator.metric" that selected the state. None if there was no selection.
        test_selected: Whether a test split selected the state. Such scores are optimistic.
        fingerprints: "dataset/split" → digest of its content.
        scored_on: Evaluator → the `fingerprints` of the data that it scored. Empty in records of earlier versions.
        commits: Repository of the Hub, "model owner/name" or "dataset owner/name" → commit.
        measures: Measures of the method, such as "queue/traceable_distance".
        last_state: Digest of all weights after the last step. Two digests are equal if every bit is.
        seconds: Wall time of training, including evaluation. `sentences_per_second` excludes it.
    """

    schema_version: Literal[1] = 1
    recipe: str
    source: str = ""
    title: str
    identity: Identity
    plan: Plan | None = None
    started: datetime
    language: str
    seed: int
    paper: PaperRow | None = None
    model: str
    scores: Scores
    untrained: Scores = Field(default_factory=dict)
    word_overlap: Scores = Field(default_factory=dict)
    curve: dict[int, float] = Field(default_factory=dict)
    selected_step: int | None = None
    metric_for_best_model: str | None = None
    test_selected: bool = False
    steps: int
    early_stop: EarlyStop | None = None
    last_state: str | None = None
    fingerprints: dict[str, str] = Field(default_factory=dict)
    scored_on: dict[str, dict[str, str]] = Field(default_factory=dict)
    commits: dict[str, str] = Field(default_factory=dict)
    measures: dict[str, float] = Field(default_factory=dict)
    versions: Versions
    device: str
    processor: str = ""
    precision: str
    seconds: float
    sentences_per_second: float | None = None
    speed: Speed | None = None
    run_id: str | None = None
    finished: datetime

    def to_json(self) -> str:
        """Return the contents of `result.json`: what only the finished run knows."""
        return json.dumps(self.model_dump(mode="json", exclude=ASKED), indent=1, ensure_ascii=False, allow_nan=False)

    @property
    def is_portable(self) -> bool:
        """Whether the run computed with `train.portable`."""
        return self.processor.endswith("portable")

    @property
    def experiment(self) -> str:
        """ID of the experiment, by which runs are grouped."""
        return self.identity.experiment

    @property
    def recipe_hash(self) -> str:
        """`Recipe.hash()` of the resolved recipe."""
        return self.identity.settings

    def data_of(self, evaluator: str) -> tuple[str, ...]:
        """Return the digests of the data that an evaluator scored, sorted. Empty if they are not recorded."""
        return tuple(sorted(self.scored_on.get(evaluator, {}).values()))

    def data_text(self, evaluator: str) -> str:
        """Return the data that an evaluator scored, with their digests, such as "stsb/test (3ef20217)"."""
        data = sorted(self.scored_on[evaluator].items())
        return ", ".join(f"{name} ({digest.removeprefix('rows:')[:SHORT]})" for name, digest in data)

    def tests(self) -> tuple[list[str], str]:
        """Return the evaluators of test data and the metric that selects states, by which they are compared.

        Without the selecting evaluator and those whose name ends with "dev".
        """
        selecting, _, metric = (self.metric_for_best_model or "").rpartition(".")
        metric = metric or next((name for values in self.scores.values() for name in values), "")
        names = [name for name in self.scores if name != selecting and not name.endswith("dev")]
        return [name for name in names if metric in self.scores[name]], metric

    def __repr__(self) -> str:
        """Return recipe, seed, average of the test scores, score of the selecting metric, and run ID."""
        shown: dict[str, object] = {"recipe": self.recipe, "seed": self.seed}
        if (average := self.average()) is not None:
            shown["average"] = round(average, 2)
        name, _, metric = (self.metric_for_best_model or "").rpartition(".")
        if metric in self.scores.get(name, {}):
            shown[f"{name}_{metric}"] = round(self.scores[name][metric], 2)
        shown["run_id"] = self.run_id
        return f"Result({', '.join(f'{key}={value!r}' for key, value in shown.items())})"

    __str__ = __repr__

    def average(self, *, untrained: bool = False) -> float | None:
        """Return the mean of the test scores, each rounded to two decimals, or None if one is missing.

        The mean is over SimCSE's seven sets if all are scored, else over all `tests`.
        """
        tests, metric = self.tests()
        wanted = list(STS_TASKS) if set(STS_TASKS) <= set(tests) else tests
        return paper_average(self.untrained if untrained else self.scores, wanted, metric) if wanted else None

    @property
    def gain(self) -> float | None:
        """Difference of the average from that before training, or None if one is missing."""
        after, before = self.average(), self.average(untrained=True)
        return None if after is None or before is None else after - before


def paper_average(scores: Scores, evaluators: Sequence[str], metric: str) -> float | None:
    """Return the papers' average of scores rounded to two decimals, or None if a score is missing."""
    values = [scores.get(name, {}).get(metric) for name in evaluators or STS_TASKS]
    known = [round(value, 2) for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None


SERIES_FOLDER = "series"
"""Directory with one `<evaluator>.npz` for each evaluator, one array for each name."""

Series = Mapping[str, Sequence[float]]


def write_series(series: Mapping[str, Series], folder: Path) -> None:
    """Write the series of each evaluator that has any."""
    import numpy as np  # not needed by commands that only list runs

    for evaluator, arrays in series.items():
        if arrays:
            folder.mkdir(parents=True, exist_ok=True)
            columns = {name: np.asarray(values, dtype=np.float64) for name, values in arrays.items()}
            np.savez_compressed(folder / f"{evaluator}.npz", **columns)  # type: ignore[arg-type]  # numpy 2.0 lacks `allow_pickle`


def read_series(folder: Path) -> dict[str, dict[str, np.ndarray]]:
    """Return evaluator → name → numbers. Empty if the directory does not exist."""
    import numpy as np

    found: dict[str, dict[str, np.ndarray]] = {}
    for path in sorted(folder.glob("*.npz")):
        try:
            with np.load(path) as arrays:
                found[path.stem] = dict(arrays)
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
            raise CseError(
                f"file '{path}' is damaged: {error}",
                "move it to another directory: `cse compare` then uses the scores of the run without its pairs",
                code="runs.damaged_series",
            ) from error
    return found
