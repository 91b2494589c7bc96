"""Word overlap as the last line of tables: which tasks have one, and that it is remembered by the files."""

from __future__ import annotations

import json

import pytest

from cse_cli.core.results import STS_TASKS
from cse_cli.evaluation import word_overlap
from cse_cli.evaluation.tasks import parse_tasks
from cse_cli.jobs.view import print_results
from cse_cli.recipe.load import load
from registry.evaluators.sts import Sts
from tests.support.command import cse
from tests.support.records import result


def test_tasks_with_pairs_on_this_machine():
    found = word_overlap.of_tasks(parse_tasks("stsb_open/dev,stsb_open,stsb,geometry,graded_pairs"))
    assert set(found) == {"stsb_open/dev", "stsb_open", "graded_pairs"}
    assert found["stsb_open/dev"] == Sts("stsb_open", "dev").word_overlap()


def test_evaluators_of_a_recipe():
    found = word_overlap.of_recipe(load("quickstart").recipe)
    assert {name: round(values["spearman"], 2) for name, values in found.items()} == {"dev": 60.25, "test": 57.22}


def test_pairs_are_read_again_only_after_a_change(folder, monkeypatch):
    def write(*pairs):
        rows = "".join(f"{score}\t{first}\t{second}\n" for score, first, second in pairs)
        (folder / "pairs.tsv").write_text(f"score\tsentence1\tsentence2\n{rows}", encoding="utf-8")

    read = []
    real = Sts.word_overlap
    monkeypatch.setattr(Sts, "word_overlap", lambda self: read.append(1) or real(self))
    write((1, "a b", "c d"), (2, "a b", "a c"), (3, "a b", "a b"))
    values = [word_overlap.of_evaluator("sts", {"file": "pairs.tsv"}) for _ in range(3)]
    assert [round(one["spearman"], 9) for one in values] == [100, 100, 100]
    assert len(read) == 1
    write((3, "a b", "c d"), (2, "a b", "a c"), (1, "a b", "a b"), (0, "x", "x"))
    changed = word_overlap.of_evaluator("sts", {"file": "pairs.tsv"})
    assert changed["spearman"] < 0
    assert len(read) == 2
    (folder / "pairs.tsv").unlink()
    assert word_overlap.of_evaluator("sts", {"file": "pairs.tsv"}) == {}


def test_the_last_line_of_cse_evaluate(parts, capsys):
    options = ("evaluate", str(parts.models["bert"]), "--tasks", "stsb_open,stsb_open/dev", "--device", "cpu")
    _, out, _ = cse(*options, capsys=capsys)
    assert out.splitlines()[-1].split() == ["word", "overlap", "57.22", "60.25", "58.73"]
    _, out, _ = cse(*options, "--json", capsys=capsys)
    document = json.loads(out)
    assert document["word_overlap"]["stsb_open"]["spearman"] == pytest.approx(57.22, abs=0.005)
    _, out, _ = cse(*options[:2], "--tasks", "graded_pairs", "--set", "graded_pairs.bootstrap=10", capsys=capsys)
    last = out.rstrip("\n").splitlines()[-1].split()
    assert len(last) == 4  # the label, Spearman and Pearson, without the interval


def test_the_last_line_of_a_run(capsys):
    one = result(scores={name: {"spearman": 50.0} for name in STS_TASKS})
    overlaps = {one.recipe_hash: {name: {"spearman": 55.0 + place} for place, name in enumerate(STS_TASKS)}}
    print_results([one], {one.recipe_hash: dict.fromkeys(STS_TASKS, "spearman")}, overlaps)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[3] == ["word", "overlap", "58.00", *(f"{55 + place}.00" for place in range(7))]
