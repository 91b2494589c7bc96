import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from cse_cli import app as cli
from cse_cli.data.columns import BLOCK
from registry.resources import catalog, hub
from tests.support.chosen import these
from tests.support.command import refused
from tests.support.forked import Forked
from tests.support.programs import gone
from tests.support.seq2seq import tiny_t5

HEADER = "subset\tscore\tsentence1\tsentence2\n"


@pytest.fixture
def cse(monkeypatch, capsys):
    """Run `cse` in this process; return exit code, stdout, stderr."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["cse", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.run()
        out, err = capsys.readouterr()
        return ended.value.code or 0, out, err

    return call


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


def test_check_names_the_line_that_is_malformed(cse, folder):
    folder.write_text(HEADER + "x\t1.0\ta\tb\n" * 1499 + "x\t1.0\ta\n")
    code, out, _ = cse("data", "check", "--json")
    problem = next(one for one in json.loads(out)["splits"] if one["problem"])
    assert code == 2
    assert f"{folder}:1501: 3 columns, but the header has 4" in problem["problem"]


def test_check_of_a_named_set_that_is_missing_ends_with_3(cse, folder):
    code, _, err = cse("data", "check", "wiki_en")
    assert code == 3
    assert "train/wiki_en.txt.gz" in err
    assert "--set data.dataset=wiki1m_prefix" in err


def test_what_comes_with_the_package_is_whole(cse):
    code, out, err = cse("data", "check", "tatoeba_en_de", "tatoeba_open", "wiki1m_prefix", "stsb_open")
    assert (code, err) == (0, "")
    found = [line.split("\t")[:6] for line in out.split("\n")[1:-1]]
    assert found == [
        ["tatoeba_en_de", "train", "ok", "58763", "58763", "package"],
        ["tatoeba_open", "train", "ok", "12000", "12000", "package"],
        ["wiki1m_prefix", "train", "ok", "11914", "11914", "package"],
        ["stsb_open", "dev", "ok", "750", "750", "package"],
        ["stsb_open", "test", "ok", "629", "629", "package"],
    ]


def test_a_download_says_first_what_it_will_be(cse, folder, monkeypatch):
    monkeypatch.setattr(hub, "unreachable", lambda: "HF_HUB_OFFLINE forbids asking the hub")
    code, _, err = cse("data", "download", "--for", "mini/simcse_en", "--for", "bert_avg_en")
    assert code == 3
    assert err.startswith("downloading ")
    assert "  dataset sickr/test: 89.1 kB, CC BY-NC-SA 3.0 as published by its authors" in err
    assert "dataset stsb/test (63.2 kB), dataset sickr/test (89.1 kB): not on this machine, and HF_HUB_OFFLINE" in err
    assert "→ unset HF_HUB_OFFLINE" in err


def test_a_download_for_a_study_is_for_all_of_its_cells(cse, folder, monkeypatch):
    monkeypatch.setattr(hub, "unreachable", lambda: "the hub does not answer")
    code, _, err = cse("data", "download", "--for", "studies/conisi_sentence_construction")
    assert code == 3
    assert "  dataset wiki1m/train" in err
    assert "model roberta-base" in err
    error = refused("data", "download", "mini/ifcl_en")
    assert (error.code, error.next_action) == ("data.recipe_as_data_set", "cse data download --for mini/ifcl_en")


def test_check_of_an_unknown_set_suggests(cse):
    code, _, err = cse("data", "check", "stsbb")
    assert code == 2
    assert "Did you mean 'stsb'" in err


def test_translate_writes_a_file_that_a_recipe_reads(cse, tmp_path, home):
    model = tiny_t5(tmp_path)
    call = ("data", "translate", "tatoeba_open", "--model", model, "--to", "de", "--limit", 9, "--max-length", 8)
    code, out, err = cse(*call)
    output = home / "translations" / "tatoeba_open.t5.de.tsv"
    assert (code, out) == (0, f'[data]\nfile = "{output}"\n')
    assert "9 rows; use in a recipe:" in err
    assert len(output.read_text().split("\n")) == 9 + 2
    own = str(tmp_path / "own.tsv")
    code, out, _ = cse(*call, "--json", "-o", own)
    assert json.loads(out) == {"schema_version": 2, "output": own, "rows": 9, "reused": 9, "file": own}
    assert refused(*map(str, call), "-o", own).code == "data.output_exists"


def test_a_shard_says_how_all_are_read_together(cse, tmp_path):
    model, output = tiny_t5(tmp_path), tmp_path / "made.tsv"
    call = ("data", "translate", "tatoeba_open", "--model", model, "--to", "de", "--limit", 9, "--max-length", 8)
    code, out, err = cse(*call, "--shard", "2/4", "-o", output)
    assert (code, out) == (0, f'[data]\nfile = "{tmp_path}/made.*-of-4.tsv"\n')
    assert f"2 rows; saved to {tmp_path}/made.2-of-4.tsv; with all shards, use in a recipe:" in err
    assert refused(*map(str, call), "--shard", "5/4").code == "data.bad_shard"


@pytest.mark.process
def test_text_and_models_of_the_hub_are_translated(cse, fake_hub, tmp_path, home):
    pytest.importorskip("sentencepiece")
    call = ("data", "translate", "hf:mteb/sts12-sts", "--split", "test", "--column", "sentence1", "--limit", 20)
    calls = [(*call, "--max-length", 16, "--json", "--model", model, *to)
             for model, *to in (("t5-base", "--to", "de"), ("Helsinki-NLP/opus-mt-en-de",))]  # fmt: skip
    outputs = []
    for one in calls:
        code, out, err = cse(*one)
        assert code == 0, err
        outputs.append(Path(json.loads(out)["output"]))
    assert [path.name for path in outputs] == [
        f"sts12-sts.test.sentence1.{m}.tsv" for m in ("t5-base.de", "opus-mt-en-de")
    ]
    made = [path.read_bytes() for path in outputs]
    assert made[0].split(b"\n")[1].split(b"\t")[0] == made[1].split(b"\n")[1].split(b"\t")[0] != b""
    shutil.rmtree(home / "cache" / "columns")
    fake_hub.log.clear()
    for one in calls:
        assert cse(*one)[0] == 0
    assert fake_hub.log == []
    assert [path.read_bytes() for path in outputs] == made


@pytest.fixture
def long_translation(tmp_path, home):
    """Arguments of a translation of four blocks, a function that counts the stored rows, and the rows."""
    source, rows = tmp_path / "mine.txt", [f"two dogs sees {i}" for i in range(4 * BLOCK)]
    source.write_text("".join(f"{row}\n" for row in rows))
    call = ["data", "translate", source, "--model", tiny_t5(tmp_path), "--to", "de"]
    call += ["--max-length", "32", "--json", "-o", tmp_path / "made.tsv"]

    def stored():
        return sum(len(file.read_text().splitlines()) for file in (home / "cache" / "columns").rglob("[!t]*.txt"))

    return call, stored, rows


def _until_more_is_stored(stored, running):
    before, deadline = stored(), time.monotonic() + 120
    while stored() == before and time.monotonic() < deadline and running.poll() is None:
        time.sleep(0.02)


def _finish(cse, call, kept, rows):
    code, out, err = cse(*call)
    assert code == 0, err
    assert json.loads(out)["reused"] == kept > 0
    lines = call[-1].read_text().split("\n")
    assert [line.split("\t")[0] for line in lines[1:-1]] == rows


@pytest.mark.process
def test_translate_survives_kills(tmp_path, cse, long_translation):
    call, stored, rows = long_translation
    for _ in range(2):
        running = Forked(["cse_cli", *call[:-2], "--batch-tokens", "2000", *call[-2:]], tmp_path)
        _until_more_is_stored(stored, running)
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
        assert not call[-1].exists()
    _finish(cse, call, stored(), rows)


@pytest.mark.process
@pytest.mark.parametrize("workers", these(["1"], ["1", "2"]))
def test_ctrl_c_ends_everything_soon_and_keeps_what_is_done(tmp_path, cse, long_translation, workers):
    call, stored, rows = long_translation
    options = ["--batch-tokens", "2000", "--workers", workers, "--device", "cpu"]
    running = Forked(["cse_cli", *call[:-2], *options, *call[-2:]], tmp_path)
    _until_more_is_stored(stored, running)
    children = psutil.Process(running.pid).children(recursive=True)
    assert len(children) >= (2 if workers == "2" else 0)
    before, pressed = stored(), time.monotonic()
    os.killpg(running.pid, signal.SIGINT)
    _, err = running.communicate(timeout=20)
    took = time.monotonic() - pressed
    assert (running.returncode, took < 10) == (130, True), (err, took)  # idle below 2 s; all would take minutes
    assert err.endswith("stopped. To resume, run the same command again.\n")
    assert "Traceback" not in err
    assert gone(children)
    assert stored() >= before > 0
    _finish(cse, call, stored(), rows)
