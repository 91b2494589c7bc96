"""Results made elsewhere: CSV files, folders of mteb results, CSV files of sentence-transformers' evaluators.

Each seed of a method becomes a `Result` without a run, so that tables and tests treat it as a run of `cse`.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from glob import escape, glob
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from cse_cli.analysis.experiments import Experiment
from cse_cli.core.formatting import grouped
from cse_cli.core.identity import Identity
from cse_cli.core.results import MAIN_SCORE, STS_TASKS, Result, Versions
from cse_cli.runs.scores import metric_value
from registry.errors import CseError, suggestion
from registry.papers import AVERAGE

COLUMNS = ("method", "seed", "task", "score")
OPTIONAL = ("metric", "data", "model")
"""Columns of a CSV file that it needs, and that it may have: `data` is the version of the task's data."""
MEAN = "mean"
"""Mean of the tasks that all methods have."""
SEEDS = "use one folder per seed with the seed in its name: simcse/seed0, simcse/seed1, …"
EVALUATORS: Sequence[tuple[str, str]] = (
    (r"similarity_evaluation_?(.*)_results\.csv", r"\w+_spearman"),
    (r"(?:Information-Retrieval|NanoBEIR)_evaluation_?(.*)_results\.csv", r"\w+-NDCG@\d+"),
    (r"binary_classification_evaluation_?(.*)_results\.csv", r"\w+_ap"),
    (r"triplet_evaluation_?(.*)_results\.csv", r"accuracy_\w+"),
    (r"accuracy_evaluation_?(.*)_results\.csv", r"accuracy"),
    (r"paraphrase_mining_evaluation_?(.*)_results\.csv", r"average_precision"),
    (r"RerankingEvaluator_?(.*)_results_@\d+\.csv", r"NDCG@\d+"),
)
"""File of an evaluator of sentence-transformers 6 → its primary metric, the first such column. Errors (MSE) and the
mean of two translation directions cannot be compared, so they are omitted."""


class Line(NamedTuple):
    """One score.

    Args:
        task: Name of the task, or of the task and a split that is not "test".
        score: Value on the scale from 0 to 100 in files of tools, as given in other files.
        place: File and line, for errors.
        data: Data set, split and subset → their version. Empty if unknown.
    """

    method: str
    seed: int
    task: str
    score: float
    place: str
    metric: str = MAIN_SCORE
    data: Mapping[str, str] = {}
    model: str = ""
    software: str = ""


def is_elsewhere(argument: str) -> bool:
    """Return whether an argument names results made elsewhere: a CSV file, a folder, or `NAME=FOLDERS`."""
    return argument.endswith(".csv") or "=" in argument or Path(argument).is_dir()


def read_elsewhere(argument: str) -> list[Experiment]:
    """Return the methods of results that another tool made, in the order of the file.

    It is a CSV file with the columns `COLUMNS`, a folder with one folder per seed, or `NAME=FOLDERS`, a name and a
    pattern of such folders, as in `simcse=results/*simcse-seed*`. These contain mteb's results, or the CSV files of
    sentence-transformers' evaluators, whose last line counts.
    """
    path = Path(argument)
    lines = list(_csv_lines(path) if argument.endswith(".csv") else _folder_lines(argument))
    place = path.name if argument.endswith(".csv") else Path(argument.rpartition("=")[2]).absolute().parent.name
    methods = grouped(lines, lambda line: line.method)
    return [_experiment(method, of_method, argument, place) for method, of_method in methods.items()]


