"""What a command line asks for → the report, written.

A report as files: nothing that is there is overwritten unasked, and nothing is left half-written.

A finished run → its report.

The scores of a run and of its sisters, beside the paper's row and among what others measured.

The figures of a run: those it drew when it ended, and those of its seeds together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory
from typing import Any

from cse_cli.analysis import paper_tables as tables
from cse_cli.analysis import papers as printed
from cse_cli.analysis import reproduce as surroundings
from cse_cli.analysis.leaderboard_formats import Text
from cse_cli.analysis.pages import (
    Page,
    Part,
    Picture,
    Remarks,
    Row,
    Section,
    Table,
    Words,
    as_html,
    markdown,
    of_block,
    plain_table,
)
from cse_cli.analysis.paper_tables import own_values
from cse_cli.analysis.report_study import compared, find_beside, study_page
from cse_cli.analysis.reproduce import about, reproduce
from cse_cli.analysis.reproduce import again as run_again
from cse_cli.analysis.reproductions import told
from cse_cli.analysis.runs import Configuration, Side, Subject, doubts, find_run, find_subject
from cse_cli.core.formatting import counted, mean, seed_list, signed
from cse_cli.core.paths import runs
from cse_cli.core.results import Result
from cse_cli.recipe.study import find_study
from cse_cli.tracking import location as tags
from cse_cli.tracking import reader
from registry.errors import CseError
from registry.papers import AVERAGE


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


HTML, MARKDOWN = (".html", ".htm"), (".md", ".markdown")


@dataclass(frozen=True)
class Target:
    """Where a report goes.

    Args:
        path: The page.
        force: Take the place of what is there.
    """

    path: Path
    force: bool = False

    @property
    def figures(self) -> Path:
        """Folder of a Markdown page's figures."""
        return self.path.with_name(f"{self.path.stem}_figures")

    @property
    def is_markdown(self) -> bool:
        """Whether figures lie beside the page."""
        return self.path.suffix.lower() in MARKDOWN

    def check(self) -> None:
        """Refuse what cannot be written, before any work.

        Raises:
            CseError: Another format, a folder that is not there, or files that are there already.
        """
        if self.path.suffix.lower() not in (*HTML, *MARKDOWN):
            raise CseError(f"--output: '{self.path}' is neither HTML nor Markdown", "let it end in .html or .md")
        if not self.path.parent.is_dir():
            raise CseError(f"--output: there is no folder '{self.path.parent}'", "make it, or name another one")
        if self.path.is_dir():
            raise CseError(f"--output: '{self.path}' is a folder", "name a file in it")
        for there in (self.path, *((self.figures,) if self.is_markdown else ())):
            if there.exists() and not self.force:
                raise CseError(f"'{there}' is there already", "--force overwrites it; --output names another file")

    def write(self, page: Page) -> None:
        """Write the page and, beside Markdown, its figures.

        Raises:
            CseError: They cannot be written.
        """
        try:
            if self.is_markdown:
                self._write_markdown(page)
            else:
                _replace(self.path, as_html(page).encode())
        except OSError as error:
            raise CseError(
                f"--output: '{error.filename or self.path}' cannot be written: {error.strerror}",
                "name a file in a folder that can be written",
            ) from error

    def _write_markdown(self, page: Page) -> None:
        if page.pictures:
            self.figures.mkdir(exist_ok=True)
        for picture in page.pictures:
            _replace(self.figures / f"{picture.name}.svg", picture.svg)
        _replace(self.path, markdown(page, self.figures.name).encode())


def _replace(path: Path, content: bytes) -> None:
    """Put a file in its place when it is whole."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


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
    one = reproduce(subject.result, subject.resolved, [subject.result.seed])
    every = reproduce(subject.result, subject.resolved, list(subject.sisters))
    sections = (
        about(subject, one),
        scores(subject),
        beside_paper(subject),
        among_others(subject),
        *(() if other is None else (compared(subject, other),)),
        training(subject, other),
        others(subject),
        surroundings.environment([subject.result], subject.environment),
        surroundings.data(subject.results),
        run_again(subject, one, every),
    )
    which = f"{subject.result.recipe}, seed {subject.result.seed}, run {subject.run.run_id[:8]}"
    return Page(subject.result.title, which, tuple(section for section in sections if section.parts))


VISIBLE = 0.005
"""Spread that two decimals show."""


def scores(subject: Subject) -> Section:
    """Return every seed's scores, mean and spread, and the gain over the encoder before training."""
    runs, result = subject.configuration, subject.result
    return Section("Scores", (Words(_which(subject)), _table(runs, result.seed), Remarks(tuple(_remarks(subject)))))


