"""What a report of a run is about: the run, all that it recorded, and its sister runs."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cse_cli.board.runs import Configuration, configurations, standing
from cse_cli.recipe.find import all_recipes, all_studies
from cse_cli.results import Result
from cse_cli.tracking import reader
from cse_cli.tracking import tags as names
from cse_cli.tracking.reader import RecordedRun, RunDetails
from registry.errors import CseError, UnknownNameError, suggestion


@dataclass(frozen=True)
class Subject:
    """A finished run.

    Args:
        details: As the store has it.
        result: What it says.
        sisters: Every finished run of the same recipe, itself included: seed → the one that finished last.
        resolved: Its resolved recipe; None where it cannot be read.
        environment: What it noted of its surroundings; empty where that cannot be read.
    """

    details: RunDetails = field(repr=False)
    result: Result
    sisters: Mapping[int, Result] = field(repr=False)
    resolved: Mapping[str, Any] | None = field(repr=False)
    environment: Mapping[str, Any] = field(repr=False)

    @property
    def run(self) -> RecordedRun:
        """The run as `cse runs ls` knows it."""
        return self.details.run

    @property
    def results(self) -> list[Result]:
        """Of every sister, by seed."""
        return list(self.sisters.values())

    @property
    def configuration(self) -> Configuration:
        """The sisters as the leaderboard knows them."""
        # A recipe may have got its paper's row only later: hashes are alike, so all are asked for the run's.
        paper = self.result.paper
        (found,) = configurations([one.model_copy(update={"paper": paper}) for one in self.results], standing)
        return found


def find_subject(run_id: str, results: Sequence[Result]) -> Subject:
    """Return a run with all that it recorded.

    Args:
        run_id: As `find_run` returns it.
        results: All finished runs.

    Raises:
        CseError: It has no scores.
    """
    details = reader.details(run_id)
    result = details.run.result
    if result is None:
        why = details.run.unreadable if details.run.status == "FINISHED" else details.run.status
        raise CseError(f"run {run_id[:8]} has no scores to report: {why}", "`cse runs ls` shows finished runs")
    return Subject(
        details=details,
        result=result,
        sisters=by_seed([*(r for r in results if r.recipe_hash == result.recipe_hash), result]),
        resolved=_read(run_id, "resolved.toml", tomllib.loads),
        environment=_read(run_id, "environment.json", json.loads) or {},
    )


def by_seed(runs: Sequence[Result]) -> dict[int, Result]:
    """Return seed → run: the one that finished last, but the last of `runs` itself for its own seed."""
    latest = {run.seed: run for run in sorted(runs, key=lambda run: run.finished)}
    return dict(sorted({**latest, runs[-1].seed: runs[-1]}.items()))


def find_run(asked: str, results: Sequence[Result]) -> str:
    """Return the id of the run whose id starts so, or that is called so.

    Args:
        asked: As the command line names it.
        results: All finished runs.

    Raises:
        CseError: There is none; a recipe's name is answered with its newest run.
    """
    known = reader.list_names()
    if any(run.run_id.startswith(asked.lower()) or run.name == asked for run in known):
        return reader.find_run(asked)
    if asked in all_recipes():
        newest = max((r for r in results if r.recipe == asked), key=lambda r: r.finished, default=None)
        action = (
            f"`cse run {asked}` makes one" if newest is None else f"`cse report {str(newest.run_id)[:8]}`: its newest"
        )
        raise CseError(f"'{asked}' is a recipe; a report is about one of its runs, beside all its seeds", action)
    near = suggestion(asked, [*all_studies(), *(run.name for run in known), *(run.run_id[:8] for run in known)])
    raise UnknownNameError(
        f"'{asked}' is neither a run nor a study.{near}", "`cse runs ls` and `cse list studies` show what there is"
    )


def _read(run_id: str, name: str, parse: Any) -> dict[str, Any] | None:
    text = reader.text_of(run_id, name)
    try:
        return None if text is None else dict(parse(text))
    except ValueError:  # of another version, or cut off
        return None


def doubts(subject: Subject) -> list[str]:
    """Return what a reader must know of a run before its numbers."""
    found = []
    if names.TUNE in subject.run.tags:
        found.append(f"a trial of the search {subject.run.tags[names.TUNE]}: the best of many is no result by itself")
    if any(one.test_selected for one in subject.results):
        found.append("the state was chosen on a test split: such scores are optimistic")
    return found
