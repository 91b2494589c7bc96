"""Several recipes and seeds, one after the other: all checked before the first one starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cse_cli.job import Job
from cse_cli.progress import Screen
from cse_cli.recipe.load import LoadedRecipe, load
from cse_cli.render_run import print_results, shown_metrics, write_json
from cse_cli.run_folder import find
from cse_cli.running import dry_run as run_dry
from cse_cli.running import execute
from registry.errors import CseError


def jobs(
    recipes: Sequence[str],
    overrides: Sequence[str],
    *,
    seed: int | None,
    seeds: str | None,
    device: str,
    resume: str | None,
) -> list[Job]:
    """Return what a command line asks for.

    Raises:
        CseError: Nothing to run, options that exclude each other, or recipes with errors.
    """
    if seed is not None and seeds is not None:
        raise CseError("--seed and --seeds exclude each other", "use --seed 7 for one run, --seeds 3 for seeds 0, 1, 2")
    if resume is not None:
        return [_resumed(recipes, overrides, seed, seeds, device, resume)]
    if not recipes:
        raise CseError("no recipe given", "try `cse run quickstart`; `cse list recipes` shows all")
    loaded = [load(recipe, overrides) for recipe in recipes]
    return [Job(one, number, device) for one in loaded for number in _seeds(one, seed, seeds)]


def _resumed(
    recipes: Sequence[str], overrides: Sequence[str], seed: int | None, seeds: str | None, device: str, resume: str
) -> Job:
    folder = find(resume)
    if len(recipes) > 1 or seeds is not None:
        raise CseError("--resume takes up one run", "leave out --seeds and name at most one recipe")
    folder.demand_unfinished()
    loaded = load(recipes[0] if recipes else str(folder.path / "resolved.toml"), overrides)
    folder.demand_same(loaded.recipe.resolved(), folder.seed if seed is None else seed)
    return Job(replace(loaded, name=folder.recipe), folder.seed, device, folder)


def _seeds(loaded: LoadedRecipe, seed: int | None, seeds: str | None) -> list[int]:
    if seeds is None:
        return [loaded.recipe.train.seed if seed is None else seed]
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
