"""Report and figure of the differences between the rows of a study."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from cse_cli.analysis.compare import compare_rows
from cse_cli.analysis.compare_view import summary_lines
from cse_cli.analysis.experiments import read_finished_runs
from cse_cli.analysis.study_figures import draw_differences, study_figure
from cse_cli.analysis.tables import StudyRuns, study_runs
from cse_cli.core.plotting import CHOSEN, COLUMN, MEASURED, PAGE, UNTRAINED, Heading, figure_style
from cse_cli.core.results import STS_TASKS
from cse_cli.recipe.study import load_study
from cse_cli.recipe.trials import trials
from tests.cse_cli.analysis import compared_study as mine
from tests.cse_cli.analysis.compared_study import record_row, record_rows, write_study
from tests.cse_cli.analysis.recorded import record
from tests.support.command import cse

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("folder", "home")]
FIGURE = '[study.figure]\nx = "difference"\n'
ORDER = ["cold", "colder", "warm", "plain", "hot [red]one"]


def report(capsys) -> str:
    code, out, err = cse("report", mine.STUDY, "--output", "mine.md", "--force", capsys=capsys)
    assert (code, err) == (0, "")
    return Path(out.strip()).read_text(encoding="utf-8")


def section(page: str, title: str) -> str:
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def found() -> StudyRuns:
    return study_runs(load_study(mine.STUDY), read_finished_runs())


def drawn(runs: StudyRuns) -> Figure:
    with figure_style():
        figure = study_figure(runs)
        assert figure is not None
        figure.draw_without_rendering()
    return figure


def names_of(figure: Figure) -> list[str]:
    return [label.get_text() for label in figure.axes[0].get_yticklabels()]


def test_the_report_has_the_differences_and_the_figure(capsys, folder):
    write_study(tables=FIGURE)
    record_rows(mine.ROWS[:4])
    page = report(capsys)
    assert re.findall(r"^## (.+)$", page, re.MULTILINE)[:5] == [
        "What was run", "Scores", "Differences", "Figure", "Cells"
    ]  # fmt: skip
    part = section(page, "Differences")
    assert "avg, compared with plain: of 3 methods, 1 better, 1 worse, 1 without a significant difference" in part
    rows = [line for line in part.split("\n") if line.startswith("| ")]
    assert [row.split(" | ")[0] for row in rows[2:]] == [
        "| cold", "| warm", "| plain", r"| hot \[red\]one"
    ]  # fmt: skip
    assert rows[2].startswith("| cold | 5 | 64.40 ± 0.20 | **+4.00** | +3.")
    assert rows[4] == "| plain | 5 | 60.40 ± 0.21 | 0.00 |  |  | baseline |"
    assert f"1 row without finished runs, `cse run {mine.STUDY}`: colder".replace("`", r"\`") in part
    assert "that papers report" not in part
    assert [path.name for path in (folder / "mine_figures").iterdir()] == ["mine.svg"]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (mine.ROWS[1:3], "its first one, 'plain', which has no finished run"),
        (mine.ROWS[:1], "only row 'plain' of the study"),
    ],
)
def test_a_report_says_why_nothing_is_compared(capsys, rows, reason):
    write_study(tables=FIGURE)
    record_rows(rows)
    page = report(capsys)
    assert f"Not compared: {'all' if rows != mine.ROWS[:1] else 'cse'}" in section(page, "Differences")
    assert reason in section(page, "Differences")
    assert "## Figure" not in page


def test_the_report_of_a_tuned_study_has_the_chosen_settings_and_the_cost(capsys):
    write_study(mine.ROWS[:2], row='tune = { "encoders.online.freeze" = [[], ["embeddings"]] }')
    tried = trials(load_study(mine.STUDY))
    for place in (0, 1, 3):
        scores = {"stsb_dev": {"spearman": 70.0 + place}}
        record(mine.RECIPE, 0, recipe_hash=tried[place].cell.hash, scores=scores, seconds=600.0)
        if place < 2:  # the trials of a row that have not finished leave a cell without runs
            chosen = ("[]", '["embeddings"]')[place]
            overrides = [f"{mine.KEY}={mine.VALUES['plain']}", f"encoders.online.freeze={chosen}"]
            record_row("plain", overrides=overrides, seconds=720.0)
            assert re.search(r"\| cells \| 2 × \d+ seeds?; 1 complete \|", report(capsys))
    record_row(mine.ROWS[1], overrides=[f"{mine.KEY}={mine.VALUES[mine.ROWS[1]]}", overrides[1]], seconds=720.0)
    page = report(capsys)
    assert "Training took 0.5 h for 3 trials and 2.0 h for 10 runs, with its evaluations." in section(page, "Cells")
    part = section(page, "Chosen settings").replace("\\", "")
    assert "Settings with the best mean dev score of seed 0" in part
    assert '| plain | 2 | encoders.online.freeze=["embeddings"] |' in part
    assert '| hot [red]one | 1 of 2 | encoders.online.freeze=["embeddings"] |' in part


def test_the_report_has_each_rows_gain_over_its_own_start(capsys):
    """Dev of plain's seeds: 60.0 + (0, 0.3, −0.2, 0.1, −0.2). Two are below 59.9, as two of warm's and all of hot's."""
    write_study(mine.ROWS[:3])
    starts = {"plain": 59.9, "hot [red]one": 58.3, "warm": 60.05}
    for row, start in starts.items():
        untrained = {"stsb_dev": {"spearman": start}}
        record_row(row, untrained=untrained, metric_for_best_model="stsb_dev.spearman", seconds=50.0)
    part = section(report(capsys), "Gain over the start").replace("\\", "")
    rows = [line for line in part.split("\n") if line.startswith("| ")][2:]
    assert rows == [
        "| plain | mean | 2 | 50 | 59.90 | 60.00 ± 0.21 | +0.10 |",
        "| warm | mean | 2 | 50 | 60.05 | 60.10 ± 0.29 | +0.05 |",
        "| hot [red]one | mean | 2 | 50 | 58.30 | 58.00 ± 0.23 | −0.30 |",
    ]
    assert "below their own start: 1 of 3 rows, and the selected state of 9 of 15 runs" in part
    assert "rank correlation of stsb_dev and score over 3 rows: +1.00" in part


