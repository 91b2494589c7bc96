"""Word overlap as the last line of tables: which evaluators have one, and where it is shown."""

from __future__ import annotations

import json

import pytest

from cse_cli.core.results import STS_TASKS
from cse_cli.evaluation.evaluate import word_overlaps
from cse_cli.evaluation.tasks import parse_tasks
from cse_cli.jobs.screen import print_results
from registry.evaluators.sts import Sts
from tests.support.command import cse
from tests.support.records import result


def test_evaluators_of_pairs_have_one():
    evaluators = {name: task.evaluator for name, task in parse_tasks("stsb_open/dev,stsb_open,geometry").items()}
    found = word_overlaps(evaluators)
    assert set(found) == {"stsb_open/dev", "stsb_open"}
    assert found["stsb_open/dev"] == Sts("stsb_open", "dev").word_overlap()


@pytest.mark.slow
def test_the_last_line_of_cse_evaluate(parts, capsys):
    options = ("evaluate", str(parts.models["bert"]), "--tasks", "stsb_open,stsb_open/dev", "--device", "cpu")
    _, out, _ = cse(*options, capsys=capsys)
    assert out.splitlines()[-1].split() == ["word", "overlap", "57.22", "60.25", "58.73"]
    _, out, _ = cse(*options, "--json", capsys=capsys)
    document = json.loads(out)
    assert document["word_overlap"]["stsb_open"]["spearman"] == pytest.approx(57.22, abs=0.005)
    _, out, _ = cse(*options[:2], "--tasks", "stsb_open", "--set", "stsb_open.bootstrap=10", capsys=capsys)
    last = out.rstrip("\n").splitlines()[-1].split()
    assert len(last) == 4  # the label, Spearman and Pearson, without the interval


OVERLAPS = {name: {"spearman": 55.0 + place} for place, name in enumerate(STS_TASKS)}


def test_the_last_line_of_a_run(capsys):
    one = result(scores={name: {"spearman": 50.0} for name in STS_TASKS}, word_overlap=OVERLAPS)
    print_results([one])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[3] == ["word", "overlap", "58.00", *(f"{55 + place}.00" for place in range(7))]
