"""`cse report` from the command line, over recorded runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cse_cli.analysis.methods import find_method
from cse_cli.analysis.report import find_reported_run
from cse_cli.core.results import STS_TASKS, PaperRow
from cse_cli.jobs.screen import print_results
from cse_cli.recipe.files import all_recipes
from cse_cli.runs.index import all_runs, finished_results
from cse_cli.runs.record import folder_of
from tests.cse_cli.analysis.recorded import record
from tests.cse_cli.analysis.report_runs import Seen
from tests.support.command import cse, refused
from tests.support.records import recorded

A, B = "mini/simcse_en", "mini/ifcl_en"
PRIVATE = "/home/somebody/secret"
IFCL = PaperRow(key="ifcl", table="sts_en", row="IFCL-BERT base")
FLAT = {task: {"spearman": 70.0} for task in STS_TASKS}


@pytest.fixture(autouse=True)
def folder(folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.setenv("COLUMNS", "100")
    return folder


def report(capsys, *arguments: str) -> str:
    """Return the page that is written."""
    code, out, err = cse("report", *arguments, capsys=capsys)
    assert (code, err) == (0, "")
    return Path(out.strip()).read_text(encoding="utf-8")


def surroundings(run_id: str) -> None:
    """Put beside a run what it notes of its surroundings, and a figure."""
    place = folder_of(run_id)
    (place / "figures").mkdir(parents=True)
    (place / "figures" / "tasks_spearman.svg").write_text('<svg width="237.6pt"></svg>')
    settings = {"OMP_NUM_THREADS": "2", "CSE_HOME": PRIVATE, "CSE_DATA": f"{PRIVATE}/data"}
    noted = {"platform": "Linux", "cpus": 4, "memory_gb": 8.0, "settings": settings, "packages": ["torch==2"]}
    (place / "environment.json").write_text(json.dumps(noted))


def headings(page: str) -> list[str]:
    return re.findall(r"^## (.+)$", page, re.MULTILINE)


@pytest.mark.slow
def test_the_numbers_of_the_scores(capsys):
    for seed, score in enumerate((50.0, 52.0)):
        before = {"stsb": {"spearman": 40.0 + seed}}
        last = record(A, seed, scores={"stsb": {"spearman": score}}, untrained=before)
    page = report(capsys, last, "--output", "one.md")
    rows = {cells[1].strip(): cells[2].strip() for line in page.split("\n") if len(cells := line.split("|")) == 6}
    # Means (50 + 52) / 2 and (40 + 41) / 2; standard deviation √2; gains 10 and 11.
    assert (rows["untrained"], rows["seed 0"], rows["seed 1"]) == ("40.50", "50.00", "52.00")
    assert (rows["mean"], rows["&emsp;±"], rows["gain"]) == ("51.00", "1.41", "+10.50")
    print_results([one.result for one in reversed(all_runs()) if one.result])
    printed = {line[:10].strip(): line[10:].split()[0] for line in capsys.readouterr().out.splitlines()[2:6]}
    assert printed == {name: rows[name] for name in ("untrained", "seed 0", "seed 1", "mean")}


@pytest.mark.slow
def test_beside_another_recipe(capsys):
    for seed in range(3):
        record(A, seed, noise=1.5)
        own = record(B, seed, noise=1.0)
    page = report(capsys, own, "--baseline", A, "--output", "one.md")
    section = page.partition(f"## Comparison with {A}")[2].partition("\n## ")[0]
    assert f"- A: {A}, 3 runs, seeds 0–2" in section
    assert f"- B: {B} (this report), 3 runs, seeds 0–2" in section
    assert re.search(r"\| avg \| B is better by \d", section)
    assert "| avg | 560 |" in section  # seven sets of 80 pairs
    assert "| queue | — |" in section


@pytest.mark.slow
def test_nothing_private_is_in_it_and_html_is_the_default(capsys, home, folder):
    run_id = record(A, 0, title='<b>"bold"</b>')
    surroundings(run_id)
    for arguments in (("--output", "one.md"), ()):
        page = report(capsys, run_id, *arguments)
        assert PRIVATE not in page
        assert str(home) not in page
        assert "CSE_DATA named" in page
    assert {path.name for path in folder.iterdir()} == {f"report-{run_id[:8]}.html", "one.md", "one_figures"}
    seen = Seen(page)
    assert "".join(seen.text).count('<b>"bold"</b>') >= 2
    assert all(address.startswith("data:") for address in seen.values("src", "href"))
    assert len(seen.values("alt")) == 1


@pytest.mark.slow
def test_beside_the_paper_with_doubts(capsys):
    for seed in range(3):
        last = record("ifcl_en", seed, paper=IFCL, model="bert-base-uncased", scores=FLAT)
    page = report(capsys, last, "--output", "one.md")
    section = page.partition("## Comparison with the paper")[2].partition("\n## ")[0]
    rows = [line.split("|")[1].strip() for line in section.split("\n") if line.startswith("|")][2:]
    labels = [row.partition(" \\[")[0].rpartition(": ")[2] for row in rows]
    assert labels == ["IFCL-BERT base", "ifcl_en, bert-base-uncased", "&emsp;to IFCL-BERT base"]
    assert "| 77.80 |" in section
    assert "−7.80▼" in section
    assert "82.35?" in section
    assert "VaSCL's 80.57 is higher" in section
    assert "arXiv:2307.10932" in section


@pytest.mark.slow
def test_another_model_answers_no_row_and_a_recipe_is_among_the_runs_of_others(capsys):
    own = record("ifcl_en", 0, paper=IFCL, overrides=['encoders.online.model="bert-large-uncased"'], model="mini_en")
    page = report(capsys, own, "--output", "one.md")
    assert "Not compared with ifcl, sts_en, IFCL-BERT base" in page
    other = record("simcse_en", 0, scores={task: {"spearman": 75.0} for task in STS_TASKS})
    page = report(capsys, other, "--output", "two.md")
    section = page.partition("## Reference distribution")[2].partition("\n## ")[0]
    assert "50 independent runs of SimCSE" in section
    assert "another implementation (Tsukagoshi 2022)" in section
    assert "- seed 0: avg 75.00, 45th percentile; " in section


def test_nothing_is_overwritten_without_force(capsys, folder):
    run_id = record(A, 0)
    (folder / "mine.md").write_text("mine")
    (folder / "yours_figures").mkdir()
    for output, existing in (("mine.md", "'mine.md'"), ("yours.md", "'yours_figures'")):
        error = refused("report", run_id, "--output", output)
        assert error.code == "report.exists"
        assert existing in error.message
    assert (folder / "mine.md").read_text() == "mine"
    assert "## Scores" in report(capsys, run_id, "--output", "mine.md", "--force")
    assert {path.name for path in folder.iterdir()} == {"mine.md", "yours_figures"}


@pytest.mark.parametrize(
    ("arguments", "code", "value"),
    [
        ((f"{A} seed 0", "--baseline", "studies/mini/ifcl_queue_length"), "report.baseline_is_study", "study"),
        (("studies/mini/ifcl_queue_length",), "report.no_finished_run", "cse run studies/mini/ifcl_queue_length"),
        ((f"{A}@7",), "compare.no_finished_run", "only with 0, 1"),
        (("mini/simcse_en seed 0", "--output", "dir.md"), "report.is_directory", "dir.md/report.html"),
        (("mini/simcse_en seed 0", "--baseline", A), "", "share run"),
        (("mini/simcse_en seed 0", "--baseline", "mini/simcse_en seed 1"), "report.same_experiment", "'"),
        (("broken",), "report.no_scores", "FAILED"),
    ],
)
def test_errors_name_the_next_step(folder, arguments, code, value):
    record(A, 0)
    record(A, 1)
    recorded(name="broken", end="failed", recipe=A)
    (folder / "dir.md").mkdir()
    error = refused("report", *arguments)
    assert value in str(error)
    assert error.code == code or not code
    assert [path.name for path in folder.iterdir()] == ["dir.md"]


def test_a_recipe_is_named_as_in_compare():
    first, second = record(A, 0), record(A, 1)
    record(A, 5, overrides=["train.steps=3"])  # not the current settings
    results = finished_results()
    file = str(all_recipes()[A])
    for argument, run_id in ((A, second), (f"{A}@0", first), (file, second), (first[:8], first)):
        assert find_reported_run(argument, results) == run_id
        assert run_id in {run.run_id for run in find_method(argument, results).runs.values()}


@pytest.mark.slow
def test_a_study_beside_its_paper(capsys, folder):
    for length, noise in ((320, 2.0), (384, 1.5), (416, 1.0)):
        for seed in range(2):
            record(B, seed, noise=noise, overrides=[f"queue.length={length}"], evaluators=("dev", "test"))
    page = report(capsys, "studies/mini/ifcl_queue_length", "--output", "study.md")
    assert headings(page) == [
        "What was run", "Comparison with the paper", "Figure", "Cells", "Environment", "Data", "Reproduce"
    ]  # fmt: skip
    assert "| cells | 5 × 3 seeds; 0 complete |" in page
    assert re.search(r"rank correlation .* \+1.00 \(n = 3", page)
    assert "M=448 · STS-B, M=512 · STS-B without runs" in page
    assert re.search(r"\| M=320 · STS-B \| mini/ifcl_en \| --set queue.length=320 \| \w{8} \| 0, 1 \|", page)
    assert "cse run studies/mini/ifcl_queue_length" in page
    assert [path.name for path in (folder / "study_figures").iterdir()] == ["ifcl_queue_length.svg"]


@pytest.mark.slow
def test_a_free_study(capsys, folder):
    (folder / "mine.toml").write_text(
        '[study]\ntitle = "Mine"\nrecipe = "mini/ifcl_en"\nseeds = 2\nscore = "test.spearman"\n'
        '[study.grid]\n"queue.length" = [320, 384]\n'
    )
    for seed, score in enumerate((50.0, 52.0)):
        overlap = {"test": {"spearman": 57.0}}
        record(B, seed, overrides=["queue.length=320"], scores={"test": {"spearman": score}}, word_overlap=overlap)
    page = report(capsys, "mine.toml")
    assert (folder / "report-mine.html").exists()
    shown = " ".join("".join(Seen(page).text).split())
    assert "n test.spearman queue.length=320 2 51.00 ± 1.41 queue.length=384 word overlap 57.00" in shown
    assert "queue.length=384 without runs" in shown


# Texts of the command.


@pytest.mark.slow
def test_report_of_a_run(capsys, snapshot):
    before = {"stsb": {"spearman": 40.0}}
    for seed in range(2):
        run_id = record(B, seed, overrides=["queue.length=320"], evaluators=["stsb"], untrained=before)
    surroundings(run_id)
    page = report(capsys, run_id, "--output", "run.md")
    drawn = {path.name for path in Path("run_figures").iterdir()}
    assert {name.rpartition("/")[2] for name in re.findall(r"\]\((.+?\.svg)\)", page)} == drawn
    page = re.sub(r"(?s)<details>.*?</details>", "<details>", page)  # the recipe has every default
    page = re.sub(r"description \| .*|Written by cse .*", "…", page)
    assert re.sub(r"\b[0-9a-f]{8,32}\b", "HASH", page) == snapshot


def test_errors_of_report(capsys, snapshot):
    record("mini/ifcl_en", 0)
    errors = [
        cse("report", *arguments, capsys=capsys)[2]
        for arguments in (
            ("mini/ifcl_em seed 0",),
            ("mini/simcse_en",),
            ("mini/ifcl_en seed 0", "--output", "x.pdf"),
            ("mini/ifcl_en seed 0", "--output", "no/x.md"),
            ("studies/mini/ifcl_queue_length", "--baseline", "mini/ifcl_en"),
        )
    ]
    assert "\n".join(errors) == snapshot
