"""Help, typical output and typical errors of `cse leaderboard` and `cse compare`."""

from __future__ import annotations

import re

import pytest

from cse_cli.analysis.table_view import print_tables
from registry.errors import CseError
from tests.cse_cli.analysis.leaderboard_runs import mini, planned, tables
from tests.cse_cli.analysis.recorded import record
from tests.support.command import cse, refused

pytestmark = pytest.mark.usefixtures("home")
A, B = "mini/simcse_en", "mini/ifcl_en"


def text_of(error: CseError) -> str:
    return f"{error.code}\nerror: {error}"


def test_leaderboard(capsys, snapshot):
    print_tables(tables(planned([mini(seed, 60.0 + seed / 10, 50.0) for seed in range(3)])))
    assert capsys.readouterr().out == snapshot


@pytest.mark.slow
def test_compare(capsys, snapshot):
    for seed in range(3):
        record(A, seed, noise=1.5, evaluators=["stsb_dev", "stsb"])
        record(B, seed, noise=1.0, evaluators=["stsb_dev", "stsb"])
    _, out, _ = cse("compare", A, B, "--bootstrap", "100", capsys=capsys)
    assert re.sub(r"hash \w+", "hash …", out) == snapshot


def test_compare_errors(snapshot):
    record(A, 0)
    record(B, 1)
    asked = [(A,), (A, B), (A, f"{B}@9"), (A, "mini/ifcl_eng"), (A, f"{A}@0")]
    errors = [re.sub(r"run \w{8}\b", "run …", text_of(refused("compare", *names))) for names in asked]
    assert "\n\n".join(errors) == snapshot