def test_word_overlap_is_a_row_without_a_test_and_equal_scores_are_no_seeds(capsys, monkeypatch):
    """60.4 is plain's mean of the seven sets, so that an overlap of 61.1 on each is +0.70."""
    monkeypatch.setitem(mine.SHIFTS, "warm", (0.0,) * 5)  # as without training
    write_study(mine.ROWS[:3], tables=FIGURE)
    overlap = {task: {"spearman": 61.1} for task in STS_TASKS}
    for row in mine.ROWS[:3]:
        record_row(row, word_overlap=overlap)
    page = report(capsys)
    part = section(page, "Differences")
    assert "| Word overlap | no seeds | 61.10 | +0.70 |  |  | no encoder |" in part
    assert "of 2 methods, 1 worse" in part
    assert "| warm | no seeds | 60.50 | " in part
    assert "no seeds: the score does not depend on the seed" in part
    assert "| warm | 5 | 60.50 |\n| word overlap |  | 61.10 |" in section(page, "Scores")  # without ±
    figure = drawn(found())
    assert names_of(figure)[0] == "Word overlap"
    assert "compared with plain; 5 seeds" in "".join(text.get_text() for text in figure.texts)


def write_reported(reported: dict[str, str]) -> None:
    """Write the study with `reported` for some rows."""
    write_study(reported)
    text = Path(mine.STUDY).read_text(encoding="utf-8")
    for row, recipe in reported.items():
        if recipe:
            text = text.replace(f'row = "{row}"', f'row = "{row}"\nreported = "{recipe}"')
    Path(mine.STUDY).write_text(text, encoding="utf-8")


def test_the_report_has_the_reported_differences(capsys):
    """SimCSE 76.25, RankCSE 80.36, PCL 78.14 and the first-last average 56.70; one row has no `reported`."""
    reported = {
        "plain": "simcse_en",
        "warm": "bert_avg_en",
        "cold": "pcl_en",
        "hot [red]one": "rankcse_list_mle_en",
        "colder": "",
    }
    write_reported(reported)
    record_rows()
    part = section(report(capsys), "Differences").partition("that papers report")[2].replace("\\", "")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.split("\n") if "| " in line]
    assert [row[:3] for row in rows[2:]] == [
        ["hot [red]one", "+4.11", "−2.00"], ["cold", "+1.89", "+4.00"], ["warm", "−19.55", "+0.10"]
    ]  # fmt: skip
    assert "reported gains: 2; excluded by the interval: 2; measured as a significant gain: 1" in part
    assert "over 3 rows: −0.50" in part


def write_extension(more: str = "") -> None:
    Path("longer.toml").write_text(f'[study]\nextends = "mine.toml"\ntitle = "Longer"\nset = ["train.steps=7"]\n{more}')


def record_extension(row: str, shift: float = 0.0) -> None:
    record_row(row, overrides=["train.steps=7", f"{mine.KEY}={mine.VALUES[row]}"], shift=shift)