def _csv_lines(path: Path) -> Iterator[Line]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise CseError(f"cannot read '{path}': {reason}", "check the path", code="elsewhere.unreadable") from error
    rows = csv.reader(text.split("\n"))
    heading = [name.strip() for name in next(rows, [])]
    if missing := [name for name in COLUMNS if name not in heading]:
        near = suggestion(missing[0], heading)
        raise CseError(
            f"{path}, line 1: there is no column '{missing[0]}'.{near}",
            f"use the columns {', '.join(COLUMNS)}, and if you like {', '.join(OPTIONAL)}",
            code="elsewhere.columns",
        )
    for row in rows:
        if row:
            place = f"{path}, line {rows.line_num}"
            cells = dict(zip(heading, (cell.strip() for cell in row), strict=False))
            if len(row) != len(heading) or not cells["method"] or not cells["task"]:
                problem = "is incomplete" if len(row) <= len(heading) else f"has more than {len(heading)} cells"
                raise CseError(
                    f"{place} {problem}", f"give {', '.join(COLUMNS)} on each line", code="elsewhere.incomplete"
                )
            data, task = cells.get("data", ""), cells["task"]
            yield Line(
                cells["method"],
                int(_number(cells["seed"], "seed", place, whole=True)),
                task,
                _number(cells["score"], "score", place),
                place,
                cells.get("metric") or MAIN_SCORE,
                {task: data} if data else {},
                cells.get("model", ""),
            )


def _number(text: Any, name: str, place: str, *, whole: bool = False) -> float:
    try:
        number = float(text)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or (whole and (number < 0 or number != int(number))):
        kind = "a whole number" if whole else "a number"
        raise CseError(
            f"{place}: the {name} '{text}' is not {kind}",
            "correct it, or remove the line if this score does not exist",
            code="elsewhere.not_a_number",
        )
    return number


def _folder_lines(argument: str) -> Iterator[Line]:
    name, _, pattern = argument.rpartition("=")
    name, pattern = (name, pattern) if name else (Path(argument).resolve().name, f"{escape(argument)}/*")
    found = map(Path, glob(pattern))  # noqa: PTH207 - Path.glob takes no absolute pattern, and fails for some
    folders = sorted(path for path in found if path.is_dir())
    owner: dict[int, Path] = {}
    for folder in folders:
        if lines := [*_mteb_lines(folder), *_evaluator_lines(folder)]:
            digits = re.findall(r"seed\D?(\d+)", folder.name) or re.findall(r"\d+", folder.name)
            if not digits:
                raise CseError(f"the name of the folder '{folder}' has no seed", SEEDS, code="elsewhere.no_seed")
            other = owner.setdefault(seed := int(digits[-1]), folder)
            if other != folder:
                raise CseError(f"'{other}' and '{folder}' both have seed {seed}", SEEDS, code="elsewhere.same_seed")
            yield from (line._replace(method=name, seed=seed) for line in lines)
    if not owner:
        where = f"the folders that match '{pattern}'" if folders else f"'{argument}': there are no folders"
        raise CseError(f"no results of mteb or sentence-transformers in {where}", SEEDS, code="elsewhere.no_results")


def _mteb_lines(folder: Path) -> Iterator[Line]:
    """Yield mteb's main scores: the mean over the subsets of each split, as mteb reports it."""
    for file in sorted(folder.rglob("*.json")):
        with file.open("rb") as opened:
            if b'"task_name"' not in opened.read(1000):  # a configuration or a tokenizer
                continue
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
            task, revision = document["task_name"], document["dataset_revision"]
            for split, subsets in document["scores"].items():
                scores = [_number(one["main_score"], "main_score", str(file)) for one in subsets]
                data = {f"{task}/{split}/{one['hf_subset']}": f"{revision} {one['hf_subset']}" for one in subsets}
                software = f"mteb {document['mteb_version']}"
                name = task if split == "test" else f"{task} ({split})"
                yield Line("", 0, name, 100 * fmean(scores), str(file), data=data, software=software)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CseError(
                f"'{file}' is not a result of mteb 1.12 or later: {type(error).__name__} {error}",
                "run the task again, or remove the file",
                code="elsewhere.damaged",
            ) from error


