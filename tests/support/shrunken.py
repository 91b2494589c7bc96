"""Any recipe made small enough to run in a second: tiny random models, a few sentences, three steps."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry.resources.catalog import Pair
from tests.support.tiny import WORDS, sentences, tiny_bert, tiny_llama, tiny_roberta, with_prediction_head, word_vectors

STEPS = 3
LONGEST = 64
"""Tokens that the tiny models have positions for."""
BLOCKS = 2
"""Blocks of the tiny models."""
AT_MOST = {
    "length": 6, "initial": 3, "served": 3, "k": 8, "limit": 30, "neighbors": 3, "buffer": 6, "frozen_layers": 1,
    "groups": 4, "dim": 16, "head": 1,
}  # fmt: skip
"""Parameter → largest value a tiny run has room for."""


@dataclass(frozen=True)
class Small:
    """What tiny runs are made of, on disk."""

    text: Path  # a `.tsv` with a `text` and a `translation` column
    translations: Path  # the same for the sentences of `pairs`
    vectors: Path  # in GloVe's format
    models: dict[str, Path]  # kind of checkpoint → directory
    decoder: Path  # with its prediction head, as many blocks deep as any recipe counts

    def options(self, recipe: Any) -> tuple[list[str], list[str]]:
        """Return the `--set` and the `--unset` that shrink a loaded recipe."""
        tables = recipe.resolved()
        kept, dropped = _evaluators(tables)
        changed = [f"data.file={self.text}", "train.batch_size=4", "train.evaluate_every=2", "train.precision=fp32"]
        if tables["train"].get("steps") != 0:
            changed.append(f"train.steps={STEPS}")
        if tables["data"]["max_length"] > LONGEST:
            changed.append(f"data.max_length={LONGEST}")
        dropped += [f"data.{key}" for key in ("dataset", "column", "columns") if tables["data"].get(key)]
        made = tables["data"].get("columns", {})
        for name, view in tables["views"].items():  # the file has translations in place of pairs, and makes nothing
            if view["column"] not in ("text", "translation"):
                changed.append(f"views.{name}.column={'text' if view['column'] in made else 'translation'}")
        for path, part in _components(tables):
            if not path.startswith("evaluators.") or path in kept:
                changed += [f"{path}.{name}={value}" for name, value in self._smaller(part, path)]
        return [*changed, *(f"{path}.split=dev" for path in kept)], dropped

    def _smaller(self, part: dict[str, Any], path: str) -> Iterator[tuple[str, Any]]:
        """Yield the parameters of a component that a tiny run changes, known by their names alone."""
        scored = path.startswith("evaluators.")
        instead = {
            "file": self.vectors,
            "translations": self.translations,
            "dataset": "stsb_open" if scored else "tatoeba_open",
            "datasets": '["stsb_open"]',
            "widths": [4, 8, 16],
            "frequencies": self.vectors.with_name("frequencies.txt"),
        }
        for name, value in part.items():
            if name in ("model", "generator", "discriminator"):
                yield name, self._like(value)
            elif name in instead:
                yield name, instead[name]
            elif name in AT_MOST and isinstance(value, int):
                yield name, min(value, AT_MOST[name])
            elif name == "layers" and isinstance(value, list):
                yield name, _fewer(value)
        if part["name"] == "augmentation_quality":
            yield "translations", self.translations
        if part.get("fit_on", "target") != "target":
            yield from (("fit_on", "tatoeba_open"), ("split", "train"), ("columns", '["text"]'), ("limit", 30))

    def _like(self, model: str) -> Path:
        decoder = any(name in model.lower() for name in ("llama", "opt-", "mistral", "llm2vec", "qwen", "gemma"))
        return self.decoder if decoder else self.models["roberta" if "roberta" in model else "bert"]


def _evaluators(tables: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the paths of the evaluators to keep, the one that selects or else all, and of the others."""
    select = tables["evaluate"].get("metric_for_best_model", "").rpartition(".")[0]
    kept = [f"evaluators.{name}" for name in tables["evaluators"] if select in ("", name)]
    return kept, [f"evaluators.{name}" for name in tables["evaluators"] if f"evaluators.{name}" not in kept]


