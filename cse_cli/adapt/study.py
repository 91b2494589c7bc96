"""The studies of `cse adapt`: a race that chooses a candidate on dev documents, and a verdict on test documents.

Both are studies of recipes in the output directory, which `cse run` and `cse compare` take, too.
"""

from __future__ import annotations

import random
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import tomlkit

from cse_cli.adapt.corpus import Corpus
from cse_cli.core.formatting import to_toml
from registry import ENCODERS
from registry.encoders.saved import open_encoder
from registry.errors import CseError
from registry.resources import catalog
from registry.resources.rows import Column, File
from registry.words import words

RACE, VERDICT = "race.toml", "verdict.toml"
UNCHANGED = "unchanged"
STRENGTHS, RATES = (0.25, 0.5), (5e-5, 2e-4)
WHITENED = tuple(f"whitened, {strength:g}" for strength in STRENGTHS)
TRAINED = tuple(f"trained, {rate:g}" for rate in RATES)
"""Rows of the race whose results depend on the seed."""
SEEDS = [1, 2, 3]
"""Seeds of the verdict. The race has seed 0."""
RECIPES = ("trained.toml", "whitened.toml")
KEYWORDS = 4
LABELED = 300
"""Maximum number of texts with labels that judge."""


def write_tables(folder: Path, corpus: Corpus, judge: Path | None) -> dict[str, dict[str, Any]]:
    """Write the pairs that train, choose and judge, and return the evaluators of the verdict by name.

    A query is a passage, which must find the rest of its document. In dev and test, the rarest words of a passage are
    another query: few words, as people type them. Titles and labels of the corpus, and a table of the user, judge too.

    Raises:
        CseError: If the user's table has other columns, or no header.
        MissingError: If it does not exist.
    """
    rng = random.Random(0)
    common = Counter(word for one in corpus.train for word in set(words(one.text)))

    def queries(passage: str) -> list[str]:
        found = dict.fromkeys(words(passage))
        rarest = sorted(found, key=lambda word: common[word])[:KEYWORDS]
        return [passage, " ".join(word for word in found if word in rarest) or passage]

    def write(name: str, rows: Iterable[Sequence[str]], *first: str) -> dict[str, Any]:
        lines = ["\t".join(row) for row in ((*first, "query", "positive"), *rows)]  # cells have no tabs
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return {"name": "retrieval_at_k", "file": str(folder / f"{name}.tsv")}

    def same_label(name: str, labeled: Iterable[Sequence[str]]) -> dict[str, Any]:
        texts = dict([(" ".join(text.split()), label) for text, label in labeled if label][:LABELED])
        return write(name, [(a, b) for a in texts for b in texts if a != b and texts[a] == texts[b]])

    train, dev, test = ([(one, *one.passages(rng)) for one in part] for part in (corpus.train, corpus.dev, corpus.test))
    write("train", [(one.text, rng.choice(passages), rest) for one, passages, rest in train], "text")
    dev_pairs, pairs = (
        [(query, rest) for _, passages, rest in part for passage in passages for query in queries(passage)]
        for part in (dev, test)
    )
    write("dev", dev_pairs)
    judges = {"queries": write("queries", pairs), "kept": {"name": "sts", "dataset": "stsb_open"}}
    titled = [(one.title, rest) for one, _, rest in test if one.title]
    if 2 * len(titled) > len(test):
        judges["titles"] = write("titles", titled)
    if len({one.label for one in corpus.test}) > 1:
        judges["labels"] = same_label("labels", [(rest, one.label) for one, _, rest in test])
    if judge is None:
        return judges
    path = catalog.require_own_file(str(judge), "table with labels", "give a .csv or .tsv file with a header")
    table, own = File(path), {"file": str(path)}
    columns = set(table.header())
    if columns >= {"query", "document"}:
        return {**judges, "judge": {"name": "retrieval_at_k", **own, "positive_column": "document"}}
    if columns >= {"sentence1", "sentence2", "score"}:
        return {**judges, "judge": {"name": "sts", **own}}
    if columns >= {"text", "label"}:
        rows = table.read((Column("", "text"), Column("", "label")))
        return {**judges, "judge": same_label("judge", (cells for _, cells in rows))}
    raise CseError(
        f"--judge {judge}: it has the columns {', '.join(sorted(columns))}",
        "use the columns query,document, or text,label, or sentence1,sentence2,score",
        code="adapt.judge_columns",
    )


def write_race(folder: Path, asked: Mapping[str, Any], precision: str, steps: int) -> None:
    """Write the recipes of the candidates, and their study. Without `steps`, no candidate is trained.

    Raises:
        CseError: If the model is not a transformer with a pooling.
    """
    files = {name: (Path(__file__).parent / name).read_text(encoding="utf-8") for name in RECIPES}
    trained, whitened = (cast("dict[str, Any]", tomlkit.parse(text)) for text in files.values())
    model, pooling = asked["model"], asked["pooling"]
    online, (encoder, _) = trained["encoders"]["online"], open_encoder(model, pooling)
    if type(encoder) is not ENCODERS[online["name"]].cls or len(cast("Any", encoder).heads):
        raise CseError(
            f"--model {model}: cse adapt needs a transformer with a pooling and no further layers",
            "use another model of sentence-transformers or transformers",
            code="adapt.unsupported_model",
        )
    online.update({"model": model, **cast("Any", encoder).settings()})
    for side in ("query", "document"):
        if prompt := encoder.prompts.choose(side)[1]:
            trained["views"][side]["template"] = prompt + "{text}"
    trained["train"].update({"steps": steps, "precision": precision})
    trained["evaluators"]["dev"]["file"] = str(folder / "dev.tsv")
    whitened["encoders"]["white"]["file"] = str(folder / "train.tsv")
    rows = [(UNCHANGED, "trained.toml", "train.steps=0")]
    rows += [(row, "whitened.toml", f"encoders.white.strength={strength:g}")
             for row, strength in zip(WHITENED, STRENGTHS, strict=True)]  # fmt: skip
    rows += [(row, "trained.toml", f"train.learning_rate={rate:g}")
             for row, rate in zip(TRAINED, RATES, strict=True) if steps]  # fmt: skip
    study = {
        "title": f"Candidates for {model}",
        "seeds": [0],
        "score": "dev.mrr",
        "rows": [{"row": row, "recipe": recipe, "set": [setting]} for row, recipe, setting in rows],
    }
    for name, tables in zip((*RECIPES, RACE), (trained, whitened, {"study": study}), strict=True):
        (folder / name).write_text(to_toml(tables), encoding="utf-8")


def write_verdict(folder: Path, chosen: str, judges: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the study of a row of the race and the unchanged model, on test documents and with fresh seeds."""
    settings = []
    for name, table in judges.items():
        written = tomlkit.inline_table()
        written.update(table)
        settings.append(f"evaluators.{name}={written.as_string()}")
    rows = tomllib.loads((folder / RACE).read_text(encoding="utf-8"))["study"]["rows"]
    study = {
        "title": "Verdict on test documents",
        "seeds": SEEDS,
        "score": "queries.mrr",
        "set": settings,
        "unset": ["evaluators.dev", "evaluators.kept_dev"],
        "rows": [row for row in rows if row["row"] in (UNCHANGED, chosen)],
    }
    (folder / VERDICT).write_text(to_toml({"study": study}), encoding="utf-8")
