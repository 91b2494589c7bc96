"""What a command line asks to be run: several recipes and seeds, all checked before the first one starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cse_cli.core.run_folder import RunFolder, find
from cse_cli.recipe.completion import remember
from cse_cli.recipe.load import load
from cse_cli.training.build import Job
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
        workers: How many processes share a study or several runs; None is one a CUDA device.
        worker: Whether this process is one of those of a study, started by another.
        processes: How many do each run together; None is one a CUDA device.
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
    processes: int | None = None


def jobs(asked: Asked) -> list[Job]:
    """Return the runs a command line asks for, in order.

    Raises:
        CseError: Nothing to run, options that exclude each other, or recipes with errors.
    """
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
