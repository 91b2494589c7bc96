"""The whole command on a small corpus with a tiny model: files, answer, resumption, and what it refuses."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from cse_cli.adapt import adapt as module
from cse_cli.adapt.corpus import Corpus, Document
from cse_cli.adapt.study import TRAINED, UNCHANGED, WHITENED, write_tables
from cse_cli.app import app
from cse_cli.recipe.study import load_study
from cse_cli.runs.index import all_runs
from tests.cse_cli.test_scripting import DOCUMENTS
from tests.support.command import cse
from tests.support.errors import refuses
from tests.support.tiny import WORDS, tiny_bert

pytestmark = pytest.mark.slow


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Return documents of a few topics, so that a passage shares words with its rest."""
    rng, path, rows = random.Random(0), tmp_path / "docs.jsonl", []
    words = [word for word in WORDS if word.isalpha()]
    for number in range(240):
        own = rng.sample(words, 6)
        text = [str(number), *(rng.choice(own) for _ in range(35))]
        rows.append({"text": " ".join(text), "title": " ".join(own[:3]), "label": own[0][0]})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_an_answer_with_all_judges_that_continues(corpus, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(module, "MOST", 12)
    judge = tmp_path / "judge.csv"
    rows = [json.loads(line) for line in corpus.read_text(encoding="utf-8").splitlines()]
    lines = [f"{row['title']},{row['text']}\n" for row in rows[:60]]
    judge.write_text("".join(["query,document\n", *lines]), encoding="utf-8")
    model, out = str(tiny_bert(tmp_path)), tmp_path / "out"
    arguments = ["adapt", str(corpus), "--model", model, "--out", str(out), "--judge", str(judge), "--quiet"]
    code, printed, _ = cse(*arguments, "--json", capsys=capsys)
    assert code == 0
    found = json.loads(printed)
    assert found.keys() == {"schema_version", *DOCUMENTS["adapt"]}
    assert set(found["dev"]) == {UNCHANGED, *WHITENED, *TRAINED}
    kept = {row: of["dev"]["value"] for row, of in found["dev"].items() if of["kept_dev"]["low"] >= -1}
    assert found["chosen"] == max(kept, key=kept.get) != UNCHANGED
    assert set(found["differences"]) == {"queries", "kept", "titles", "labels", "judge"}
    assert set(found["word_overlap"]) == {"queries", "titles", "labels", "judge"}
    assert (out / "model").is_dir() == (found["verdict"] == "better")
    assert (out / "verdict.png").is_file()
    assert load_study(str(out / "verdict.toml")).seed_list == (1, 2, 3)
    runs = len(all_runs())
    code, printed, _ = cse(*arguments, capsys=capsys)  # nothing runs again
    assert (code, len(all_runs())) == (0, runs)
    assert "dev documents" in printed
    with refuses("adapt.other_arguments", "another minutes", "--out"):
        app([*arguments, "--minutes", "20"], standalone_mode=False)


def test_help(snapshot, capsys):
    assert cse("adapt", "--help", capsys=capsys)[1] == snapshot


def test_judges_with_other_columns_and_models_that_are_no_transformer(corpus, tmp_path):
    judge = tmp_path / "judge.csv"
    judge.write_text("a,b\n1,2\n", encoding="utf-8")
    given = ["adapt", str(corpus), "--model", str(tiny_bert(tmp_path)), "--out", str(tmp_path / "out")]
    with refuses("adapt.judge_columns", "the columns a, b", "query,document"):
        app([*given, "--judge", str(judge)], standalone_mode=False)
    assert not (tmp_path / "out" / "adapt.json").exists()


def test_tables_with_labels(tmp_path):
    none, judge = Corpus([], [], [], []), tmp_path / "labels.csv"
    judge.write_text('text,label\n"a, b",x\nc,y\nd,x\n', encoding="utf-8")
    made = write_tables(tmp_path, none, judge)["judge"]
    assert made == {"name": "retrieval_at_k", "file": str(tmp_path / "judge.tsv")}
    assert (tmp_path / "judge.tsv").read_text(encoding="utf-8") == "query\tpositive\na, b\td\nd\ta, b\n"
    judge.write_text("sentence1,sentence2,score\na,b,1\n", encoding="utf-8")
    assert write_tables(tmp_path, none, judge)["judge"] == {"name": "sts", "file": str(judge)}
    judge.write_text("text,label\na\n", encoding="utf-8")
    with refuses("data.malformed_row", "labels.csv:2"):
        write_tables(tmp_path, none, judge)


def test_queries_are_passages_and_their_rarest_words(tmp_path):
    common, rare = "the of and in to is ", "Ants; bees cats. dogs"
    found = Document(f"{common}{rare} " * 4)
    judges = write_tables(tmp_path, Corpus([Document(common * 5)], [], [found], []), None)
    assert set(judges) == {"queries", "kept"}
    rows = [line.split("\t") for line in (tmp_path / "queries.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    assert len(rows) == 4
    assert len({rest for _, rest in rows}) == 1
    for (passage, _), (query, _) in zip(rows[::2], rows[1::2], strict=True):
        assert len(passage.split()) == 10
        assert sorted(query.split()) == ["ants", "bees", "cats", "dogs"]
