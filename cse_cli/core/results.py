"""The result of a finished run, typed and versioned, and the numbers behind its scores, pair by pair.

The latter are kept so that two runs can be compared on the same pairs later.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from cse_cli.core.checksums import Checked
from cse_cli.core.identity import Identity, Plan
from registry.errors import CseError
from registry.papers import AVERAGE

if TYPE_CHECKING:
    import numpy as np

STS_TASKS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
"""The seven English sets of every table, in the papers' order: data sets, and what recipes call their evaluators."""

RANKED = "spearman"
"""Metric of the seven sets in every table."""

Scores = dict[str, dict[str, float]]
"""Evaluator → metric → value."""


class Versions(BaseModel):
    """What ran.

    Args:
        git: Commit that the recipe's repository was at; changes not committed are not seen.
        engine: Digest of the code of the trainer and the evaluators. It is shown if it differs, and is not part of the
            experiment's identity.
    """

    model_config = ConfigDict(frozen=True)

    cse: str
    python: str
    torch: str
    transformers: str
    git: str | None = None
    engine: str = ""


class PaperRow(BaseModel):
    """The printed row that a result is compared with."""

    model_config = ConfigDict(frozen=True)

    key: str
    table: str
    row: str


class Speed(BaseModel):
    """Where the time of a training went, and how much of the device it used.

    Args:
        seconds: "data", "forward", "backward", "optimiser", "evaluation" or "other" → wall time; "other" is the loop
            around steps: records, health, checkpoints.
        tokens_per_second: Tokens read by encoders over all views and processes, padding not counted, a second of steps.
        padding: Share of padding in batches as they come, whether it is computed or not.
        model_flops: Floating-point operations of the model, on all processes; `cse_cli.training.timing.model_flops`.
        model_flop_utilisation: The same a second of steps, as a share of what the device could do; None where that is
            not known.
        peak_memory: Bytes of the GPU, or of this process where there is none, at the highest point.
    """

    model_config = ConfigDict(frozen=True, protected_namespaces=())

    seconds: dict[str, float]
    tokens_per_second: float | None = None
    padding: float | None = None
    model_flops: float = 0.0
    model_flop_utilisation: float | None = None
    peak_memory: int

    @property
    def shares(self) -> dict[str, float]:
        """Each part's share of the time."""
        total = sum(self.seconds.values())
        return {part: seconds / total for part, seconds in self.seconds.items()} if total else {}


class Result(Checked):
    """The outcome of one run of one recipe with one seed.

    Args:
        recipe: Name or path the recipe was asked for by.
        source: Absolute path of the recipe's file.
        identity: Identity of the experiment.
        plan: Seeds that were planned with this one, or None if it was started without a plan.
        started: Time at which the run was created.
        scores: Evaluator → metric → value, of the selected state.
        untrained: The same before the first step, for the evaluators scored then.
        curve: Step → value of the selecting metric.
        selected_step: Step whose state was kept.
        select: "evaluator.metric" that chose it; None where nothing was chosen.
        test_selected: Whether a test split chose the state: such numbers are optimistic.
        fingerprints: "dataset/split" → content digest.
        commits: Repository of the hub, "model owner/name" or "dataset owner/name" → the commit that was used.
        measures: Measures of the method itself, such as "queue/traceable_distance".
        last_state: Digest of all weights after the last step: equal exactly when every bit is.
        seconds: Wall time of training, evaluation during it included.
        sentences_per_second: Training throughput without evaluation.
        speed: Where the time went; None without training, and in results written before it was measured.
    """

    model_config = ConfigDict(frozen=True)

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
    curve: dict[int, float] = Field(default_factory=dict)
    selected_step: int | None = None
    select: str | None = None
    test_selected: bool = False
    steps: int
    last_state: str | None = None
    fingerprints: dict[str, str] = Field(default_factory=dict)
    commits: dict[str, str] = Field(default_factory=dict)
    measures: dict[str, float] = Field(default_factory=dict)
    versions: Versions
    device: str
    precision: str
    seconds: float
    sentences_per_second: float | None = None
    speed: Speed | None = None
    run_id: str | None = None
    finished: datetime

    @property
    def experiment(self) -> str:
        """ID of the experiment: the key of everything that groups runs."""
        return self.identity.experiment

    @property
    def recipe_hash(self) -> str:
        """`Recipe.hash()` of the resolved recipe."""
        return self.identity.settings

    def tests(self) -> tuple[list[str], str]:
        """Return the evaluators of test data, and the metric that they are read by: the one that selects states.

        These are all that report it but the one that selects, and those whose name ends with "dev".
        """
        selecting, _, metric = (self.select or "").rpartition(".")
        metric = metric or next((name for values in self.scores.values() for name in values), "")
        names = [name for name in self.scores if name != selecting and not name.endswith("dev")]
        return [name for name in names if metric in self.scores[name]], metric

    def average(self, *, untrained: bool = False) -> float | None:
        """Return the mean of the test scores, each rounded as papers print it; None where one is missing.

        It is over SimCSE's seven sets where all are scored, else over all `tests`.

        Args:
            untrained: Before training, over the same evaluators.
        """
        tests, metric = self.tests()
        wanted = list(STS_TASKS) if set(STS_TASKS) <= set(tests) else tests
        return paper_average(self.untrained if untrained else self.scores, wanted, metric) if wanted else None

    @property
    def gain(self) -> float | None:
        """How much more the average is than before training, where both are known."""
        after, before = self.average(), self.average(untrained=True)
        return None if after is None or before is None else after - before