def _which(subject: Subject) -> str:
    seeds = list(subject.sisters)
    if len(seeds) == 1:
        return f"One run of this recipe has finished, with seed {seeds[0]}: no spread over seeds is known."
    return (
        f"{counted(len(seeds), 'run')} of this very recipe (hash {subject.result.recipe_hash}) have finished, with "
        f"{seed_list(seeds)}; all are shown, the one that finished last of each seed."
    )


def _table(runs: Configuration, own: int) -> Table:
    columns = {name: own_values(runs, name) for name in (*runs.latest.scores, AVERAGE)}
    shown = {name: values for name, values in columns.items() if values}
    before = {name: own_values(runs, name, untrained=True) for name in shown}
    rows = _before(before)
    for place, result in enumerate(runs.results):
        label = f"seed {result.seed}{' (this run)' if result.seed == own and len(runs.results) > 1 else ''}"
        rows.append(_row(label, [f"{values[place]:.2f}" for values in shown.values()], ours=result.seed == own))
    if len(runs.results) > 1:
        rows.append(_row("mean", [f"{fmean(values):.2f}" for values in shown.values()]))
        rows.append(_row("±", [f"{stdev(values):.2f}" for values in shown.values()], below=True))
    if any(before.values()):
        gains = [_gain(values, before[name]) for name, values in shown.items()]
        rows.append(_row("gain over before training", gains))
    return Table("Scores of every seed", tuple(shown), tuple(rows))


def _before(columns: Mapping[str, Sequence[float]]) -> list[Row]:
    """Return the encoder before training; its spread where heads that are drawn by chance give it one."""
    if not any(columns.values()):
        return []
    rows = [_row("before training", [f"{fmean(values):.2f}" if values else "" for values in columns.values()])]
    spreads = [stdev(values) if len(values) > 1 else 0.0 for values in columns.values()]
    if max(spreads) >= VISIBLE:
        rows.append(_row("±", [f"{spread:.2f}" for spread in spreads], below=True))
    return rows


def _row(label: str, cells: Sequence[str], *, ours: bool = False, below: bool = False) -> Row:
    return Row(label, tuple(map(Text, cells)), ours, below)


def _gain(values: Sequence[float], before: Sequence[float]) -> str:
    """Return the mean gain, seed by seed; nothing where the encoder was not scored before training."""
    gains = [after - start for after, start in zip(values, before, strict=False)]
    return signed(fmean(gains)) if before else ""


def _remarks(subject: Subject) -> list[str]:
    result = subject.result
    metrics = {name: next(iter(values)) for name, values in result.scores.items() if values}
    told = [f"{metric} of {', '.join(n for n, m in metrics.items() if m == metric)}" for metric in metrics.values()]
    said = next(iter(metrics.values())) if len(set(metrics.values())) == 1 else "; ".join(dict.fromkeys(told))
    lines = [f"main metric of each evaluator: {said}"]
    if subject.configuration.averages((), "spearman"):
        lines.append("avg: mean of the seven English test sets, each rounded to two decimals first, as in the papers")
    if len(subject.sisters) > 1:
        lines.append("±: sample standard deviation over the seeds")
    if result.select is not None:
        lines.append(f"{result.select} chose the state that is scored: its own score is optimistic")
    return [*lines, *doubts(subject)]


def beside_paper(subject: Subject) -> Section:
    """Return the printed row that the recipe answers with our seeds below it, doubts about it told."""
    runs = subject.configuration
    asked = runs.latest.paper
    if asked is None or (row := printed.find(asked.key, asked.table, asked.row)) is None:
        return Section("Beside the paper", _no_paper(subject))
    block, _ = tables.answered(asked.key, asked.table, [runs])
    kept = tuple(line for line in block.rows if asked.row in (line.answers, line.name))
    cited = Words(f"{row.paper.citation} {row.paper.url}")
    return Section("Beside the paper", (*of_block(block.model_copy(update={"rows": kept})), cited))


def _no_paper(subject: Subject) -> tuple[Part, ...]:
    if subject.result.paper is None:
        return ()
    paper = subject.result.paper
    return (Words(f"Not compared with {paper.key}, {paper.table}, {paper.row}: another model, or no such row today."),)