def _evaluator_lines(folder: Path) -> Iterator[Line]:
    """Yield the primary metric in the last line of each file that an evaluator of sentence-transformers wrote."""
    for file in sorted(folder.rglob("*.csv")):
        for pattern, metric in EVALUATORS:
            if match := re.fullmatch(pattern, file.name):
                text = file.read_text(encoding="utf-8", errors="replace")
                heading, *rows = [row for row in csv.reader(text.split("\n")) if row] or [[]]
                column = next((place for place, name in enumerate(heading) if re.fullmatch(metric, name)), None)
                if column is None or not rows or len(rows[-1]) != len(heading):
                    raise CseError(
                        f"'{file}' has no complete line of scores", "evaluate again", code="elsewhere.damaged"
                    )
                place = f"{file}, line {len(rows) + 1}"
                score = 100 * _number(rows[-1][column], heading[column], place)
                yield Line("", 0, match[1] or file.stem, score, place, software="sentence-transformers")


def _experiment(method: str, lines: Sequence[Line], argument: str, place: str) -> Experiment:
    version: dict[str, Line] = {}
    owner: dict[tuple[int, str, str], Line] = {}
    for line in lines:
        first = owner.setdefault((line.seed, line.task, line.metric), line)
        if first is not line:
            raise CseError(
                f"two scores of {method} for seed {line.seed} and {line.task}: {first.place}, and {line.place}",
                "keep one of them",
                code="elsewhere.two_scores",
            )
        first = version.setdefault(line.task, line)
        if line.data != first.data:
            texts = " and ".join(", ".join(of.data.values()) or "unknown data" for of in (first, line))
            raise CseError(
                f"the seeds of {method} scored different data for {line.task}: {texts} ({first.place}, {line.place})",
                "score all seeds on one version, or give them two names",
                code="elsewhere.other_data",
            )
    settings = hashlib.sha256(f"{argument}\0{method}".encode()).hexdigest()
    finished, results = datetime.fromtimestamp(0, UTC), []
    for seed, of_seed in sorted(grouped(lines, lambda line: line.seed).items()):
        scores: dict[str, dict[str, float]] = {}
        for line in of_seed:
            scores.setdefault(line.task, {})[line.metric] = line.score
        result = Result(
            recipe=method,
            source=argument,
            title=method,
            identity=Identity(settings=settings),
            started=finished,
            finished=finished,
            language="en" if scores.keys() >= {*STS_TASKS} else "",  # these are English data sets
            seed=seed,
            model=of_seed[0].model or place,
            scores=scores,
            scored_on={line.task: dict(line.data) for line in of_seed if line.data},
            steps=0,
            versions=Versions(cse=of_seed[0].software, python="", torch="", transformers=""),
            device="",
            precision="",
            seconds=0.0,
        )
        results.append(result)
    return Experiment(tuple(results), names=(method,), name=method)


def with_mean(methods: Sequence[Experiment]) -> tuple[list[Experiment], list[str]]:
    """Return methods made elsewhere with the mean of the tasks that all of them have as first score, and remarks.

    The mean judges them. They have none if the papers' average can be made, if they share fewer than two tasks with the
    same data, or if one of them has runs.
    """
    made = [method for method in methods if method.elsewhere]
    runs = [run for method in methods for run in method.results]
    unknown = [one.name for one in made if any(not one.latest.data_of(name) for name in one.latest.scores)]
    remarks = [f"version of the data unknown: {', '.join(unknown)}"] if unknown else []
    averaged = any(metric_value(run.scores, AVERAGE) is not None for run in runs)
    shared = [
        name
        for name in runs[0].scores
        if not name.endswith("dev")
        and all(MAIN_SCORE in run.scores.get(name, {}) for run in runs)
        and len({run.data_of(name) for run in runs} - {()}) < 2
    ]
    if len(made) < len(methods) or averaged or len(shared) < 2:
        return list(methods), remarks

    def mean(run: Result) -> Result:
        score = fmean(run.scores[name][MAIN_SCORE] for name in shared)
        return run.model_copy(update={"scores": {MEAN: {MAIN_SCORE: score}, **run.scores}})

    every = dict.fromkeys(name for run in runs for name in run.scores)
    remarks.insert(0, f"{MEAN}: of {len(shared)} of {len(every)} tasks, which all methods scored on the same data")
    return [replace(method, results=tuple(map(mean, method.results))) for method in methods], remarks
