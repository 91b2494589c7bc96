"""Python interface to the commands: `from cse_cli import run, evaluate, leaderboard, load_model`.

Each function runs the same code as its command and returns typed results, which `to_frame` converts to a table.
Progress is printed to stderr. Errors are raised as `registry.errors.CseError` with the message of the command.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cse_cli.analysis.elsewhere import read_elsewhere
from cse_cli.analysis.experiments import read_finished_runs
from cse_cli.analysis.leaderboard import LeaderboardQuery, find_tables, score_tables
from cse_cli.analysis.origins import is_of_recipe
from cse_cli.analysis.score_table import ScoreTable
from cse_cli.core.console import Screen
from cse_cli.core.garbage import free_memory
from cse_cli.core.results import Result
from cse_cli.evaluation import evaluate as scoring
from cse_cli.evaluation.evaluate import Scored
from cse_cli.evaluation.model import Model, load_model
from cse_cli.evaluation.tasks import parse_tasks
from cse_cli.jobs.launch import run_all
from cse_cli.jobs.request import RunRequest, choose_placement
from cse_cli.push import push_model as push
from cse_cli.recipe import load as recipes
from cse_cli.recipe.load import LoadedRecipe
from cse_cli.recipe.overrides import Override
from cse_cli.recipe.parse import leaves
from cse_cli.recipe.study import MOST_SEEDS
from registry.errors import CseError
from registry.machinery import plugins

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = [
    "Model", "evaluate", "leaderboard", "load_model", "load_recipe", "load_results", "plugin", "push", "run", "to_frame"
]  # fmt: skip


def plugin(file: str | Path) -> None:
    """Register the components of a Python file, as `--plugin` does, also for the processes of parallel runs.

    If you changed the file, call this again. A module that you import needs no call if all runs are in this process.

    Args:
        file: Path of the file. It is executed.

    Raises:
        CseError: If it does not exist, cannot be imported, or registers no component.
    """
    plugins.add(file)
    plugins.load(Path(file).expanduser().absolute())


def load_recipe(
    recipe: str | Path, settings: Mapping[str, Any] | None = None, remove: Sequence[str] = ()
) -> LoadedRecipe:
    """Return a validated recipe.

    `.recipe` is a pydantic model, and `.recipe.resolved()` returns all its values as plain tables.

    Args:
        recipe: Name, such as "mini/ifcl_en", or path.
        settings: Dotted key → value, as in `--set`: `{"train.steps": 100}`.
        remove: Dotted keys to remove, as in `--unset`.

    Raises:
        UnknownNameError: If no recipe has this name.
        RecipeError: If the recipe is invalid, with every problem and its place.
    """
    return recipes.load(str(recipe), _overrides(settings), remove)


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
    """Train, score and record recipes, and return the results in the given order. Finished runs are not repeated.

    Args:
        names: Names or paths of recipes.
        seeds: Number of seeds (0, 1, …), or a sequence of seeds. Default: the seed of each recipe.
        settings: Dotted key → value for every recipe.
        remove: Dotted keys to remove from every recipe.
        device: "auto", "cpu", "cuda", "mps", "xpu" or "cuda:N".
        workers: Number of runs in parallel, each in its own process. Default: one for each GPU.
        progress: Whether to print progress to stderr.
        again: Whether to repeat finished runs.

    Raises:
        CseError: If a recipe is invalid or lacks data, before the first run starts. If a run fails, after the other
            runs have ended.
    """
    several = _seeds(seeds)
    if workers is not None and workers < 1:
        raise CseError(f"workers = {workers} is less than 1", "use workers=1, or omit it", code="api.invalid_workers")
    request = RunRequest(
        recipes=[str(name) for name in names],
        overrides=_overrides(settings),
        unset=remove,
        seed=several[0] if len(several) == 1 else None,
        seeds=",".join(map(str, several)) if len(several) > 1 else None,
        device=device,
        workers=workers,
        quiet=not progress,
        again=again,
    )
    jobs = request.jobs()
    ends = run_all(jobs, choose_placement(jobs, request), request)
    free_memory()
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
    precision: str = "fp32",
    template: str | None = None,
    prompts: str | Sequence[str] = (),
    width: int | None = None,
    progress: bool = True,
) -> list[Scored]:
    """Score encoders as the papers do.

    Args:
        models: Directories, names below `$CSE_MODELS`, Hub IDs, or prefixes of run IDs.
        tasks: Names separated by commas: sts, transfer, geometry, all, sts_zh, data sets, files of pairs, evaluators.
        settings: "task.parameter" → value.
        pooling: "cls", "mean", "last2", "first_last", "avg_first_last", "mask", "last_mask", "last" or "weighted_mean".
            Default: the pooling of the model.
        max_length: Maximum number of tokens per sentence.
        device: "auto", "cpu", "cuda", "mps", "xpu" or "cuda:N".
        precision: "fp32", "bf16", "fp16" or "auto".
        template: Text around every sentence, with "{text}", and "{mask}" for the poolings "mask" and "last_mask".
        prompts: Text in front of every sentence, or the name of one of the model's prompts. "query=TEXT" and
            "document=TEXT" set it for one side of retrieval.
        width: Number of leading dimensions that are scored. Default: all.
        progress: Whether to print downloads and scores to stderr.

    Raises:
        CseError: If a model, a task or data is missing, before anything is scored.
    """
    given = (prompts,) if isinstance(prompts, str) else prompts
    settings_of_all = scoring.Settings(pooling, max_length, None, device, template, precision, given, width=width)
    assignments = [str(one) for one in _overrides(settings)]
    wanted, named = parse_tasks(tasks, assignments), [str(model) for model in models]
    with Screen(quiet=not progress) as screen:
        if warning := settings_of_all.compute.warning:
            screen.warned(warning)
        scoring.fetch_needed(named, wanted, screen.downloading)
        return scoring.score_models(named, wanted, settings_of_all, screen.scoring)


def leaderboard(
    paper: str | None = None,
    table: str | None = None,
    encoder: str | None = None,
    language: str | None = None,
    recipe: str | Sequence[str] = (),
    community: bool = False,
    pool: bool = False,
    results: Sequence[str] = (),
) -> list[ScoreTable]:
    """Return tables with the finished runs and the reported results of papers.

    Args:
        paper: Only tables of this paper.
        table: Only this table, such as "ifcl/5".
        encoder: Only this encoder, such as "bert-base".
        language: Only this language.
        recipe: Only runs of this recipe or of these recipes, in every configuration.
        community: Whether to add the community leaderboard.
        pool: Whether to merge experiments with the same settings but other data, weights or code.
        results: Results made elsewhere to show, too: CSV files, folders or `NAME=FOLDERS`, as in `--results`.

    Raises:
        UnknownNameError: If the paper, table or encoder does not exist.
    """
    find_tables(paper, table)
    recipes = [recipe] if isinstance(recipe, str) else recipe
    query = LeaderboardQuery(paper, table, encoder, language, recipes, community, pool, results)
    return score_tables(read_finished_runs(), query)


def load_results(recipe: str | Sequence[str] = (), elsewhere: Sequence[str] = ()) -> list[Result]:
    """Return the results of finished runs, oldest first, then results made elsewhere.

    Args:
        recipe: Only runs of this recipe or of these recipes, in every configuration.
        elsewhere: CSV files, folders or `NAME=FOLDERS`, as for `cse compare`.

    Raises:
        CseError: If results made elsewhere cannot be read.
    """
    wanted = [recipe] if isinstance(recipe, str) else recipe
    runs = sorted(read_finished_runs().results, key=lambda run: run.finished)
    made = [run for argument in elsewhere for method in read_elsewhere(argument) for run in method.results]
    return [run for run in runs if not wanted or any(is_of_recipe(run, one) for one in wanted)] + made


def to_frame(found: Sequence[Result] | Sequence[Scored] | Sequence[ScoreTable] | ScoreTable) -> DataFrame:
    """Return results of `run`, `load_results`, `evaluate` or `leaderboard` as a table.

    Each row is a run, a model, or a row of a leaderboard, where recipes with the same title differ in the columns
    "recipe" and "settings". Scores of runs and models are in columns "evaluator.metric",
    and those before training in "untrained.evaluator.metric". Scores of a leaderboard are means, with columns
    "COLUMN std", "COLUMN p" and "COLUMN marks" if a cell has them.
    """
    from pandas import DataFrame

    rows: list[dict[str, Any]] = []
    for one in [found] if isinstance(found, ScoreTable) else found:
        if isinstance(one, Result):
            about = one.model_dump(include={"recipe", "seed", "model", "steps", "selected_step", "seconds", "run_id"})
            rows.append({**about, **_flat(one.scores), **_flat(one.untrained, "untrained.")})
        elif isinstance(one, Scored):
            about = {"model": one.model, "pooling": one.pooling, "max_length": one.max_length, "seconds": one.seconds}
            rows.append({**about, **_flat(one.scores)})
        else:
            rows += _lines(one)
    return DataFrame(rows)


def _flat(scores: Mapping[str, Mapping[str, float]], prefix: str = "") -> dict[str, float]:
    return {prefix + ".".join(map(str, keys)): value for keys, value in leaves(scores)}


def _lines(table: ScoreTable) -> Iterator[dict[str, Any]]:
    for row in table.rows:
        line: dict[str, Any] = {
            "table": table.heading, "source": row.source, "name": row.name, "recipe": row.recipe,
            "settings": ", ".join(row.settings) or None, "seeds": len(row.seeds),
        }  # fmt: skip
        for column in table.columns:
            score = row.scores.get(column)
            line[column] = None if score is None else score.mean
            if score is not None:
                extra = {"std": score.std, "p": score.p, "marks": "; ".join(score.marks) or None}
                line |= {f"{column} {name}": value for name, value in extra.items() if value is not None}
        yield line


def _seeds(seeds: int | Sequence[int] | None) -> list[int]:
    """Return the seeds of an argument, or an empty list for the seed of each recipe.

    Raises:
        CseError: If it is not a number of seeds, or a sequence of different seeds.
    """
    if seeds is None:
        return []
    if isinstance(seeds, int) and not isinstance(seeds, bool) and 0 < seeds <= MOST_SEEDS:
        return list(range(seeds))
    if isinstance(seeds, Sequence) and not isinstance(seeds, str):
        found = [seed for seed in seeds if isinstance(seed, int) and 0 <= seed < 2**32]
        if found and len(set(found)) == len(seeds):
            return found
    raise CseError(
        f"seeds = {seeds!r} is not a number from 1 to {MOST_SEEDS:,}, or a sequence of different seeds",
        "use seeds=3 for seeds 0, 1 and 2, or seeds=[1, 5, 7]",
        code="api.invalid_seeds",
    )


def _overrides(settings: Mapping[str, Any] | None) -> list[Override]:
    return [Override.of(path, value) for path, value in (settings or {}).items()]
