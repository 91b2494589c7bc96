"""Records of a finished run for a report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cse_cli.analysis.experiments import Configuration, configurations, differences
from cse_cli.analysis.runs import by_seed, last_finished, names_run, read_resolved
from cse_cli.core.results import Result
from cse_cli.recipe.files import all_recipes, all_studies
from cse_cli.runs.events import History, read_history
from cse_cli.runs.index import RecordedRun, all_runs, find_run, read_run
from cse_cli.runs.record import ENVIRONMENT, folder_of
from registry.errors import CseError, UnknownNameError, suggestion


def find_reported_run(argument: str, results: Sequence[Result]) -> str:
    """Return the ID of the run with this ID prefix or name.

    Args:
        argument: Argument of the command line.
        results: Results of all finished runs.

    Raises:
        CseError: If no run has it. For a recipe's name, the error contains its newest run.
    """
    known = all_runs()
    if names_run(argument, known):
        return find_run(argument, known).run_id
    if argument in all_recipes():
        of_recipe = [result for result in results if result.recipe == argument]
        newest = f"report its newest run: cse report {str(last_finished(of_recipe).run_id)[:8]}" if of_recipe else ""
        raise CseError(
            f"'{argument}' is a recipe. A report is about a run and all seeds of its experiment",
            newest or f"run the recipe first: cse run {argument}",
            code="report.is_recipe",
        )
    near = suggestion(argument, [*all_studies(), *(run.name for run in known), *(run.about.short for run in known)])
    raise UnknownNameError(
        f"'{argument}' is neither a run nor a study.{near}",
        "list them: cse runs ls, cse list studies",
        code="report.unknown_run",
    )


@dataclass(frozen=True)
class ReportedRun:
    """A finished run with everything that it recorded.

    Args:
        run: Record of the run.
        result: Its scores.
        seeds: Seed → newest finished run of the same experiment with scores on the same evaluation data. Contains the
            run itself.
        left_out: Differences of other finished runs with the same settings.
        history: Contents of its event log.
        resolved: Its resolved recipe, or None if it cannot be read.
        environment: Machine and packages. Empty if unknown.
    """

    run: RecordedRun = field(repr=False)
    result: Result
    seeds: Mapping[int, Result] = field(repr=False)
    left_out: tuple[str, ...]
    history: History = field(repr=False)
    resolved: Mapping[str, Any] | None = field(repr=False)
    environment: Mapping[str, Any] = field(repr=False)

    @property
    def run_id(self) -> str:
        """ID of the run."""
        return self.run.run_id

    @property
    def results(self) -> list[Result]:
        """Results of every seed."""
        return list(self.seeds.values())

    @property
    def configuration(self) -> Configuration:
        """The seeds as the leaderboard shows them."""
        # The paper's row may be newer than some of the seeds.
        paper, changes = self.result.paper, {self.run_id: self.run.about.changes}
        (found,) = configurations([one.model_copy(update={"paper": paper}) for one in self.results], changes=changes)
        return found


def read_reported_run(run_id: str, results: Sequence[Result]) -> ReportedRun:
    """Return a run with everything that it recorded.

    Args:
        run_id: ID from `find_reported_run`.
        results: Results of all finished runs.

    Raises:
        CseError: If the run has no scores.
    """
    run = read_run(run_id)
    if (result := run.result) is None:
        raise CseError(
            f"run {run.about.short} has no scores to report: {run.unreadable or run.state}",
            "choose a finished run: cse runs ls --status finished",
            code="report.no_scores",
        )
    candidates = [one for one in results if one.recipe_hash == result.recipe_hash]
    differing = {one.run_id: "; ".join(differences(one, result)) for one in candidates}
    same = by_seed(one for one in candidates if not differing[one.run_id])
    others = [(one.seed, differing[one.run_id]) for one in candidates if differing[one.run_id]]
    return ReportedRun(
        run=run,
        result=result,
        seeds=dict(sorted({**same, result.seed: result}.items())),
        left_out=tuple(f"Seed {seed} is not included: {difference}." for seed, difference in others),
        history=read_history(folder_of(run_id)),
        resolved=read_resolved(run_id),
        environment=_read_environment(run_id),
    )


def _read_environment(run_id: str) -> dict[str, Any]:
    try:
        return dict(json.loads((folder_of(run_id) / ENVIRONMENT).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}
