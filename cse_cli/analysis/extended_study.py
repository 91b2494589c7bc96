"""Differences from the first row of a study, next to those in the study that it extends: do they hold there, too?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cse_cli.analysis.compare import ComparisonDocument
from cse_cli.analysis.compare_summary import baseline_of, summary_lines
from cse_cli.analysis.methods import compare_rows
from cse_cli.analysis.paper_tables import study_runs, trend
from cse_cli.analysis.verdict import p_text
from cse_cli.core.formatting import counted, signed
from cse_cli.core.results import Result
from cse_cli.core.tables import Table, plain_table
from cse_cli.recipe.study import load_study, origins_of
from cse_cli.recipe.study_schema import Study
from registry.errors import CseError


def extended_parts(
    study: Study, document: ComparisonDocument, results: Sequence[Result], tags: Mapping[str, str]
) -> list[str | Sequence[str] | Table]:
    """Return the table of the rows that both studies compare, and how far they agree, as parts of a report.

    Empty if the study extends none, or the two do not compare by the same metric with the same first row.
    """
    sources = origins_of(study.path).sources
    if len(sources) == 1:
        return []
    extended = load_study(str(sources[1].path))
    name = extended.name
    try:
        other = compare_rows(study_runs(extended, results, tags), name, extended.score)
    except CseError:
        return []
    metric = document.comparisons[0].main.metric
    there = {line.name: line for line in summary_lines(other, metric) if line.tested is not None}
    pairs = [(there[line.name], line) for line in summary_lines(document, metric) if line.name in there]
    if not pairs or baseline_of(other) != baseline_of(document):
        return []
    rows = [(b.name, signed(a.difference), a.verdict, signed(b.difference), b.verdict) for a, b in pairs]
    same = sum(a.verdict == b.verdict for a, b in pairs)
    lines = [f"the same verdict in both: {same} of {counted(len(pairs), 'row')}"]
    along = trend(metric, [b.difference for _, b in pairs], [a.difference for a, _ in pairs])
    if along is not None and along.p is not None:
        lines.append(f"rank correlation over {along.n} rows: {signed(along.rho)} ({p_text(along.p)})")
    about = f"The same rows in {name}, which this study extends. Each study corrects for its own comparisons:"
    return [about, plain_table(["row", "there", "", "here", ""], rows, align="prlrl"), lines]
