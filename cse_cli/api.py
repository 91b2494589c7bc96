"""The commands as functions, for scripts and notebooks: `from cse_cli import run, evaluate, leaderboard, load_model`.

Each does what its command does, through the same code, and returns typed results; `to_frame` makes a table of them.
Progress goes to stderr. What is wrong is raised as a `registry.errors.CseError` with the message that the command
prints.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cse_cli.analysis.leaderboard import LeaderboardQuery, find_tables, read_finished_runs, score_tables
from cse_cli.analysis.papers import ScoreTable
from cse_cli.core.console import Screen
from cse_cli.core.results import Result
from cse_cli.evaluation import evaluate as scoring
from cse_cli.evaluation.evaluate import Scored
from cse_cli.evaluation.model import Model, load_model
from cse_cli.evaluation.tasks import parse_tasks
from cse_cli.jobs.placement import choose_placement
from cse_cli.jobs.request import RunRequest
from cse_cli.jobs.run import run_all
from cse_cli.publishing.push import push_model as push
from cse_cli.recipe import load as recipes
from cse_cli.recipe.load import LoadedRecipe
from registry.errors import CseError

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Model", "evaluate", "leaderboard", "load_model", "load_recipe", "push", "run", "to_frame"]


def load_recipe(
    recipe: str | Path, settings: Mapping[str, Any] | None = None, remove: Sequence[str] = ()
) -> LoadedRecipe:
    """Return a validated recipe; `.recipe` is a pydantic model of it, `.recipe.resolved()` all of it as plain tables.

    Args:
        recipe: Name, such as "mini/ifcl_en", or file.
        settings: Dotted key → value, as `--set` takes them: `{"train.steps": 100}`.
        remove: Dotted keys to take out, as `--unset` does.

    Raises:
        UnknownNameError: There is no recipe of that name.
        RecipeError: It is not valid; with every reason and where it stands.
    """
    return recipes.load(str(recipe), _assignments(settings), remove)


def run(
    *names: str | Path,
    seeds: int | Sequence[int] | None = None,
    settings: Mapping[str, Any] | None = None,
    remove: Sequence[str] = (),
    device: str = "auto",
    workers: int | None = None,
    progress: bool = True,
    again: bool = False,
) -> list[Result]:
    """Train, score and record recipes, and return the results in the requested order. Finished runs are not repeated.

    Args:
        names: Names or files of recipes.
        seeds: How many (0, 1, …), or which; None for each recipe's own.
        settings: Dotted key → value, in every recipe.
        remove: Dotted keys to take out of every recipe.
        device: "auto", "cpu", "cuda" or "cuda:N".
        workers: How many runs at once, each in a process; None is one a CUDA device.
        progress: Show on stderr how runs go.
        again: Train again what is finished, as new runs.

    Raises:
        CseError: A recipe is not valid or misses data; raised before the first run starts. Or a run failed, after the
            others have ended.
    """
    request = RunRequest(
        recipes=[str(name) for name in names],
        overrides=_assignments(settings),
        unset=remove,
        seed=seeds[0] if isinstance(seeds, Sequence) and len(seeds) == 1 else None,
        seeds=_seeds(seeds),
        device=device,
        workers=workers,
        quiet=not progress,
        again=again,
    )
    jobs = request.jobs()
    ends = run_all(jobs, choose_placement(jobs, request), quiet=request.quiet)
    for end in ends:
        if isinstance(end, CseError):
            raise end
    return [end for end in ends if isinstance(end, Result)]


def evaluate(
    *models: str | Path,
    tasks: str = "sts",
    settings: Mapping[str, Any] | None = None,
    pooling: str | None = None,
    max_length: int | None = None,
    device: str = "auto",
    template: str | None = None,
    progress: bool = True,
) -> list[Scored]:
    """Score encoders as the papers do.

    Args:
        models: Directories, names under `$CSE_MODELS`, hub ids, or beginnings of run ids.
        tasks: Separated by commas: sts, transfer, geometry, all, sts_zh; data sets; files of pairs; evaluators.
        settings: "task.parameter" → value, as `--set` takes them.
        pooling: "cls", "mean", "last2", "first_last", "mask", "last_mask", "last" or "weighted_mean"
            instead of what the model says.
        max_length: Tokens a sentence is cut to.
        device: "auto", "cpu", "cuda" or "cuda:N".
        template: Text around every sentence, "{text}" its place and "{mask}" what pooling "mask" reads.
        progress: Show on stderr what is downloaded and scored.

    Raises:
        CseError: A model, a task or data is missing; raised before anything is scored.
    """
    wanted, named = parse_tasks(tasks, _assignments(settings)), [str(model) for model in models]
    with Screen(quiet=not progress) as screen:
        scoring.fetch_needed(named, wanted, screen.downloading)
        settings_of_all = scoring.Settings(pooling, max_length, None, device, template)
        return scoring.score_models(named, wanted, settings_of_all, screen.scoring)


def leaderboard(
    paper: str | None = None,
    table: str | None = None,
    encoder: str | None = None,
    language: str | None = None,
    recipe: str | None = None,
    field: bool = False,
    pool: bool = False,
) -> list[ScoreTable]:
    """Return finished runs beside the papers' rows.

    Args:
        paper: Only this paper's own tables.
        table: Only this table, such as "ifcl/5".
        encoder: Only this encoder, such as "bert-base".
        language: Only this language.
        recipe: Only runs of this recipe, every configuration of it.
        field: The field's public leaderboard too.
        pool: Merge experiments with the same settings, although text, weights or code differ.

    Raises:
        UnknownNameError: There is no such paper, table or encoder.
    """
    find_tables(paper, table)
    query = LeaderboardQuery(paper, table, encoder, language, recipe, field, pool)
    return score_tables(read_finished_runs(), query)


def to_frame(found: Sequence[Result] | Sequence[Scored] | Sequence[ScoreTable] | ScoreTable) -> DataFrame:
    """Return results of `run`, `evaluate` or `leaderboard` as a table.

    A row is a run, a model, or a line of a leaderboard; scores stand in columns "evaluator.metric", those before
    training below "untrained.evaluator.metric"; of a leaderboard in its own columns, as means, with "COLUMN std" where
    there are several seeds.
    """
    from pandas import DataFrame

    rows: list[dict[str, Any]] = []
    for one in [found] if isinstance(found, ScoreTable) else found:
        if isinstance(one, Result):
            about = one.model_dump(include={"recipe", "seed", "model", "steps", "selected_step", "seconds", "run_id"})
            before = {f"untrained.{key}": value for key, value in _flat(one.untrained)}
            rows.append({**about, **dict(_flat(one.scores)), **before})
        elif isinstance(one, Scored):
            about = {"model": one.model, "pooling": one.pooling, "max_length": one.max_length, "seconds": one.seconds}
            rows.append({**about, **dict(_flat(one.scores))})
        else:
            rows += _lines(one)
    return DataFrame(rows)


def _flat(scores: Mapping[str, Mapping[str, float]]) -> Iterator[tuple[str, float]]:
    return ((f"{name}.{metric}", value) for name, values in scores.items() for metric, value in values.items())


def _lines(table: ScoreTable) -> Iterator[dict[str, Any]]:
    for row in table.rows:
        line: dict[str, Any] = {"table": table.heading, "source": row.source, "name": row.name, "seeds": len(row.seeds)}
        for column in table.columns:
            score = row.scores.get(column)
            line[column] = None if score is None else score.mean
            if score is not None and score.std is not None:
                line[f"{column} std"] = score.std
        yield line


def _seeds(seeds: int | Sequence[int] | None) -> str | None:
    """Return a count or several seeds as `--seeds` takes them."""
    if seeds is None or (not isinstance(seeds, int) and len(seeds) == 1):
        return None
    return str(seeds) if isinstance(seeds, int) else ",".join(map(str, seeds))


def _assignments(settings: Mapping[str, Any] | None) -> list[str]:
    """Return settings as `--set` takes them: JSON's texts, numbers and lists are TOML's."""
    return [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in (settings or {}).items()]
