"""What a command line asks for → the report, written."""

from __future__ import annotations

from pathlib import Path

from cse_cli.report.run import run_page
from cse_cli.report.study import study_page
from cse_cli.report.subject import find_run
from cse_cli.report.write import Target
from cse_cli.study.load import find_study
from cse_cli.tracking import reader, tags
from registry.errors import CseError


def report(asked: str, output: Path | None, beside: str | None, *, force: bool) -> Path:
    """Write the report of a run or a study and return its file.

    Args:
        asked: The beginning of a run's id, its name, or the name or path of a study.
        output: Ends in ".html" or ".md"; None is a name of its own in the working directory.
        beside: Recipe or run that a run is compared with.
        force: Overwrite what is there.

    Raises:
        CseError: There is nothing to report, or nowhere to write it.
    """
    study = find_study(asked)
    if study is not None and beside is not None:
        raise CseError("--beside is for a run: a study stands beside its paper", "`cse compare` compares recipes")
    results = reader.finished_results()
    run_id = None if study is not None else find_run(asked, results)
    name = study.stem if study is not None else str(run_id)[:8]
    target = Target(output or Path(f"report-{name}.html"), force)
    target.check()
    if run_id is None:
        made_for = {run.run_id: run.tags[tags.STUDY] for run in reader.list_names() if tags.STUDY in run.tags}
        page = study_page(asked, results, made_for)
    else:
        page = run_page(run_id, beside, results)
    target.write(page)
    return target.path
