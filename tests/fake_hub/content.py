"""Content of the fake hub: evaluation data from `../shared/data`, and small models under the names that recipes use."""

from __future__ import annotations

import gzip
import itertools
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.seq2seq import tiny_marian, tiny_nllb, tiny_t5

SHARED = Path(__file__).parents[3] / "shared"

COPIES = {
    "google-bert/bert-base-uncased": "mini_en",
    "google-bert/bert-base-multilingual-uncased": "mini_de",
    "google-bert/bert-base-chinese": "mini_zh",
    "denpa92/bert-base-cantonese": "mini_zh",
    "sentence-transformers/stsb-bert-base": "mini_en",
}
"""Encoders of the hub → small ones in `../shared/models`."""

TRANSLATORS = {
    "google-t5/t5-base": tiny_t5,
    "Helsinki-NLP/opus-mt-en-de": tiny_marian,
    "Helsinki-NLP/opus-mt-de-en": partial(tiny_marian, source="de", target="en"),
    "facebook/nllb-200-distilled-600M": tiny_nllb,
}


def write_evaluation_data(out: Path) -> None:
    """Write the STS sets of mteb in the layouts that the hub's pages show."""
    import pyarrow as pa
    from pyarrow import parquet

    splits = (("train", "train"), ("dev", "validation"), ("test", "test"))
    for year in range(12, 17):
        _json_lines(out / f"mteb/sts{year}-sts/test.jsonl.gz", _pairs(f"sts/sts{year}/test.tsv"))
    for ours, theirs in splits:
        stsb = (pair | {"dataset": "MSRvid"} for pair in _pairs(f"sts/stsb/{ours}.tsv"))
        _json_lines(out / f"mteb/stsbenchmark-sts/{theirs}.jsonl.gz", stsb)
        _json_lines(out / f"mteb/sickr-sts/{theirs}.json.gz", _pairs(f"sts/sickr/{ours}.tsv"))
        chinese = [pair | {"score": int(pair["score"])} for pair in _pairs(f"sts_zh/cstsb/{ours}.tsv")]
        place = out / f"C-MTEB/STSB/data/{theirs}-00000-of-00001-7d9f45e146afdbd0.parquet"
        place.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.Table.from_pylist(chinese), place)


def _pairs(name: str) -> Iterator[dict[str, Any]]:
    lines = [line.split("\t") for line in (SHARED / "data" / name).read_text(encoding="utf-8").split("\n")[:-1]]
    for row in (dict(zip(lines[0], line, strict=True)) for line in lines[1:]):
        yield {"sentence1": row["sentence1"], "sentence2": row["sentence2"], "score": float(row["score"])}


def _json_lines(path: Path, records: Iterable[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    path.write_bytes(gzip.compress(text.encode(), compresslevel=3, mtime=0))


def write_wikipedia(out: Path) -> None:
    """Write the training text of SimCSE."""
    place = out / "princeton-nlp/datasets-for-simcse/wiki1m_for_simcse.txt"
    place.parent.mkdir(parents=True)
    with gzip.open(SHARED / "data/train/wiki_en_1m.txt.gz", "rb") as file, place.open("wb") as made:
        made.writelines(itertools.islice(file, 1_000_000))


def write_models(out: Path) -> None:
    """Write small models under the names in `COPIES` and `TRANSLATORS`."""
    from transformers import AutoConfig, BertForPreTraining, GenerationConfig

    for theirs, ours in COPIES.items():
        # The released checkpoints have a pooler and prediction heads, which recipes ask for. These have none.
        source = SHARED / "models" / ours
        BertForPreTraining.from_pretrained(source, dtype="float32").save_pretrained(out / theirs)
        for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
            shutil.copyfile(source / name, out / theirs / name)
    for theirs, write in TRANSLATORS.items():
        with tempfile.TemporaryDirectory() as made:
            folder = write(Path(made))
            settings = GenerationConfig.from_model_config(AutoConfig.from_pretrained(folder))
            # A random model would repeat one token, or none, to the end.
            settings.update(min_new_tokens=2, repetition_penalty=5.0, exponential_decay_length_penalty=(4, 1.5))
            settings.save_pretrained(folder)
            shutil.copytree(folder, out / theirs)
