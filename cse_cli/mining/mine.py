"""Hard negatives for pairs: embeddings of the teacher, the search, and a file of triplets with its record."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from cse_cli._version import __version__
from cse_cli.core import digests, paths
from cse_cli.core.threads import limit_torch_threads
from cse_cli.data.cache import explained_cache_errors
from cse_cli.data.columns import Report
from cse_cli.data.sources import Text, find_parts, open_text
from cse_cli.data.translate import data_of
from cse_cli.evaluation.encoder import SentenceEncoder
from cse_cli.evaluation.evaluate import Settings
from cse_cli.mining.negatives import Filters, Negatives, Search, check_search, find_negatives
from cse_cli.runs.model import checked_model_of_run
from registry.code import modules_digest
from registry.encoders.saved import open_encoder
from registry.errors import CseError
from registry.paths import expand_user, write_atomically
from registry.resources.model_files import settings_sha256, sha256_of, weights_sha256
from registry.resources.models import locate

RECORD = ".mining"
"""Ending that follows the name of the output in the name of its record."""


@dataclass(frozen=True)
class MiningRequest:
    """Pairs, teacher, rules and output, as in `cse data mine`.

    Args:
        pairs: File, directory, glob, name of a data set or "hf:owner/name".
        model: Teacher, whose cosines decide: a directory, name in `$CSE_MODELS`, Hub ID or run ID.
        settings: Settings of the teacher.
        filters: Rules that select negatives.
        anchor: Column of the anchors. Default: the first one.
        positive: Column of the positives. Default: the first one that is not that of the anchors.
        corpus: Text with further candidates, in addition to the positives of all anchors.
        corpus_column: Column of the corpus.
        split: Split of data sets.
        limit: Maximum number of pairs.
        output: Path of the new file: .jsonl or .csv.
        format: "triplet" writes a row for each negative, "n-tuple" a row for each pair with enough of them.
        search: Search for the nearest texts.
    """

    pairs: str
    model: str
    settings: Settings
    filters: Filters = field(default_factory=Filters)
    anchor: str | None = None
    positive: str | None = None
    corpus: str | None = None
    corpus_column: str = "text"
    split: str = "train"
    limit: int | None = None
    output: str | None = None
    format: Literal["triplet", "n-tuple"] = "triplet"
    search: Search = "torch"

    @property
    def columns(self) -> list[str]:
        """Columns of the output."""
        count = self.filters.num_negatives
        several = [f"negative_{number}" for number in range(1, count + 1)]
        return ["anchor", "positive", *(["negative"] if self.format == "triplet" else several)]


@dataclass(frozen=True)
class Mined:
    """Result of `cse data mine`.

    Args:
        output: Path of the file.
        columns: Its columns.
        rows: Number of its rows.
        pairs: Number of distinct pairs.
        candidates: Number of distinct texts in the corpus.
        anchors: Number of distinct anchors.
        lacking: Number of anchors with fewer negatives than requested.
        skipped: Filter → number of candidates that it removed.
        positive_score: Mean cosine of anchors and positives.
        negative_score: Mean cosine of anchors and negatives, or None without any.
        sha256: SHA-256 of the file.
        reused: Whether the file had been mined before.
    """

    output: str
    columns: list[str]
    rows: int
    pairs: int
    candidates: int
    anchors: int
    lacking: int
    skipped: dict[str, int]
    positive_score: float
    negative_score: float | None
    sha256: str
    reused: bool = False


def mine(request: MiningRequest, report: Report, warn: Callable[[str], None]) -> Mined:
    """Write a file with hard negatives for pairs, and its record. Return the record of a file that is up to date.

    Args:
        request: What to mine.
        report: Called while texts are embedded and compared.
        warn: Called with remarks about the texts, such as skipped rows.

    Raises:
        CseError: If the text or the teacher cannot be used, or the output is another file.
        MissingError: If a text or the teacher is not on this machine and cannot be downloaded.
    """
    limit_torch_threads()
    check_output(request.output)
    check_search(request.search)
    text, anchor, positive = open_pairs(request)
    more = None if request.corpus is None else open_text(data_of(request.corpus), {request.corpus_column})
    for notice in (*text.notices, *(more.notices if more is not None else ())):
        warn(notice)
    inputs = describe(request, text, more, (anchor, positive))
    key = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
    output = output_path(request, key)
    if (known := read_record(output, key)) is not None:
        return known
    anchors: dict[str, dict[str, None]] = {}
    for one, other in zip(text.cells(anchor), text.cells(positive), strict=True):
        anchors.setdefault(one, {})[other] = None
    corpus = dict.fromkeys([*(more.cells(request.corpus_column) if more is not None else ()), *text.cells(positive)])
    found, positives = _search(request, list(anchors.values()), list(anchors), list(corpus), report)
    rows = as_rows(list(anchors), positives, list(corpus), found, request.format)
    missing = found.rows < 0
    mined = Mined(
        output=str(output),
        columns=request.columns,
        rows=len(rows),
        pairs=sum(map(len, positives)),
        candidates=len(corpus),
        anchors=len(anchors),
        lacking=int(missing.any(dim=1).sum()),
        skipped=found.skipped,
        positive_score=float(torch.cat(found.positive_scores).mean()),
        negative_score=None if missing.all() else float(found.scores[~missing].mean()),
        sha256=write_rows(output, request.columns, rows),
    )
    names = {"pairs": request.pairs, "model": request.model, "corpus": request.corpus}
    record = {
        "key": key,
        "cse": __version__,
        "names": names,
        **inputs,
        "result": {**asdict(mined), "output": output.name},
    }
    write_atomically(_record_of(output), json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    return mined


def open_pairs(request: MiningRequest) -> tuple[Text, str, str]:
    """Return the text of the pairs, and the columns of anchors and positives."""
    data = data_of(request.pairs, request.split, request.limit)
    columns = find_parts(data)[0].columns
    anchor = request.anchor or columns[0]
    positive = request.positive or next((name for name in columns if name != anchor), None)
    if positive is None:
        raise CseError(
            f"'{request.pairs}' has only the column '{anchor}', but pairs need two",
            "add a column of positives",
            code="mining.no_pairs",
        )
    return open_text(data, {anchor, positive}), anchor, positive


def describe(request: MiningRequest, text: Text, corpus: Text | None, columns: tuple[str, str]) -> dict[str, Any]:
    """Return everything that decides the output: digests of texts, weights and code, and settings."""
    teacher = locate(checked_model_of_run(request.model) or request.model)
    settings = request.settings
    return {
        "text": text.fingerprint,
        "columns": columns,
        "corpus": None if corpus is None else corpus.fingerprint,
        "teacher": {
            "weights": weights_sha256(teacher, digests.sha256),
            "settings": settings_sha256(teacher, digests.sha256),
            "pooling": settings.pooling,
            "template": settings.template,
            "max_length": settings.max_length,
            "precision": settings.compute.precision,
        },
        "filters": asdict(request.filters),
        "format": request.format,
        "code": modules_digest(["cse_cli.mining.mine", "cse_cli.mining.negatives"]),
    }


def _search(
    request: MiningRequest, known: Sequence[Iterable[str]], anchors: list[str], corpus: list[str], report: Report
) -> tuple[Negatives, list[list[int]]]:
    """Return the negatives, and the rows of the corpus that are positives of each anchor."""
    settings = request.settings
    teacher = checked_model_of_run(request.model) or request.model
    encoder, length = open_encoder(teacher, settings.pooling, settings.template)
    compute = settings.compute
    encoder.to(compute.device).eval()
    encode = SentenceEncoder(encoder, compute, settings.batch_tokens, min(settings.max_length or length, length))
    every = list(dict.fromkeys([*anchors, *corpus]))
    encode.watch = lambda share: report("embedding", round(share * len(every)), len(every))
    if encoder.fits != "never":
        encoder.fit(encode, every if encoder.fits == "each" else ())
        encode.forget()
    vectors = dict(zip(every, encode(every).to(compute.device), strict=True))
    queries, candidates = (torch.stack([vectors[text] for text in texts]) for texts in (anchors, corpus))
    places = {text: place for place, text in enumerate(corpus)}
    positives = [[places[text] for text in texts] for texts in known]
    same = [[places[text]] if text in places else [] for text in anchors]
    found = find_negatives(
        queries, candidates, positives, request.filters, same, request.search,
        lambda *count: report("comparing", *count),
    )  # fmt: skip
    return found, positives


def as_rows(
    anchors: Sequence[str], positives: Sequence[Sequence[int]], corpus: Sequence[str], found: Negatives, form: str
) -> list[tuple[str, ...]]:
    """Return the rows of the output: triplets, or tuples of the pairs that have all negatives."""
    rows: list[tuple[str, ...]] = []
    for anchor, known, places in zip(anchors, positives, found.rows.tolist(), strict=True):
        negatives = [corpus[place] for place in places if place >= 0]
        for positive in known:
            if form == "triplet":
                rows += [(anchor, corpus[positive], negative) for negative in negatives]
            elif len(negatives) == len(places):
                rows.append((anchor, corpus[positive], *negatives))
    return rows


def write_rows(output: Path, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a .csv or .jsonl atomically, and return its SHA-256."""
    draft = output.with_name(f"tmp-{output.name}")
    with explained_cache_errors(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        try:
            with draft.open("w", encoding="utf-8", newline="") as file:
                if output.suffix == ".csv":
                    csv.writer(file, lineterminator="\n").writerows([columns, *rows])
                else:
                    objects = (dict(zip(columns, row, strict=True)) for row in rows)
                    file.writelines(json.dumps(one, ensure_ascii=False) + "\n" for one in objects)
            draft.replace(output)
        finally:
            draft.unlink(missing_ok=True)
    return sha256_of(output)


def check_output(output: str | None) -> None:
    """Raise `CseError` if the name of the output has another ending than .jsonl or .csv."""
    if output is not None and Path(output).suffix not in (".jsonl", ".csv"):
        raise CseError(
            f"--output: '{Path(output).name}' does not end with .jsonl or .csv",
            "add one of these endings",
            code="mining.output_format",
        )


def output_path(request: MiningRequest, key: str) -> Path:
    """Return the path of the output. By default, its name contains the beginning of the key."""
    if request.output is not None:
        return expand_user(Path(request.output)).absolute()
    stem = re.sub(r"[^\w-]+", "-", Path(request.pairs.removeprefix("hf:")).name.partition(".")[0]).strip("-")
    return paths.home() / "mined" / f"{stem or 'pairs'}.{key[:8]}.jsonl"


def _record_of(output: Path) -> Path:
    return output.with_name(output.name + RECORD)


def read_record(output: Path, key: str) -> Mined | None:
    """Return the result of an output with this key, or None if there is no such file.

    Raises:
        CseError: If the file exists, but was mined with other inputs, was changed, or has no record.
    """
    if not output.exists():
        return None
    try:
        record = json.loads(_record_of(output).read_text(encoding="utf-8"))
        if record["key"] == key and record["result"]["sha256"] == sha256_of(output):
            return Mined(**{**record["result"], "output": str(output), "reused": True})
    except (OSError, ValueError, LookupError, TypeError):
        pass
    raise CseError(
        f"--output: '{output}' exists and has other content", "move it, or use another name", code="data.output_exists"
    )
