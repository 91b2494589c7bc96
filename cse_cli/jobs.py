"""Several recipes and seeds, one after the other: all checked before the first one starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cse_cli.completion import remember
from cse_cli.job import Job
from cse_cli.progress import Screen
from cse_cli.recipe.load import LoadedRecipe, load
from cse_cli.render_run import print_results, shown_metrics, write_json
from cse_cli.run_folder import RunFolder, find
from cse_cli.running import dry_run as run_dry
from cse_cli.running import execute
from registry.errors import CseError


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
    """

    recipes: Sequence[str] = ()
    overrides: Sequence[str] = ()
    unset: Sequence[str] = ()
    seed: int | None = None
    seeds: str | None = None
    device: str = "auto"
    resume: str | None = None


def jobs(asked: Asked) -> list[Job]:
    """Return the runs a command line asks for, in order.

    Raises:
        CseError: Nothing to run, options that exclude each other, or recipes with errors.
    """
    if asked.seed is not None and asked.seeds is not None:
        raise CseError("--seed and --seeds exclude each other", "use --seed 7 for one run, --seeds 3 for seeds 0, 1, 2")
    if asked.resume is not None:
        return [_resumed(asked, find(asked.resume))]
    if not asked.recipes:
        raise CseError("no recipe given", "try `cse run quickstart`; `cse list recipes` shows all")
    loaded = [load(recipe, asked.overrides, asked.unset) for recipe in asked.recipes]
    remember()
    return [Job(one, number, asked.device) for one in loaded for number in _seeds(one, asked)]


def _resumed(asked: Asked, folder: RunFolder) -> Job:
    if len(asked.recipes) > 1 or asked.seeds is not None:
        raise CseError("--resume takes up one run", "leave out --seeds and name at most one recipe")
    folder.demand_unfinished()
    recipe = asked.recipes[0] if asked.recipes else str(folder.path / "resolved.toml")
    loaded = load(recipe, asked.overrides, asked.unset)
    folder.demand_same(loaded.recipe.resolved(), folder.seed if asked.seed is None else asked.seed)
    return Job(replace(loaded, name=folder.recipe), folder.seed, asked.device, folder)


def _seeds(loaded: LoadedRecipe, asked: Asked) -> list[int]:
    seeds = asked.seeds
    if seeds is None:
        return [loaded.recipe.train.seed if asked.seed is None else asked.seed]
    try:
        numbers = [int(part) for part in seeds.split(",")]
    except ValueError as error:
        raise CseError(f"--seeds: '{seeds}' is neither a number nor a list of numbers", "use 3, or 1,5,7") from error
    if "," not in seeds:
        numbers = list(range(numbers[0]))
    if not numbers or min(numbers) < 0 or len(set(numbers)) < len(numbers):
        raise CseError(
            f"--seeds: '{seeds}' gives no distinct seeds", "use 3 for seeds 0, 1, 2, or a list such as 1,5,7"
        )
    return numbers


def run_all(queue: Sequence[Job], *, dry_run: bool, as_json: bool) -> int:
    """Run jobs in order and print their results; one that fails does not stop the next. Return the exit code."""
    results = []
    code = 0
    with Screen() as screen:
        for job in queue:
            try:
                if dry_run:
                    run_dry(job, screen)
                else:
                    results.append(execute(job, screen))
            except CseError as error:
                if len(queue) == 1:
                    raise
                screen.failed(f"{job.loaded.name} seed {job.seed}", error)
                code = error.exit_code
    if as_json:
        write_json(results)
    elif results:
        metrics = {
            job.loaded.name: shown_metrics({k: part.name for k, part in job.loaded.recipe.evaluators.items()})
            for job in queue
        }
        print_results(results, metrics)
    return code