def _components(tables: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the path and the table of every component of a resolved recipe."""
    for section in ("encoders", "losses", "evaluators"):
        yield from ((f"{section}.{name}", part) for name, part in tables[section].items())
    for name, encoder in tables["encoders"].items():
        yield from ((f"encoders.{name}.heads.{key}", head) for key, head in encoder.get("heads", {}).items())
    for name, view in tables["views"].items():
        yield from ((f"views.{name}.augment.{place}", part) for place, part in enumerate(view["augment"]))
    if "queue" in tables:
        yield "queue", tables["queue"]


def small(folder: Path, rows: int = 20) -> Small:
    """Write `rows` sentences and the models below `folder`."""
    asked = list(dict.fromkeys(side for pair in pairs("", "") for side in (pair.first, pair.second)))
    models = {"bert": tiny_bert(folder), "roberta": tiny_roberta(folder)}
    for model in models.values():
        with_prediction_head(model)
    counts = [f"{word} {100 - place}\n" for place, word in enumerate(WORDS) if not word.startswith("##")]
    (folder / "frequencies.txt").write_text("".join(counts), encoding="utf-8")
    return Small(
        text=_parallel(folder / "text.tsv", sentences(rows, seed=1)),
        translations=_parallel(folder / "translations.tsv", asked),
        vectors=word_vectors(folder / "vectors.txt"),
        models=models,
        decoder=with_prediction_head(tiny_llama(folder, layers=32, positions=256)),
    )


def _parallel(file: Path, english: list[str]) -> Path:
    german = sentences(len(english), seed=2)
    lines = [f"{one}\t{other}\n" for one, other in zip(english, german, strict=True)]
    file.write_text("text\ttranslation\n" + "".join(lines), encoding="utf-8")
    return file


def pairs(name: str, split: str) -> list[Pair]:
    """Return a few scored pairs, whatever is asked for: stands in for `catalog.read_pairs`."""
    left, right = sentences(12, seed=3), sentences(12, seed=4)
    return [Pair("", place / 2, one, other) for place, (one, other) in enumerate(zip(left, right, strict=True))]


def recipe(folder: Path, parts: Small, name: str = "small", **train: Any) -> Path:
    """Write a whole SimCSE recipe over tiny parts; return its path."""
    settings = {"seed": 3, "steps": STEPS, "batch_size": 4, "evaluate_every": 2, **train}
    path, scored = folder / f"{name}.toml", folder / "pairs.tsv"
    rows = [f"{pair.score}\t{pair.first}\t{pair.second}\n" for pair in pairs("", "")]
    scored.write_text("score\tsentence1\tsentence2\n" + "".join(rows), encoding="utf-8")
    path.write_text(
        f'schema = 1\ntitle = "Small [red]one"\n[data]\nfile = "{parts.text}"\n'
        f'[encoders.online]\nname = "transformer"\nmodel = "{parts.models["bert"]}"\npooling = "mean"\n'
        "[views.anchor]\n[views.positive]\n[losses.info_nce]\n"
        f'[evaluate]\nmetric_for_best_model = "dev.spearman"\n[evaluators.dev]\nname = "sts"\nfile = "{scored}"\n'
        'split = "dev"\n[train]\n' + "".join(f"{key} = {value}\n" for key, value in settings.items()),
        encoding="utf-8",
    )
    return path


def _fewer(layers: list[Any]) -> list[Any]:
    """Return the blocks, or groups of blocks, that a tiny model has."""
    if any(isinstance(layer, list) for layer in layers):
        return [[block] for block in range(BLOCKS)]
    return [layer for layer in layers if layer < BLOCKS] or list(range(BLOCKS))
