import json
import os
import signal
import sys
import time

import pytest

from cse_cli import app as cli
from cse_cli.data import command
from registry import catalogue
from tests.cse_cli.seq2seq import tiny_t5
from tests.forked import Forked

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
    assert set(rows) == set(catalogue.names())
    assert rows["stsb"][1:5] == ["pairs", "en", "train:5749 dev:1500 test:1379", "hub+CSE_DATA"]
    assert rows["wiki_en"][4] == "missing"
    assert rows["graded_pairs"][4] == "generated"


def test_list_as_json_is_one_versioned_document(cse, folder):
    code, out, err = cse("data", "list", "--json")
    document = json.loads(out)
    assert (code, err, document["schema_version"]) == (0, "", 1)
    stsb = next(one for one in document["datasets"] if one["name"] == "stsb")
    assert (stsb["hub"], stsb["pinned"]) == ("hf:mteb/stsbenchmark-sts@b0fddb56ed78", True)
    assert {split["name"]: split["where"] for split in stsb["splits"]}["dev"] == "CSE_DATA"
    assert stsb["splits"][1]["path"] == str(folder)


def test_check_reads_what_is_here_and_ends_with_2_where_it_is_wrong(cse, folder):
    code, out, err = cse("data", "check")
    rows = {tuple(line.split("\t")[:2]): line.split("\t")[2:] for line in out.split("\n")[1:-1]}
    assert code == 2
    assert rows["stsb", "dev"][:3] == ["wrong", "-", "1500"]
    assert rows["stsb", "test"][0] == rows["wiki_en", "train"][0] == "missing"
    assert rows["graded_pairs", "train"][:3] == ["ok", "6000", "6000"]
    assert "1499 rows where the catalogue expects 1500" in err
    with folder.open("a") as file:
        file.write("x\t1.0\ta\tb\n")
    code, out, err = cse("data", "check")
    assert (code, err) == (0, "")


def test_check_names_the_line_that_is_malformed(cse, folder):
    folder.write_text(HEADER + "x\t1.0\ta\tb\n" * 1499 + "x\t1.0\ta\n")
    code, out, _ = cse("data", "check", "--json")
    problem = next(one for one in json.loads(out)["splits"] if one["problem"])
    assert code == 2
    assert f"{folder}:1501: 3 columns where the header has 4" in problem["problem"]


def test_check_of_a_named_set_that_is_missing_ends_with_3(cse, folder):
    code, _, err = cse("data", "check", "wiki_en")
    assert code == 3
    assert "train/wiki_en.txt.gz" in err


def test_check_of_an_unknown_set_suggests(cse):
    code, _, err = cse("data", "check", "stsbb")
    assert code == 2
    assert "Did you mean 'stsb'" in err


def test_translate_writes_a_file_that_a_recipe_reads(cse, tmp_path, home):
    model = tiny_t5(tmp_path)
    call = ("data", "translate", "graded_pairs", "--model", model, "--prefix", "", "--limit", 9, "--max-length", 8)
    code, out, err = cse(*call)
    output = home / "translations" / "graded_pairs.t5.tsv"
    assert (code, out) == (0, f'[data]\nfile = "{output}"\n')
    assert "9 sentences translated" in err
    assert len(output.read_text().split("\n")) == 9 + 2
    code, out, _ = cse(*call, "--json", "-o", tmp_path / "own.tsv")
    assert json.loads(out) == {"schema_version": 1, "output": str(tmp_path / "own.tsv"), "rows": 9, "reused": 9}
    code, _, err = cse(*call, "-o", tmp_path / "own.tsv")
    assert code == 2
    assert "exists already" in err


@pytest.mark.slow
def test_translate_survives_kills(tmp_path, home, cse):
    model = tiny_t5(tmp_path)
    source = tmp_path / "mine.txt"
    source.write_text("".join(f"two dogs sees {i}\n" for i in range(4000)))
    output = tmp_path / "made.tsv"
    call = ["cse_cli", "data", "translate", source, "--model", model, "--prefix", ""]
    call += ["--max-length", "8", "--json", "-o", output]
    parts = home / "cache" / "translations"
    for wanted in (1, 3):
        running = Forked(call, tmp_path)
        deadline = time.monotonic() + 60
        while len(list(parts.glob("*/*.tsv"))) < wanted and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
        assert not output.exists()
    code, out, err = cse(*call[1:])
    assert code == 0, err
    made = json.loads(out)
    assert made["rows"] == 4000
    assert made["reused"] >= 3 * 512
    lines = output.read_text().split("\n")
    assert [line.split("\t")[0] for line in lines[1:-1]] == [f"two dogs sees {i}" for i in range(4000)]


def test_every_command_has_an_example():
    for text in (command.LIST_EPILOG, command.CHECK_EPILOG, command.TRANSLATE_EPILOG):
        assert text.startswith("Examples:  cse data ")
