"""The studies of `cse adapt`: a race that chooses a candidate on dev documents, and a verdict on test documents.

Both are studies of recipes in the output directory, which `cse run` and `cse compare` take, too.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import tomlkit

from cse_cli.adapt.corpus import Corpus, write_table
from cse_cli.core.formatting import to_toml
from registry import ENCODERS
from registry.encoders.saved import open_encoder
from registry.errors import CseError

RACE, VERDICT = "race.toml", "verdict.toml"
UNCHANGED, WHITENED = "unchanged", "whitened"
RATES = (5e-5, 2e-4)
TRAINED = tuple(f"trained, {rate:g}" for rate in RATES)
"""Rows of the race whose results depend on the seed."""
SEEDS = [1, 2, 3]
"""Seeds of the verdict. The race has seed 0."""
RECIPES = ("trained.toml", "whitened.toml")
PAIR = ("query", "positive")


def write_tables(folder: Path, corpus: Corpus) -> None:
    """Write the pairs that train, choose and judge."""
    rng = random.Random(0)
    write_table(folder / "train.tsv", ("text", *PAIR), [(one.text, *one.passages(rng, 1)[0]) for one in corpus.train])
    write_table(folder / "dev.tsv", PAIR, [pair for one in corpus.dev for pair in one.passages(rng)])
    write_table(folder / "passages.tsv", PAIR, [pair for one in corpus.test for pair in one.passages(rng)])
    write_table(folder / "halves.tsv", PAIR, [one.halves() for one in corpus.test])


def write_race(folder: Path, model: str, pooling: str | None, steps: int) -> None:
    """Write the recipes of the candidates, and their study. Without `steps`, no candidate is trained.

    Raises:
        CseError: If the model is not a transformer with a pooling.
    """
    files = {name: (Path(__file__).parent / name).read_text(encoding="utf-8") for name in RECIPES}
    trained, whitened = (cast("dict[str, Any]", tomlkit.parse(text)) for text in files.values())
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
    trained["train"]["steps"] = steps
    trained["evaluators"]["dev"]["file"] = str(folder / "dev.tsv")
    whitened["encoders"]["white"]["file"] = str(folder / "train.tsv")
    rows = [
        {"row": UNCHANGED, "recipe": "trained.toml", "set": ["train.steps=0"]},
        {"row": WHITENED, "recipe": "whitened.toml"},
        *({"row": row, "recipe": "trained.toml", "set": [f"train.learning_rate={rate:g}"]}
          for row, rate in zip(TRAINED, RATES, strict=True) if steps),
    ]  # fmt: skip
    study = {"title": f"Candidates for {model}", "seeds": [0], "score": "dev.mrr", "rows": rows}
    for name, tables in zip((*RECIPES, RACE), (trained, whitened, {"study": study}), strict=True):
        (folder / name).write_text(to_toml(tables), encoding="utf-8")


def write_verdict(folder: Path, chosen: str, judges: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the study of a row of the race and the unchanged model, on test documents and with fresh seeds.

    Args:
        folder: Output directory.
        chosen: Name of the row.
        judges: Name → table of an evaluator with labels.
    """
    files = {name: {"name": "retrieval_at_k", "file": str(folder / f"{name}.tsv")} for name in ("passages", "halves")}
    evaluators, settings = {**files, "kept": {"name": "sts", "dataset": "stsb_open"}, **judges}, []
    for name, table in evaluators.items():
        written = tomlkit.inline_table()
        written.update(table)
        settings.append(f"evaluators.{name}={written.as_string()}")
    rows = tomllib.loads((folder / RACE).read_text(encoding="utf-8"))["study"]["rows"]
    study = {
        "title": "Verdict on test documents",
        "seeds": SEEDS,
        "score": "passages.mrr",
        "set": settings,
        "unset": ["evaluators.kept_dev"],
        "rows": [row for row in rows if row["row"] in (UNCHANGED, chosen)],
    }
    (folder / VERDICT).write_text(to_toml({"study": study}), encoding="utf-8")
