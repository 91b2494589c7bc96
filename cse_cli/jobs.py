"""Several recipes and seeds, one after the other: all checked before the first one starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from cse_cli.completion import remember
from cse_cli.job import Job
from cse_cli.progress import Screen
from cse_cli.recipe.load import load
from cse_cli.render_dry_run import plan, print_plan, write_plans
from cse_cli.render_run import print_results, shown_metrics, write_json
from cse_cli.run_folder import RunFolder, find
from cse_cli.running import execute, prepare
from registry.errors import CseError

Made = TypeVar("Made")


@dataclass(frozen=True)
class Asked:
    """What a command line asks for.

    Args:
        recipes: Files or names.
        overrides: `dotted.key=value` texts.
        unset: Dotted keys to take out.
        seed: One seed instead of the recipe's own.
        seeds: A count, or a list with commas.
        resume: Beginning of the id of the run to take up.
        workers: How many processes share a study; None is one a CUDA device.
        worker: Whether this process is one of them, started by another.
    """

    recipes: Sequence[str] = ()
    overrides: Sequence[str] = ()
    unset: Sequence[str] = ()
    seed: int | None = None
    seeds: str | None = None
    device: str = "auto"
    resume: str | None = None
    workers: int | None = None
    worker: bool = False


def jobs(asked: Asked) -> list[Job]:
    """Return the runs a command line asks for, in order.

    Raises:
        CseError: Nothing to run, options that exclude each other, or recipes with errors.
    """
    if asked.workers is not None:
        raise CseError("--workers is for studies", "`cse list studies` shows them; recipes run one after the other")
    if asked.resume is not None:
        return [_resumed(asked, find(asked.resume))]
    if not asked.recipes:
        raise CseError("no recipe given", "try `cse run quickstart`; `cse list recipes` shows all")
    chosen = seeds(asked)
    found = [_job(asked, recipe, seed) for recipe in asked.recipes for seed in chosen]
    remember()
    return found


def _job(asked: Asked, recipe: str, seed: int | None) -> Job:
    """Return a run; a seed of the command line becomes the recipe's own, so that what is recorded runs again alike."""
    chosen = [] if seed is None else [f"train.seed={seed}"]
    loaded = load(recipe, [*asked.overrides, *chosen], asked.unset)
    return Job(loaded, loaded.recipe.train.seed, asked.device)


def _resumed(asked: Asked, folder: RunFolder) -> Job:
    if len(asked.recipes) > 1 or asked.seeds is not None:
        raise CseError("--resume takes up one run", "leave out --seeds and name at most one recipe")
    folder.demand_unfinished()
    recipe = asked.recipes[0] if asked.recipes else str(folder.path / "resolved.toml")
    own = [f"train.seed={folder.seed}"]  # first: a seed that the command line sets is a changed setting
    job = _job(replace(asked, overrides=[*own, *asked.overrides]), recipe, asked.seed)
    folder.demand_same(job.loaded.recipe.resolved())
    return replace(job, loaded=replace(job.loaded, name=folder.recipe, path=folder.source), resume=folder)


def seeds(asked: Asked) -> list[int | None]:
    """Return the seeds of each recipe; None is the recipe's own.

    Raises:
        CseError: They cannot be read, or are given twice.
    """
    if asked.seed is not None and asked.seeds is not None:
        raise CseError("--seed and --seeds exclude each other", "use --seed 7 for one run, --seeds 3 for seeds 0, 1, 2")
    listed = asked.seeds
    if listed is None:
        return [asked.seed]
    try:
        numbers = [int(part) for part in listed.split(",")]
    except ValueError as error:
        raise CseError(f"--seeds: '{listed}' is neither a number nor a list of numbers", "use 3, or 1,5,7") from error
    if "," not in listed:
        numbers = list(range(numbers[0]))
    if not numbers or min(numbers) < 0 or max(numbers) >= 2**32 or len(set(numbers)) < len(numbers):
        raise CseError(
            f"--seeds: '{listed}' is not one or several different seeds from 0 to {2**32 - 1}",
            "use 3 for seeds 0, 1, 2, or a list such as 1,5,7",
        )
    return list(numbers)


def run_all(queue: Sequence[Job], *, as_json: bool) -> int:
    """Run jobs in order and print their results; return the exit code."""
    results, code = _each(queue, execute)
    if as_json:
        write_json(results)
    elif results:
        recipes = [job.loaded.recipe for job in queue]
        parts = {recipe.hash(): {key: part.name for key, part in recipe.evaluators.items()} for recipe in recipes}
        print_results(results, {identity: shown_metrics(names) for identity, names in parts.items()})
    return code


def plan_all(queue: Sequence[Job], *, as_json: bool) -> int:
    """Build and read what jobs need, and print what they would do; return the exit code."""
    plans, code = _each(queue, lambda job, screen: plan(prepare(job, screen)))
    if as_json:
        write_plans(plans)
    else:
        for one in plans:
            print_plan(one)
    return code


def _each(queue: Sequence[Job], act: Callable[[Job, Screen], Made]) -> tuple[list[Made], int]:
    """Return what `act` makes of each job, and the exit code; one of several that fails does not stop the next."""
    made: list[Made] = []
    code = 0
    with Screen() as screen:
        for job in queue:
            try:
                made.append(act(job, screen))
            except CseError as error:
                if len(queue) == 1:
                    raise
                screen.failed(f"{job.loaded.name} seed {job.seed}", error)
                code = error.exit_code
    return made, code
