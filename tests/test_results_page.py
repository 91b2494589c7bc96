"""The numbers of the pages on studies follow from the records in the repository."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import fmean

import pytest

from cse_cli.core.formatting import mean_text
from cse_cli.runs.index import RecordedRun, all_runs
from tests.support.command import cse, exit_code_of

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs/results"


def tables(text: str) -> list[tuple[str, ...]]:
    """Return the cells of every table row that contains a number."""
    rows = (line.strip("| \n").split("|") for line in text.splitlines() if line.startswith("| "))
    return [tuple(cell.strip() for cell in row) for row in rows if re.search(r"\d", "".join(row))]


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a state directory with the records of three pages, and with a report of each of their studies."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CSE_HOME", str(home))
        patch.setenv("CSE_MIRRORS", "none")
        patch.chdir(ROOT)
        for archive in ("methods", "methods_wiki", "composition"):
            assert exit_code_of("runs", "import", str(RESULTS / "records" / f"{archive}.zip")) == 0
        for study in ("methods", "methods_wiki", "composition", "composition_wiki"):
            assert exit_code_of("report", f"studies/open/{study}", "--output", str(home / f"{study}.md")) == 0
    return home


@pytest.mark.docs
@pytest.mark.xdist_group("reported")
@pytest.mark.parametrize(
    ("page", "first", "studies", "count"),
    [
        ("one_budget", "Result", ["methods"], 186),
        ("one_budget_wiki", "Result", ["methods_wiki"], 213),
        ("composition", "Tatoeba", ["composition", "composition_wiki"], 32),
    ],
)
def test_a_page_has_the_numbers_of_the_records(
    page: str, first: str, studies: list[str], count: int, reported: Path
) -> None:
    made = {row for study in studies for row in tables((reported / f"{study}.md").read_text(encoding="utf-8"))}
    text = (RESULTS / f"{page}.md").read_text(encoding="utf-8")
    shown = tables(text[text.index(f"## {first}") : text.index("## What follows")])
    assert len(shown) == count
    assert [row for row in shown if row not in made] == []


def chosen(report: str) -> dict[str, str]:
    """Return row → settings that its trials chose."""
    start = report.index("| row | trials | chosen |")
    rows = tables(report[start : report.index("\n\n", start)].replace("\\", ""))
    return {name: settings for name, _, settings in rows}


@pytest.mark.docs
@pytest.mark.xdist_group("reported")
def test_statements_follow_from_the_records(reported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What training adds to each row's start, and the values of the switches that trials chose."""
    monkeypatch.setenv("CSE_HOME", str(reported))
    pages = {name: (RESULTS / f"{name}.md").read_text(encoding="utf-8") for name in ("one_budget", "one_budget_wiki")}
    values = []
    for study, page in zip(("methods", "methods_wiki"), pages.values(), strict=True):
        runs = [run for run in all_runs() if re.fullmatch(f"studies/open/{study}/[^·]+/", run.about.study or "")]
        gains: dict[str, list[float]] = {}
        for run in runs:
            assert run.result is not None
            if run.result.steps:
                before, after = run.result.untrained["dev"]["spearman"], run.result.scores["dev"]["spearman"]
                gains.setdefault(run.about.study or "", []).append(after - before)
                assert run.result.selected_step in (20, 40, 60)
        rows = [fmean(of_row) for of_row in gains.values()]
        every = [gain for of_row in gains.values() for gain in of_row]
        assert f"Of {len(rows)} rows, {sum(gain < 0 for gain in rows)} end" in page
        assert f"so do {sum(gain < 0 for gain in every)} of {len(every)} runs" in page
        values.append(chosen((reported / f"{study}.md").read_text(encoding="utf-8")))
    text = pages["one_budget"]
    switches = tables(text[text.index("## Which variant") : text.index("## What does not follow")])
    assert len(switches) == 8
    for row, _, _, *cells in switches:
        for settings, cell in zip(values, cells, strict=True):
            assert settings[row].replace('"', "").endswith(f"={cell}") if cell != "—" else row not in settings


@pytest.mark.docs
def test_starts_and_the_shuffled_view(home: Path) -> None:
    """Untrained read-outs of two rows, and SimCSE whose positive has shuffled words."""
    assert exit_code_of("runs", "import", str(RESULTS / "records" / "starts.zip")) == 0
    averages: dict[str, list[float]] = {}
    for run in all_runs():
        assert run.result is not None
        average = run.result.average()
        assert average is not None
        averages.setdefault(run.about.recipe, []).append(average)
    page = (RESULTS / "one_budget.md").read_text(encoding="utf-8")
    assert f"that read-out has {averages['mini/consert_en'][0]:.2f}" in page
    shuffled = mean_text(averages["mini/simcse_en"])
    assert f"has {shuffled} on the seven sets" in page
    composition = (RESULTS / "composition.md").read_text(encoding="utf-8")
    (start,) = averages["mini/composed_en"]
    assert f"the composition has {start:.2f}" in composition
    for mean, words in ((65.26, "training adds {} points there"), (63.57, "takes {} away on Wikipedia")):
        assert words.format(f"{abs(mean - start):.2f}") in composition


@pytest.mark.docs
def test_the_lengths_of_the_queue(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of("runs", "import", str(RESULTS / "records" / "queue_length.zip")) == 0
    code, out, _ = cse("compare", "studies/open/queue_length", capsys=capsys)
    assert code == 0
    made = {tuple(re.split(r" {2,}", line)) for line in out.splitlines()}
    text = (RESULTS / "queue_length.md").read_text(encoding="utf-8")
    shown = tables(text[text.index("## Result") : text.index("## What follows")])
    assert [row[0] for row in shown] == ["M=320", "M=384", "M=416", "M=448", "M=512"]
    for name, _, *measured in shown:
        verdict = "—" if len(measured) > 3 else "baseline"
        assert (name, *filter(None, measured), verdict) in made


TRAINED_ON_A_GPU = {"continued": "mini_en, continued", "long": "4 × 192", "w256": "3 × 256", "w384": "2 × 384"}
"""Directory of an encoder → its row. These runs have no tags."""


def pretrained(run: RecordedRun) -> tuple[str, str] | None:
    """Return the row of a run of SimCSE and its pooling, or None for the run of an encoder."""
    if "pretraining" in run.about.tags:
        return run.about.tags["pretraining"], run.about.tags["pooling"]
    options = " ".join(run.about.changes)
    found = re.search(r"encoders\.online\.model=/tmp/gpu4/(\w+)/model", options)
    return found and (TRAINED_ON_A_GPU[found[1]], "first_last" if "pooling=first_last" in options else "mean")


@pytest.mark.docs
def test_a_better_start_than_mini_en(home: Path) -> None:
    assert exit_code_of("runs", "import", str(RESULTS / "records" / "pretraining.zip")) == 0
    before: dict[tuple[str, str], float] = {}
    after: dict[tuple[str, str], list[float]] = {}
    for run in all_runs():
        if (key := pretrained(run)) and run.result is not None:
            before[key] = run.result.untrained["dev"]["spearman"]
            after.setdefault(key, []).append(run.result.scores["dev"]["spearman"])
    assert {len(scores) for scores in after.values()} == {3}
    text = (RESULTS / "pretraining.md").read_text(encoding="utf-8").replace("*", "").replace("`", "")
    shown = tables(text[text.index("## Result") : text.index("## What follows")])
    assert len(shown) == len(after) / 2 == 11
    for name, *cells in shown:
        keys = [(name, pooling) for pooling in ("mean", "first_last")]
        assert cells == [f"{before[key]:.2f}" for key in keys] + [mean_text(after[key]) for key in keys]
