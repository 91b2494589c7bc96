"""`cse reproduce` from the outside: seeds are run once, the verdict follows, and files are written."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from cse_cli.runs.index import all_runs
from registry import papers
from registry.papers import MeasuredRow
from tests.cse_cli.reproduce.conftest import ifcl, quickstart
from tests.support.command import cse, refused
from tests.support.shrunken import recipe

Claimed = Callable[..., None]


@pytest.fixture
def claimed(monkeypatch: pytest.MonkeyPatch) -> Claimed:
    """Return a function that sets the measured result of the recipe `small`."""

    def claim(mean: float, std: float = 5.0, tolerance: float = 100.0) -> None:
        row = MeasuredRow(
            recipe="small", settings="", command="cse run small", machine="a CPU", versions="cse", date="2026-11-24",
            seeds=(100, 101, 102, 103, 104, 105), judged="dev", tolerance=tolerance,
            scores={"dev": (mean - std, mean + std) * 3},
        )  # fmt: skip
        monkeypatch.setattr(papers, "measured_rows", lambda: {"small": row})

    return claim


@pytest.fixture
def reproduce(folder, parts, capsys, monkeypatch):
    """Return `cse reproduce` of a tiny recipe on the CPU."""
    recipe(folder, parts, learning_rate=0.05)  # so that the seeds have different scores
    monkeypatch.setenv("COLUMNS", "80")
    return lambda *words: cse("reproduce", *map(str, words), capsys=capsys)


@pytest.mark.usefixtures("few_pairs", "undrawn")
def test_seeds_are_run_and_judged_and_reused(reproduce, claimed, folder):
    claimed(0.0, std=40.0)
    code, out, err = reproduce("small.toml", "--seeds", "2", "--device", "cpu", "--output", ".")
    assert code == 0
    assert "reproduced: dev" in out
    assert "over 2 seeds, reported 0.00" in out
    assert "reproducing small, measured by this project: dev 0.00, by 2 runs of small" in err
    assert sorted(run.about.seed for run in all_runs()) == [0, 1]

    document = json.loads((folder / "reproduction.json").read_text())
    scores = {run.about.seed: run.result.scores["dev"]["spearman"] for run in all_runs()}
    assert {seed["seed"]: seed["scores"]["dev"] for seed in document["seeds"]} == scores
    assert str(folder) not in json.dumps(document)
    assert (folder / "reproduction.md").read_text().startswith("# small, measured by this project: reproduced\n")

    before = [run.run_id for run in all_runs()]
    code, out, err = reproduce("small.toml", "--seeds", "2", "--device", "cpu", "--json")
    assert (code, [run.run_id for run in all_runs()]) == (0, before)
    assert json.loads(out) == document
    assert err.count("finished: ") == 2

    claimed(1000.0, std=20.0)
    assert "lower: dev" in reproduce("small.toml", "--seeds", "2", "--device", "cpu")[1]


@pytest.mark.usefixtures("few_pairs", "undrawn")
def test_one_seed_without_published_runs_asks_for_more(reproduce, folder):
    (folder / "mine.toml").write_text(
        'extends = "small.toml"\ntitle = "Mine"\n[paper]\nkey = "ifcl"\ntable = "sts_en"\nrow = "IFCL-BERT base"\n'
        '[evaluators.stsb]\nname = "sts"\nfile = "pairs.tsv"\nsplit = "dev"\n'
    )
    code, out, err = reproduce("mine.toml", "--seeds", "1", "--device", "cpu")
    assert code == 0
    assert "not decided yet (4 more seeds): STS-B" in out
    assert "cse reproduce mine.toml --seeds 5" in err


def test_a_file_of_others_shows_the_same_screen(capsys, tmp_path):
    for document, outcome in ((quickstart([59.0, 60.0, 58.5]), "reproduced"), (ifcl([60.0] * 5), "lower")):
        file = tmp_path / "result.json"
        file.write_text(document.to_json())
        code, out, err = cse("reproduce", "--from", str(file), capsys=capsys)
        assert (code, err) == (0, "")
        assert f"\n{outcome}: " in out
        assert json.loads(cse("reproduce", "--from", str(file), "--json", capsys=capsys)[1]) == json.loads(
            document.to_json()
        )
        report = tmp_path / "report.md"
        assert cse("reproduce", "--from", str(file), "--output", str(report), capsys=capsys)[0] == 0
        assert outcome in report.read_text().splitlines()[0]


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        ((), "reproduce.what", "--from"),
        (("quickstart", "--from", "x.json"), "reproduce.what", "--from"),
        (("--from", "gone.json"), "reproduce.bad_file", "gone.json"),
        (("quickstart", "--output", "report.txt"), "reproduce.output", "report.txt"),
        (("quickstart", "--output", "gone/report.md"), "reproduce.output", "mkdir gone"),
        (("quickstart", "--seeds", "0"), "jobs.invalid_seeds", "--seeds"),
        (("quickstart", "--set", "train.stps=1"), "recipe.unknown_key", "steps"),
        (("mini/ifcl_en",), "reproduce.no_row", "cse run mini/ifcl_en"),
        (("studies/ifcl_queue_length",), "recipe.not_a_recipe", "cse run studies/ifcl_queue_length"),
    ],
)
def test_refused(words, code, named, folder):
    error = refused("reproduce", *words)
    assert (error.code, error.exit_code) == (code, 2)
    assert named in str(error)
    assert not all_runs()