def paper_average(scores: Scores, evaluators: Sequence[str], metric: str) -> float | None:
    """Return the papers' average: of scores rounded to two decimals; None where one is missing."""
    values = [scores.get(name, {}).get(metric) for name in evaluators or STS_TASKS]
    known = [round(value, 2) for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None


def metric_value(scores: Scores, metric: str) -> float | None:
    """Return `evaluator.metric` of a run's scores, or as `avg` the papers' average of the seven English sets."""
    if metric == AVERAGE:
        return paper_average(scores, STS_TASKS, RANKED)
    evaluator, _, name = metric.rpartition(".")
    return scores.get(evaluator, {}).get(name)


def main_metric(result: Result) -> str | None:
    """Return what a run is judged by; None where it scored nothing.

    That is the papers' average where all seven sets are scored; else the first test score, by the metric that selects
    states; else the score that selects them.
    """
    if metric_value(result.scores, AVERAGE) is not None:
        return AVERAGE
    tests, metric = result.tests()
    scored = [name for name, values in result.scores.items() if metric in values]
    if not scored:
        return None
    return f"{tests[0]}.{metric}" if tests else result.select or f"{scored[0]}.{metric}"


@dataclass(frozen=True)
class Headline:
    """One score of a run, beside that of its encoder before training.

    Args:
        metric: `avg` or `evaluator.metric`.
        score: Of the selected state.
        untrained: Before the first step; None where it was not scored then.
    """

    metric: str
    score: float
    untrained: float | None

    @property
    def name(self) -> str:
        """The metric as a line of text calls it: `avg`, or its evaluator."""
        return self.metric.rpartition(".")[0] or self.metric

    @property
    def gain(self) -> float | None:
        """What training changed."""
        return None if self.untrained is None else self.score - self.untrained


def headlines(result: Result) -> Iterator[Headline]:
    """Yield what a run is judged by, and where that has no score before training also the score that selects."""
    main = main_metric(result)
    for metric in dict.fromkeys((main, result.select)):
        score = None if metric is None else metric_value(result.scores, metric)
        if metric is not None and score is not None:
            before = metric_value(result.untrained, metric)
            if before is None and metric == result.select:
                before = result.curve.get(0)
            yield (found := Headline(metric, score, before))
            if found.untrained is not None:
                return


SERIES_FOLDER = "series"
"""Artifact folder: one `<evaluator>.npz` each, an array a name."""

Series = Mapping[str, Sequence[float]]


def write_series(series: Mapping[str, Series], folder: Path) -> None:
    """Write the series of each evaluator that has any."""
    import numpy as np  # commands that only list runs do without

    for evaluator, arrays in series.items():
        if arrays:
            folder.mkdir(parents=True, exist_ok=True)
            columns = {name: np.asarray(values, dtype=np.float64) for name, values in arrays.items()}
            np.savez_compressed(folder / f"{evaluator}.npz", allow_pickle=False, **columns)


def read_series(folder: Path) -> dict[str, dict[str, np.ndarray]]:
    """Return evaluator → name → numbers; nothing where there is no such folder.

    Raises:
        CseError: A file is damaged: numpy's own checksums say so.
    """
    import numpy as np

    found: dict[str, dict[str, np.ndarray]] = {}
    for path in sorted(folder.glob("*.npz")):
        try:
            with np.load(path) as arrays:
                found[path.stem] = dict(arrays)
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
            raise CseError(
                f"{path} is damaged: {error}", "move it away: the run's scores are kept without it"
            ) from error
    return found