def report_of_extension(capsys) -> str:
    code, out, err = cse("report", "longer.toml", "--output", "longer.md", "--force", capsys=capsys)
    assert (code, err) == (0, "")
    return section(Path(out.strip()).read_text(encoding="utf-8"), "Differences").replace("\\", "")


def test_the_report_has_the_same_rows_in_the_study_that_it_extends(capsys):
    """Here "cold" is no longer better, "hot" is still worse, "warm" is now better, and "colder" has not run."""
    write_study()
    record_rows()
    write_extension()
    for row, shift in {"plain": 0.0, "cold": -4.0, "hot [red]one": 0.5, "warm": 5.0}.items():
        record_extension(row, shift)
    part = report_of_extension(capsys).partition("The same rows in mine, which this study extends")[2]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.split("\n") if "| " in line]
    assert rows[2:] == [
        ["warm", "+0.10", "—", "+5.10", "better"],
        ["cold", "+4.00", "better", "+0.00", "—"],
        ["hot [red]one", "−2.00", "worse", "−1.50", "worse"],
    ]
    assert "- the same verdict in both: 1 of 3 rows" in part
    assert "- rank correlation over 3 rows: +0.50 (p = 1.000)" in part


@pytest.mark.parametrize(("there", "omitted", "first"), [(["plain"], "", "plain"), (mine.ROWS, "plain", "cold")])
def test_nothing_is_repeated_if_the_other_study_compares_nothing_or_with_another_row(capsys, there, omitted, first):
    write_study(["plain", "cold", "warm", "colder"])
    record_rows([row for row in there if row != "hot [red]one"])
    write_extension(f'omit = ["{omitted}"]\n' if omitted else "")
    for row in ("plain", "cold", "warm"):
        record_extension(row)
    assert f"compared with {first}: of " in (page := report_of_extension(capsys))
    assert "which this study extends" not in page


def test_a_figure_has_one_sorted_row_for_each_method_with_its_corrected_interval():
    write_study(tables=FIGURE)
    record_rows()
    runs = found()
    figure = drawn(runs)
    (axes,) = figure.axes
    assert names_of(figure) == ORDER
    assert axes.get_ylim() == (4.5, -0.5)  # the best one is on top
    assert axes.get_xlabel() == "difference, mean Spearman × 100"
    lines = {one.get_label(): one for one in axes.containers}
    assert list(lines) == ["better", "not significant", "worse", "baseline"]
    colors = {label: to_hex(one.lines[0].get_color()) for label, one in lines.items()}
    assert [colors[label] for label in ("better", "not significant", "worse")] == [
        color.lower() for color in (MEASURED, UNTRAINED, CHOSEN)
    ]  # fmt: skip
    assert list(lines["better"].lines[0].get_xdata()) == pytest.approx([4.0, 1.0])
    assert list(lines["baseline"].lines[0].get_ydata()) == [3]
    document = compare_rows(runs, mine.STUDY, "avg")
    over = {line.name: line.tested.over_seeds for line in summary_lines(document, "avg") if line.tested}
    (ends,) = lines["worse"].lines[2][0].get_segments()
    assert ends[:, 0] == pytest.approx([over["hot [red]one"].low, over["hot [red]one"].high])
    assert ends[1, 0] < 0


def test_a_metric_of_the_figure_and_missing_rows():
    write_study(tables=f'{FIGURE}y = "test.spearman"\nxlabel = "gain"\n')
    record_rows(mine.ROWS[:3])
    figure = drawn(found())
    assert names_of(figure) == ["warm", "plain", "hot [red]one"]
    assert figure.axes[0].get_xlabel() == "gain"
    texts = [text.get_text() for text in figure.texts]
    assert texts == [
        "Mine", "compared with plain; 5 seeds; 2 intervals with 95 %", "together", "2 of 5 rows have no finished runs"
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["a short method {}", "A method with quite a long name, {}"])
def test_many_rows_are_readable(name):
    write_study(tables=FIGURE)
    record_rows(mine.ROWS[:2])
    lines = summary_lines(compare_rows(found(), mine.STUDY), "avg") * 26
    lines = [one._replace(name=name.format(place)) for place, one in enumerate(lines)]
    with figure_style():
        figure = draw_differences(lines, "difference, mean Spearman × 100", Heading("Many", "of them"))
        figure.draw_without_rendering()
    labels = [label.get_window_extent() for label in figure.axes[0].get_yticklabels()]
    assert len(labels) == 52
    assert all(one.y0 > other.y1 for one, other in pairwise(labels))  # none overlaps the next
    assert figure.get_figwidth() == (COLUMN if len(name) < 20 else PAGE)
    inside = figure.get_tightbbox()
    assert inside.x0 >= -0.02
    assert inside.x1 <= figure.get_figwidth() + 0.02
