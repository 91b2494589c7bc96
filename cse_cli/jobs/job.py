"""Requested runs: the step from a recipe and a seed to a run with an ID, and which of them are finished."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from cse_cli.core.devices import choose
from cse_cli.core.environment import git_commit
from cse_cli.core.identity import Difference, Identity
from cse_cli.core.results import Result
from cse_cli.data.identity import Known, identify, identify_known, plugin_poolings
from cse_cli.data.requirements import DownloadProgress, fetch
from cse_cli.recipe.load import LoadedRecipe
from cse_cli.recipe.requirements import requirements
from cse_cli.recipe.schema import Recipe, train_entries
from cse_cli.recipe.validate import is_test_split
from cse_cli.runs.claim import Claimed, claim, claim_run
from cse_cli.runs.index import RecordedRun
from cse_cli.runs.record import About, read_about
from cse_cli.training.run import experiment_changed
from registry.machinery import plugins
from registry.machinery.core import POOLINGS
from registry.resources import hub


@dataclass(eq=False)
class Job:
    """A requested run.

    Args:
        resume: ID of the run to resume, or None for the run that the claim finds or creates.
        again: Whether to train again although the same run is finished.
        study: Cell of a study that the run fills.
        search: Name of the search whose trial the run is.
        confirms: Name of the search whose best values the run verifies.
        parent: ID of the recorded run that it belongs to, such as the record of a search.
        run_name: Display name instead of recipe and seed.
        group: Group of the run. Default: the recipe's family.
        seeds: Seeds of the experiment that the command starts together.
        shown_as: Name on the screen, if it is not that of the run.
    """

    loaded: LoadedRecipe
    seed: int
    resume: str | None = None
    again: bool = False
    study: str = ""
    search: str = ""
    trial: int | None = None
    confirms: str = ""
    parent: str = ""
    run_name: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    group: str | None = None
    seeds: tuple[int, ...] = ()
    shown_as: str = ""

    @property
    def recipe(self) -> Recipe:
        """The recipe."""
        return self.loaded.recipe

    @property
    def name(self) -> str:
        """Display name of the run."""
        return self.run_name or f"{self.loaded.name} seed {self.seed}"

    @property
    def label(self) -> str:
        """Name on the screen."""
        return self.shown_as or self.name

    @property
    def heading(self) -> str:
        """First line on the screen of the run, without markup."""
        return f"{self.loaded.name} · {self.recipe.title} · seed {self.seed}"

    @cached_property
    def known(self) -> Known:
        """Identity of the experiment, as far as it was known on this machine when it was first read."""
        return identify_known(self.recipe)

    def same(self, recorded: Iterable[RecordedRun]) -> list[RecordedRun]:
        """Return the records of this run, newest first. With `resume` that is the named run."""
        if self.resume is not None:
            return [run for run in recorded if run.run_id == self.resume]
        found = ((run, run.about) for run in recorded if run.about.is_result and run.about.seed == self.seed)
        return [run for run, of in found if of.identity is not None and not self.known.differences(of.identity)]

    def result(self, recorded: Iterable[RecordedRun]) -> Result | None:
        """Return the result of the run, or None if it is not finished."""
        return next((run.result for run in self.same(recorded) if run.end == "finished" and run.result), None)

    def changes(self, recorded: Iterable[RecordedRun]) -> list[Difference]:
        """Return the differences to a finished run with the same settings and seed, or an empty list."""
        for run in recorded:
            identity = run.about.identity if run.is_result and run.about.seed == self.seed else None
            if identity is not None and identity.settings == self.known.settings:
                return self.known.differences(identity)
        return []

    def claim(self, device: str | None = None, progress: DownloadProgress = lambda *_: None) -> Claimed | RecordedRun:
        """Claim the run, or return it if it is finished, after the download of what it needs and this machine lacks.

        Without a `device`, another machine executes the run.
        """
        if self.resume is not None:
            about = read_about(self.resume)
            with hub.pinned(about.commits):
                fetch(requirements(self.recipe.wiring()), progress)
                changed = [] if about.identity is None else about.identity.differences(identify(self.recipe))
            if changed:
                raise experiment_changed(about, map(str, changed))
            return claim_run(self.resume)
        fetch(requirements(self.recipe.wiring()), progress)
        precision = "" if device is None else choose(device, self.recipe.train.precision).precision
        hub.forget()
        about = self.about(identify(self.recipe), precision)
        return claim(about, self.recipe.resolved(), seeds=self.seeds, again=self.again)

    def about(self, identity: Identity | None, precision: str = "") -> About:
        """Return the description of a new run, or of a search, which has no identity and no precision."""
        loaded, recipe = self.loaded, self.recipe.wiring()
        entries = [*(placed.entry for placed in recipe.parts()), *train_entries(recipe.train)]
        named = [(entry.kind, entry.name) for entry in entries]
        named += [(POOLINGS.kind, pooling.name) for pooling in plugin_poolings(recipe)]
        selecting, paper = recipe.evaluate.metric_for_best_model, recipe.paper
        return About(
            name=self.name,
            recipe=loaded.name,
            source=str(loaded.path.absolute()),
            seed=self.seed,
            group=self.group or os.environ.get("MLFLOW_EXPERIMENT_NAME") or family(loaded.name, recipe.language),
            parent=self.parent,
            study=self.study,
            search=self.search,
            trial=self.trial,
            confirms=self.confirms,
            changes=loaded.changes,
            tags=dict(self.tags),
            note=recipe.description or recipe.title,
            method=recipe.title.partition(",")[0],
            encoder=Path(recipe.model).name,
            data=Path(recipe.data.named).name,
            paper="" if paper is None else f"{paper.key}/{paper.table}/{paper.row}",
            test_selected=selecting is not None
            and is_test_split(recipe.evaluators[selecting.rpartition(".")[0]].params),
            limited=recipe.evaluate.limit is not None,
            precision=precision,
            commits=hub.used(),
            git=git_commit(loaded.path) or "",
            plugins=plugins.files_of(named),
            identity=identity,
        )


def family(name: str, language: str) -> str:
    """Return the group of a recipe's runs: "mini/ifcl_en" for "mini/ifcl_en_no_tl".

    It is the recipe's name up to its language. What follows is a variant, to be compared with the others.
    """
    before, found, _ = f"{name}_".partition(f"_{language}_")
    return f"{before}_{language}" if found else name


def distinct(jobs: Iterable[Job]) -> list[Job]:
    """Return one job per experiment and seed, with the seeds of its experiment."""
    different: dict[tuple[str, int], Job] = {}
    for job in jobs:
        different.setdefault((job.known.model_dump_json(), job.seed), job)
    seeds = defaultdict[str, list[int]](list)
    for experiment, seed in different:
        seeds[experiment].append(seed)
    for (experiment, _), job in different.items():
        job.seeds = tuple(seeds[experiment])  # the claim of the first one records them as a plan
    return list(different.values())


def finished(jobs: Iterable[Job], recorded: Sequence[RecordedRun]) -> dict[Job, Result]:
    """Return the results of finished jobs. With `again` no job is finished."""
    found = ((job, job.result(recorded)) for job in jobs if not job.again)
    return {job: result for job, result in found if result is not None}