def among_others(subject: Subject) -> Section:
    """Return where each seed falls in the distribution that others published, where one is known."""
    lines = told(subject.results, notes=True)
    return Section(
        "Among runs by others", (Words(f"{lines[0]}."), Remarks(tuple(lines[1:]), small=False)) if lines else ()
    )


CURVE = "training_curve"
"""Figure of a run that belongs to its training."""
LOSS, PARTS = "train/loss", "loss/"
"""Metrics that are recorded while training."""


def training(subject: Subject, beside: Side | None) -> Section:
    """Return the curves, and what was measured of the method."""
    own = [picture for picture in _drawn(subject) if picture.name == CURVE]
    groups = [(subject.result.recipe, subject.results)]
    groups += [(beside.name, list(beside.runs.values()))] if beside else []
    parts: list[Part] = [*own, *_together(groups), *_losses(subject)]
    names = dict.fromkeys(name for result in subject.results for name in result.measures)
    if names:
        rows = [(name, mean([r.measures[name] for r in subject.results if name in r.measures])) for name in names]
        parts.append(plain_table("What was measured", ("mean ± standard deviation over the seeds",), rows))
    return Section("Training", tuple(parts))


def others(subject: Subject) -> Section:
    """Return the other figures that the run drew."""
    return Section("Figures", tuple(picture for picture in _drawn(subject) if picture.name != CURVE))


def _drawn(subject: Subject) -> list[Picture]:
    """Return the figures that the run drew, from its folder on this machine or else from the store."""
    run_id = subject.run.run_id
    here = [f"figures/{path.name}" for path in sorted((runs() / run_id / "figures").glob("*.svg"))]
    kept = here or [name for name in subject.details.artifacts if name.startswith("figures/") and name.endswith(".svg")]
    texts = {Path(name).stem: reader.text_of(run_id, name) for name in kept}
    alt = f"{subject.result.title}, seed {subject.result.seed}"
    return [Picture(name, f"{_words(name)}: {alt}", text.encode()) for name, text in texts.items() if text]


def _words(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _together(groups: Sequence[tuple[str, Sequence[Result]]]) -> list[Picture]:
    """Return the dev score by step over all seeds, a line a recipe; nothing where one seed is all there is."""
    from cse_cli.analysis.run_figures import unit  # matplotlib: only where something is drawn
    from cse_cli.analysis.study_figures import Labels, curves
    from cse_cli.analysis.study_points import Curve
    from cse_cli.core.plotting import Heading

    select = groups[0][1][0].select
    of_all = [(name, [r for r in results if r.curve and r.select == select]) for name, results in groups]
    found = []
    for name, results in of_all:
        steps = tuple(step for step in (results[0].curve if results else ()) if all(step in r.curve for r in results))
        if steps:
            scores = tuple(tuple(result.curve[step] for step in steps) for result in results)
            found.append(Curve(name, steps, scores, (), ()))
    if select is None or sum(len(curve.scores) for curve in found) < 2:
        return []
    labels = Labels("step", unit(select.rpartition(".")[2]), "")
    seeds = " and ".join(str(len(curve.scores)) for curve in found)
    heading = Heading(f"Training curves: {select}", ", ".join(c.label for c in found), f"{seeds} seeds, mean ± std")
    return _picture("training_curves_of_all_seeds", heading.title, lambda: curves(found, labels, heading))


def _losses(subject: Subject) -> list[Picture]:
    """Return what this run minimised."""
    from cse_cli.analysis.study_figures import losses
    from cse_cli.core.plotting import Heading

    recorded = subject.details.curves
    if LOSS not in recorded:
        return []
    parts = {name.removeprefix(PARTS): points for name, points in recorded.items() if name.startswith(PARTS)}
    heading = Heading("Loss", f"{subject.result.title}, seed {subject.result.seed}")
    return _picture("loss", "Loss by step", lambda: losses(recorded[LOSS], parts, heading))


def _picture(name: str, alt: str, draw: Callable[[], Any]) -> list[Picture]:
    from cse_cli.core.plotting import save, styled

    with TemporaryDirectory() as folder, styled():
        files = save(draw(), Path(folder) / name)
        return [Picture(name, alt, path.read_bytes()) for path in files if path.suffix == ".svg"]
