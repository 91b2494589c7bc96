"""The options of `cse run` as jobs: every recipe with every seed, all checked before the first one starts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cse_cli.jobs.executor import PATIENCE_SECONDS
from cse_cli.recipe.load import load
from cse_cli.recipe.study import MOST_SEEDS
from cse_cli.runs.index import RecordedRun, find_run
from cse_cli.runs.record import RECIPE
from cse_cli.training.build import Job
from registry.errors import CseError

RESERVED = ("recipe", "method", "encoder", "data", "seed", "avg")
"""Tags that `cse` sets in MLflow."""


@dataclass(frozen=True)
class RunRequest:
    """The options of `cse run`.

    Args:
        recipes: Files or names, of recipes or of studies.
        overrides: `dotted.key=value` texts.
        unset: Dotted keys to take out.
        seed: One seed instead of the recipe's own.
        seeds: A count, or a list with commas.
        resume: ID of the run to resume, or a unique prefix of it.
        again: Train again what is finished.
        accept_changed: Count finished runs of other code as runs of these experiments.
        workers: How many runs at once; None is one a CUDA device.
        processes: How many do each run together; None is one a CUDA device.
        on: A Ray cluster: its address, "auto" or "local-cluster"; None is this machine.
        patience: Seconds without a word after which a run's process is killed.
        dry_run: Print what would be run.
        as_json: Print one JSON document.
        quiet: Show results and errors alone.
        name: Of the run in lists; of several, what their own names begin with.
        tags: `key=value` texts.
        group: Group in which runs are recorded, the experiment in MLflow.
    """

    recipes: Sequence[str] = ()
    overrides: Sequence[str] = ()
    unset: Sequence[str] = ()
    seed: int | None = None
    seeds: str | None = None
    device: str = "auto"
    resume: str | None = None
    workers: int | None = None
    processes: int | None = None
    on: str | None = None
    patience: float = PATIENCE_SECONDS
    dry_run: bool = False
    as_json: bool = False
    quiet: bool = False
    name: str | None = None
    tags: Sequence[str] = ()
    group: str | None = None
    again: bool = False
    accept_changed: bool = False

    def settings(self) -> list[str]:
        """Return the options that change the recipes, as they are typed."""
        overrides = [word for text in self.overrides for word in ("--set", text)]
        return overrides + [word for key in self.unset for word in ("--unset", key)]

    def jobs(self) -> list[Job]:
        """Return the runs asked for, in order.

        Raises:
            CseError: Nothing to run, options that exclude each other, or recipes with errors.
        """
        if self.resume is not None:
            return [self.labelled(self._resumed(find_run(self.resume)), several=False)]
        if not self.recipes:
            raise CseError("no recipe given", "try `cse run quickstart`; `cse list recipes` shows all")
        seeds: Sequence[int | None] = self.seed_list() or [None]
        jobs = [self._job(recipe, seed) for recipe in self.recipes for seed in seeds]
        return [self.labelled(job, several=len(jobs) > 1) for job in jobs]

    def labelled(self, job: Job, *, several: bool) -> Job:
        """Return a job with the requested name, tags and group.

        Args:
            job: To be named.
            several: Whether it is one of several: then the name is put before its own.

        Raises:
            CseError: A tag cannot be read, or is one that `cse` sets itself.
        """
        name = job.run_name if self.name is None else f"{self.name}: {job.name}" if several else self.name
        labels = {**job.tags, **parse_tags(self.tags)}
        return replace(job, run_name=name, tags=labels, group=self.group or job.group, again=self.again)

    def seed_list(self) -> list[int]:
        """Return the seeds asked for; empty for each recipe's own.

        Raises:
            CseError: They cannot be read, or are given twice.
        """
        if self.seed is not None and self.seeds is not None:
            raise CseError(
                "--seed and --seeds exclude each other", "use --seed 7 for one run, --seeds 3 for seeds 0, 1, 2"
            )
        if self.seeds is not None:
            return parse_seeds(self.seeds)
        return [] if self.seed is None else [self.seed]

    def _job(self, recipe: str, seed: int | None) -> Job:
        """Return a run; a seed of the command line becomes the recipe's own, so that the record repeats the run."""
        chosen = [] if seed is None else [f"train.seed={seed}"]
        loaded = load(recipe, [*self.overrides, *chosen], self.unset)
        return Job(loaded, loaded.recipe.train.seed, self.device)

    def _resumed(self, run: RecordedRun) -> Job:
        if len(self.recipes) > 1 or self.seeds is not None:
            raise CseError("--resume takes one run", "leave out --seeds and name at most one recipe")
        about = run.about
        if run.end == "pruned":
            raise CseError(
                f"run {about.short} ({about.name}) was pruned: {run.reason}", "start a new run of its recipe"
            )
        recipe = self.recipes[0] if self.recipes else str(about.path / RECIPE)
        own = [f"train.seed={about.seed}"]  # first: a seed that the command line sets is a changed setting
        job = replace(self, overrides=[*own, *self.overrides])._job(recipe, self.seed)
        loaded = replace(job.loaded, name=about.recipe, path=Path(about.source), changes=about.changes)
        return replace(job, loaded=loaded, resume=run.run_id, group=about.group)


def parse_seeds(text: str) -> list[int]:
    """Return the seeds that `--seeds` means: a count from 0, or a list with commas.

    Raises:
        CseError: They cannot be read, or are not different seeds.
    """
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise CseError(f"--seeds: '{text}' is neither a number nor a list of numbers", "use 3, or 1,5,7") from error
    if "," not in text:
        if numbers[0] > MOST_SEEDS:
            raise CseError(f"--seeds: {text} are too many", f"at most {MOST_SEEDS:,}; one seed is --seed {text}")
        numbers = list(range(numbers[0]))
    if not numbers or min(numbers) < 0 or max(numbers) >= 2**32 or len(set(numbers)) < len(numbers):
        raise CseError(
            f"--seeds: '{text}' is not one or several different seeds from 0 to {2**32 - 1}",
            "use 3 for seeds 0, 1, 2, or a list such as 1,5,7",
        )
    return numbers


def parse_tags(texts: Sequence[str]) -> dict[str, str]:
    """Return the tags that `key=value` texts mean.

    Raises:
        CseError: One has no value, a key that no store takes, or one that `cse` or MLflow sets.
    """
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not value or not re.fullmatch(r"[\w. /-]+", key):
            raise CseError(
                f"--tag: '{text}' is not key=value", "letters, digits, '_', '-', '.', '/' in the key: --tag paper=v2"
            )
        if key.startswith(("cse.", "mlflow.")) or key in RESERVED:
            raise CseError(f"--tag: '{key}' is set by cse itself", "choose another key")
        found[key] = value
    return found
