import json
import os
import signal
import time
from functools import partial

import pytest

from cse_cli.data.columns import BLOCK
from cse_cli.data.sources import open_text
from cse_cli.recipe.load import load
from registry.resources import catalog, hub
from tests.support import command
from tests.support.command import refused
from tests.support.programs import below, gone, running, until
from tests.support.seq2seq import tiny_t5
from tests.support.tiny import tiny_bert

HEADER = "subset\tscore\tsentence1\tsentence2\n"


@pytest.fixture
def cse(capsys):
    """Run `cse` in this process; return exit code, stdout, stderr."""
    return partial(command.cse, capsys=capsys)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A data folder with STS-B dev alone, one row short unless it is completed, and an empty hub cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    path = tmp_path / "data" / "sts" / "stsb" / "dev.tsv"
    path.parent.mkdir(parents=True)
    path.write_text(HEADER + "x\t1.0\ta\tb\n" * 1499)
    monkeypatch.setenv("CSE_DATA", str(tmp_path / "data"))
    return path


def test_list_says_what_is_where(cse, folder):
    code, out, _ = cse("data", "list")
    rows = {line.split("\t")[0]: line.split("\t") for line in out.split("\n")[1:-1]}
    assert code == 0
    assert set(rows) == set(catalog.names())
    assert rows["stsb"][1:5] == ["pairs", "en", "train:5749 dev:1500 test:1379", "fetchable+CSE_DATA"]
    assert rows["wiki_en"][4] == "missing"
    assert rows["wiki1m_joined"][4] == "generated"
    assert rows["tatoeba_open"][1:5] == ["text", "en-de", "train:12000", "package"]


def test_list_as_json_is_one_versioned_document(cse, folder):
    code, out, err = cse("data", "list", "--json")
    document = json.loads(out)
    assert (code, err, document["schema_version"]) == (0, "", 2)
    stsb = next(one for one in document["datasets"] if one["name"] == "stsb")
    assert stsb["sources"] == ["hf:mteb/stsbenchmark-sts@b0fddb56ed78"]
    assert {split["name"]: split["where"] for split in stsb["splits"]}["dev"] == "CSE_DATA"
    assert stsb["splits"][1]["path"] == str(folder)


@pytest.mark.exhaustive
def test_check_reads_local_data_sets_and_exits_with_2(cse, folder):
    code, out, err = cse("data", "check")
    rows = {tuple(line.split("\t")[:2]): line.split("\t")[2:] for line in out.split("\n")[1:-1]}
    assert code == 2
    assert rows["stsb", "dev"][:3] == ["wrong", "-", "1500"]
    assert rows["stsb", "test"][0] == rows["wiki_en", "train"][0] == "missing"
    assert rows["wiki1m_joined", "train"][:3] == ["ok", "1191", "1191"]
    assert "1499 rows instead of 1500" in err
    with folder.open("a") as file:
        file.write("x\t1.0\ta\tb\n")
    code, out, err = cse("data", "check")
    assert code == 2
    assert f"{folder}: the SHA-256 of the rows is " in err


@pytest.mark.slow
def test_check_names_the_line_that_is_malformed(cse, folder):
    folder.write_text(HEADER + "x\t1.0\ta\tb\n" * 1499 + "x\t1.0\ta\n")
    code, out, _ = cse("data", "check", "--json")
    problem = next(one for one in json.loads(out)["splits"] if one["problem"])
    assert code == 2
    assert f"{folder}:1501: row has 3 cells, but the header has 4" in problem["problem"]


def test_check_of_a_named_set_that_is_missing_ends_with_3(cse, folder):
    code, _, err = cse("data", "check", "wiki_en")
    assert code == 3
    assert "train/wiki_en.txt.gz" in err
    assert "--set data.dataset=wiki1m_prefix" in err


def test_a_download_says_first_what_it_will_be(cse, folder, monkeypatch):
    monkeypatch.setattr(hub, "unreachable", lambda: "HF_HUB_OFFLINE forbids asking the hub")
    code, _, err = cse("data", "download", "--for", "mini/simcse_en", "--for", "bert_avg_en")
    assert code == 3
    assert err.startswith("downloading ")
    assert "  dataset sickr/test: 89.1 kB, CC BY-NC-SA 3.0 as published by its authors" in err
    assert "dataset stsb/test (63.2 kB), dataset sickr/test (89.1 kB): not on this machine, and HF_HUB_OFFLINE" in err
    assert "→ unset HF_HUB_OFFLINE" in err


@pytest.mark.slow
def test_a_download_for_a_study_is_for_all_of_its_cells(cse, folder, monkeypatch):
    monkeypatch.setattr(hub, "unreachable", lambda: "the hub does not answer")
    code, _, err = cse("data", "download", "--for", "studies/conisi_sentence_construction")
    assert code == 3
    assert "  dataset wiki1m/train" in err
    assert "model roberta-base" in err
    error = refused("data", "download", "mini/ifcl_en")
    assert (error.code, error.next_action) == ("data.recipe_as_data_set", "cse data download --for mini/ifcl_en")


RECIPE = """\
title = "t"
[data]
file = "mine.txt"
[data.columns.translation]
name = "translate"
model = "t5"
to = "de"
max_length = 32
[encoders.online]
name = "transformer"
model = "bert"
[views.anchor]
[views.positive]
column = "translation"
[losses.info_nce]
[train]
steps = 2
batch_size = 4
"""


@pytest.mark.process
@pytest.mark.parametrize(("number", "workers"), [(signal.SIGINT, "2"), (signal.SIGKILL, "1")])
def test_a_run_that_is_ended_while_it_makes_a_column_keeps_what_is_done(tmp_path, home, number, workers):
    tiny_t5(tmp_path)
    tiny_bert(tmp_path, name="bert")
    recipe, rows = tmp_path / "r.toml", [f"two dogs sees {i}" for i in range(4 * BLOCK)]
    recipe.write_text(RECIPE.replace('"t5"', f'"{tmp_path}/t5"').replace('"bert"', f'"{tmp_path}/bert"'))
    (tmp_path / "mine.txt").write_text("".join(f"{row}\n" for row in rows))

    def stored():
        return {path: path.stat().st_mtime_ns for path in (home / "cache" / "columns").rglob("[!t]*.txt")}

    with running(
        "cse_cli", "run", recipe, "--seeds", 2, "--workers", workers, "--device", "cpu", folder=tmp_path
    ) as run:
        until(lambda: bool(stored()), run)
        children, before, pressed = below(run), stored(), time.monotonic()
        assert len(children) >= (2 if workers == "2" else 0)
        os.killpg(run.pid, number)
        _, err = run.communicate(timeout=30)
        assert (run.returncode, time.monotonic() - pressed < 20) == ({signal.SIGINT: 130}.get(number, -number), True), (
            err
        )
        assert "Traceback" not in err
        assert gone(children)
    assert len(before) < 4
    data = load(str(recipe), [f"data.file={tmp_path}/mine.txt"]).recipe.data
    text = open_text(data, {"text", "translation"})
    assert (text.rows, len(stored())) == (len(rows), 4)
    assert before.items() <= stored().items()
    assert not list((home / "cache").rglob("tmp-*"))
