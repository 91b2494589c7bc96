"""`cse reproduce` as a command: seeds are run once, and the verdict follows."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from cse_cli.jobs import reproduce as reproduction
from cse_cli.runs.index import all_runs
from registry import papers
from registry.papers import MeasuredRow
from registry.resources.models import weights_sha256
from tests.support.command import cse, refused
from tests.support.records import only_run
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
    code, out, err = reproduce("small.toml", "--seeds", "2", "--device", "cpu")
    assert code == 0
    assert "reproduced: dev" in out
    assert "over 2 seeds, reported 0.00" in out
    assert "reproducing small, measured by this project: dev 0.00, by 2 runs of small" in err
    assert sorted(run.about.seed for run in all_runs()) == [0, 1]

    before = [run.run_id for run in all_runs()]
    code, out, err = reproduce("small.toml", "--seeds", "2", "--device", "cpu", "--json")
    assert (code, [run.run_id for run in all_runs()]) == (0, before)
    document = json.loads(out)
    scores = {str(run.about.seed): run.result.scores["dev"]["spearman"] for run in all_runs()}
    assert (document["scores"], document["verdict"]["outcome"], document["doubts"]) == (scores, "reproduced", [])
    assert err.count("finished: ") == 2

    claimed(1000.0, std=20.0)
    assert "lower: dev" in reproduce("small.toml", "--seeds", "2", "--device", "cpu")[1]


@pytest.mark.process
def test_portable_weights_are_compared_with_published_ones(reproduce, claimed, folder, monkeypatch):
    claimed(0.0, std=40.0)
    published = folder / "portable.toml"
    published.touch()
    monkeypatch.setattr(reproduction, "PUBLISHED", published)
    words = ["small.toml", "--seeds", "1", "--portable"]
    code, out, err = reproduce(*words, "--json")
    assert code == 0, err
    (bits,) = json.loads(out)["bits"]
    own, other = weights_sha256(only_run().about.path / "model"), "1" * 64
    assert (bits["seed"], bits["sha256"], bits["published"]) == (0, own, None)
    for digest, said in ((own, "the same bits as published"), (other, f"other bits than published, {other}")):
        published.write_text(f'["{bits["torch"]}".small]\n0 = "{digest}"\n', encoding="utf-8")
        assert said in " ".join(reproduce(*words)[1].split())
    changed = reproduce(*words, "--set", "train.steps=2")[1]
    assert "none published for torch" in " ".join(changed.split())


@pytest.mark.slow
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
    assert "(docs/methods/" not in out


@pytest.mark.slow
@pytest.mark.usefixtures("few_pairs", "undrawn")
def test_a_difference_is_followed_by_the_doubtful_points(reproduce, claimed, monkeypatch):
    claimed(1000.0, std=20.0)
    point = papers.DoubtfulPoint(
        page="ifcl", name="A1", about="Pooling.", recipes=("small",),
        options=("encoders.online.pooling=last2", "encoders.online.no=1"),
    )  # fmt: skip
    monkeypatch.setattr(papers, "doubtful_points", lambda: (point,))
    code, out, _ = reproduce("small.toml", "--seeds", "2", "--device", "cpu", "--set", "train.learning_rate=0.04")
    assert (code, "lower: dev" in out) == (0, True)
    assert "The recipe was changed: train.learning_rate=0.04." in out
    assert "A1  Pooling. (docs/methods/ifcl.md)\n  --set encoders.online.pooling=last2\n" in out
    assert "encoders.online.no" not in out


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
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
