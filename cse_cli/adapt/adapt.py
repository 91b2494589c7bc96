"""`cse adapt`: a race of a few recipes on a corpus without labels, and a verdict on whether one of them helps."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from cse_cli.adapt.corpus import Corpus, divide, read_documents
from cse_cli.adapt.judge import MARGIN, Difference, differences, verdict
from cse_cli.adapt.study import (
    RACE,
    RATES,
    SEEDS,
    TRAINED,
    UNCHANGED,
    VERDICT,
    write_race,
    write_tables,
    write_verdict,
)
from cse_cli.adapt.view import draw, print_answer
from cse_cli.core.console import Screen, write_json
from cse_cli.core.devices import choose, has_bf16_instructions
from cse_cli.core.formatting import duration
from cse_cli.core.plotting import save_figures
from cse_cli.core.results import Result
from cse_cli.jobs.launch import run_study
from cse_cli.jobs.plan import measure
from cse_cli.jobs.request import RunRequest
from cse_cli.jobs.study import plan_study
from cse_cli.recipe.load import load
from cse_cli.runs.record import MODEL, folder_of
from registry.encoders.export import append_normalization
from registry.encoders.saved import open_encoder
from registry.errors import CseError
from registry.resources import catalog
from registry.resources.models import load_tokenizer

ASKED = "adapt.json"
TRAININGS = len(RATES) + len(SEEDS)
FEWEST, MOST = 10, 300
"""Steps of each training. With fewer, nothing changes. 300 steps read 5,000 documents four times."""
PLANNED = 0.75
"""Share of the time that is planned. Steps of a training took up to a quarter longer than the measured ones."""
UNKNOWN = 0.05
"""Share of unknown tokens above which a tokenizer was probably made for another language."""


def adapt(
    corpus: Path,
    model: str,
    pooling: str | None,
    *,
    minutes: float,
    out: Path | None,
    judge: Path | None,
    request: RunRequest,
) -> None:
    """Find out whether a recipe without labels helps a model on a corpus, and write the model if one does.

    The output directory `out` has two studies, a race and a verdict. The time sets the number of training steps, and
    the labels of `judge` neither train nor choose. The same command continues after an interruption.

    Raises:
        CseError: If the corpus has too few or too short documents, the model is not a transformer with a pooling, or
            the output directory has other arguments.
    """
    began = time.monotonic()
    folder = (Path(f"adapt-{corpus.stem}") if out is None else out).absolute()
    documents = read_documents(corpus)
    known = [pair for split in ("dev", "test") for pair in catalog.read_pairs("stsb_open", split)]
    evaluated = frozenset(" ".join(text.split()) for pair in known for text in (pair.first, pair.second))
    divided = divide(documents, str(corpus), evaluated)
    asked = {
        "corpus": str(corpus.absolute()),
        "sha256": hashlib.sha256("\0".join(one.text for one in documents).encode()).hexdigest(),
        "model": model,
        "minutes": minutes,
        "pooling": pooling,
        "judge": judge and str(judge.absolute()),
    }
    tokenizer = load_tokenizer(model)
    tokens = [token for one in divided.test for token in tokenizer(one.text, add_special_tokens=False)["input_ids"]]
    unknown = tokens.count(tokenizer.unk_token_id) / len(tokens)
    with Screen(quiet=request.quiet) as screen:
        for line in divided.notes:
            screen.warned(line)
        if unknown > UNKNOWN:
            screen.warned(f"{unknown:.0%} of the tokens are unknown to {model}. Does it have this language?")
        compute = choose(request.device)
        half = compute.device.type == "cpu" and has_bf16_instructions()
        precision = "bf16" if half else compute.precision
        judges, planned = _prepare(folder, asked, divided, judge, precision)
    race = run_study(plan_study(str(folder / RACE), request), request)
    if not planned and (before := race.results[race.plan.cells[0].hash]):
        write_race(folder, asked, precision, FEWEST)
        write_verdict(folder, TRAINED[0], judges)
        choosing, judging = _seconds(before), _seconds(_judged(folder, UNCHANGED, request))
        scoring = len(RATES) * choosing + len(SEEDS) * judging
        with Screen(quiet=request.quiet) as screen:
            screen.preparing(f"measuring steps of {model}")
            trained = load(str(folder / "trained.toml"), unset=["evaluators"])
            step = measure(trained.recipe, 0, request.device).step
            left = PLANNED * 60 * minutes - (time.monotonic() - began) - scoring
            steps = min(MOST, int(left / TRAININGS / step))
            steps = steps if steps >= FEWEST else 0
            training = f"{TRAININGS} trainings of {steps} steps" if steps else "no time to train, only to whiten"
            screen.write(
                f"{len(divided.train):,} documents train, {len(divided.dev)} choose, {len(divided.test)} judge · "
                f"{training} · about {duration(scoring + TRAININGS * steps * step if steps else judging)} more"
            )
        write_race(folder, asked, precision, steps)
        (folder / ASKED).write_text(json.dumps({**asked, "steps": steps}) + "\n", encoding="utf-8")
        race = run_study(plan_study(str(folder / RACE), request), request)
    runs = {cell.row: done for cell in race.plan.cells if (done := race.results[cell.hash])}
    for error in race.failures.values():
        if UNCHANGED not in runs:
            raise error
    dev = {row: differences(runs[UNCHANGED], of) for row, of in runs.items()}
    kept = [row for row, of in dev.items() if of["kept_dev"].low >= -MARGIN]
    chosen = max(kept, key=lambda row: dev[row]["dev"].value)  # the first of equal ones
    found, words = dict[str, Difference](), dict[str, float]()
    word, sentence = "undecided", "No candidate that keeps what the model knew is better on dev documents."
    if chosen != UNCHANGED:
        write_verdict(folder, chosen, judges)
        unchanged, candidate = _judged(folder, UNCHANGED, request), _judged(folder, chosen, request)
        found = differences(unchanged, candidate)
        words = {name: of["mrr"] for name, of in unchanged[0].word_overlap.items() if name in found and "mrr" in of}
        word, sentence = verdict(found, chosen)
        save_figures(draw(found, f"{model}, {chosen}"), folder)
        if word == "better":
            shutil.copytree(folder_of(candidate[0].run_id or "") / MODEL, folder / MODEL, dirs_exist_ok=True)
            if open_encoder(model, pooling)[0].normalizes:
                append_normalization(folder / MODEL)
    if request.as_json:
        write_json({
            "verdict": word, "sentence": sentence, "chosen": chosen,
            "dev": {row: {name: asdict(one) for name, one in of.items()} for row, of in dev.items()},
            "differences": {name: asdict(one) for name, one in found.items()}, "word_overlap": words,
            "model": str(folder / MODEL) if word == "better" else None, "seconds": time.monotonic() - began,
        })  # fmt: skip
    else:
        print_answer(dev, found, words, sentence)
        written = f"{'model, ' if word == 'better' else ''}{'figure, studies and ' if found else ''}recipes in {folder}"
        screen.advise([f"{duration(time.monotonic() - began)} · {written}"])


def _prepare(
    folder: Path, asked: Mapping[str, Any], corpus: Corpus, judge: Path | None, precision: str
) -> tuple[dict[str, dict[str, Any]], bool]:
    """Write tables and the race without training. Return the judges, and whether an earlier command has planned."""
    before = json.loads(file.read_text(encoding="utf-8")) if (file := folder / ASKED).is_file() else asked
    if changed := [key for key in {**before, **asked} if key != "steps" and before.get(key) != asked.get(key)]:
        raise CseError(
            f"{folder} has the result for another {' and '.join(changed)}",
            "choose another directory with --out, or delete this one",
            code="adapt.other_arguments",
        )
    folder.mkdir(parents=True, exist_ok=True)
    judges = write_tables(folder, corpus, judge)
    if "steps" not in before:
        file.write_text(json.dumps(asked) + "\n", encoding="utf-8")
        write_race(folder, asked, precision, 0)
    return judges, "steps" in before


def _seconds(runs: Sequence[Result]) -> float:
    return (runs[0].finished - runs[0].started).total_seconds()


def _judged(folder: Path, row: str, request: RunRequest) -> Sequence[Result]:
    """Run a row of the verdict. Without training, one seed is enough."""
    only = replace(request, rows=[row], seed=None if row in TRAINED else SEEDS[0])
    outcome = run_study(plan_study(str(folder / VERDICT), only), only)
    for error in outcome.failures.values():
        raise error
    return outcome.results[outcome.plan.cells[0].hash]
