"""A finished run → its report."""

from __future__ import annotations

from collections.abc import Sequence

from cse_cli.report import figures, surroundings
from cse_cli.report.about import about
from cse_cli.report.about import again as run_again
from cse_cli.report.again import again
from cse_cli.report.compared import compared, find_beside
from cse_cli.report.parts import Page
from cse_cli.report.scores import among_others, beside_paper, scores
from cse_cli.report.subject import find_subject
from cse_cli.results import Result


def run_page(run_id: str, beside: str | None, results: Sequence[Result]) -> Page:
    """Return the report of a run.

    Args:
        run_id: Of a finished run.
        beside: Recipe or run that it is compared with.
        results: All finished runs.

    Raises:
        CseError: It has no scores, or there is nothing to compare it with.
    """
    subject = find_subject(run_id, results)
    other = None if beside is None else find_beside(subject, beside, results)
    one = again(subject.result, subject.resolved, [subject.result.seed])
    every = again(subject.result, subject.resolved, list(subject.sisters))
    sections = (
        about(subject, one),
        scores(subject),
        beside_paper(subject),
        among_others(subject),
        *(() if other is None else (compared(subject, other),)),
        figures.training(subject, other),
        figures.others(subject),
        surroundings.environment([subject.result], subject.environment),
        surroundings.data(subject.results),
        run_again(subject, one, every),
    )
    which = f"{subject.result.recipe}, seed {subject.result.seed}, run {subject.run.run_id[:8]}"
    return Page(subject.result.title, which, tuple(section for section in sections if section.parts))
