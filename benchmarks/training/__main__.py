"""Compare a training step of `cse` with a plain loop and sentence-transformers' trainer.

    CSE_DATA=../shared/data python -m benchmarks.training [--shape minilm] [--threads 2] [--json FILE]

Measures losses, seconds and memory. All implementations have the same weights, sentences, batches, precision and
threads, in one process, alternating. First they run the same steps without dropout. If their losses differ, the page
reports it and the command exits with 1. Then steps with dropout 0.1 are timed. A step includes reading the tokens of
its sentences, padding, moving them to the device, forward, backward, clipping, AdamW and the schedule. Tokenizing comes
before the first step, except for the implementation "as shipped".
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.training.material import SHAPES

PARTS = ("peers", "shares", "methods", "memory", "others")


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--shape", default="minilm", choices=tuple(SHAPES), help="Shape of the random model.")
    add("--model", help="Directory of a checkpoint, instead of a random model.")
    add("--tokenizer", help="Directory of a tokenizer for the random model.")
    add(
        "--texts",
        nargs="*",
        default=["wiki1m_prefix", "wiki_en"],
        help="Files, names below $CSE_DATA/train, or generated.",
    )
    add("--rows", type=int, default=100_000, help="Number of sentences of each text.")
    add("--batch", type=int, default=64)
    add("--length", type=int, default=32)
    add("--precision", nargs="*", default=["fp32"], choices=("fp32", "bf16"), help="The first is that of other parts.")
    add("--device", default="cpu", help="cpu or cuda")
    add("--threads", type=int)
    add("--rounds", type=int, default=3, help="Number of rounds for each implementation.")
    add("--steps", type=int, default=10, help="Timed steps per round.")
    add("--warm", type=int, default=2, help="Warm-up steps per round.")
    add("--agree", type=int, default=6, help="Steps whose losses are compared. 0 skips the comparison.")
    add("--peers", nargs="*", default=["plain", "sbert", "shipped"], choices=("plain", "sbert", "shipped"))
    add("--recipes", nargs="*", help="Recipes whose steps are compared with those of the first.")
    add("--parts", nargs="*", default=list(PARTS), choices=PARTS)
    add("--also", nargs="*", default=[], help="Settings, each added to the comparison with the peers.")
    add(
        "--variants",
        nargs="*",
        default=[],
        help="Settings for which the step of `cse` is timed, in addition to the default.",
    )
    add("--set", nargs="*", default=[], help="Settings of `cse`, such as train.compile=on.")
    add("--suite-model", help="Model that scores the test sets.")
    add("--start-text", default="wiki_en", help="Catalog name of the text whose start is timed.")
    add("--json", type=Path, help="Output file for the result.")
    add("--markdown", type=Path, help="Output file for the page, instead of printing it.")
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> int:
    """Measure, print the page and return 1 if losses differ."""
    asked = arguments(given)
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        os.environ["CSE_HOME"] = f"{folder}/home"
        found = _measured(asked, Path(folder))
    from benchmarks.training.report import markdown

    page = markdown(found)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if asked.markdown:
        asked.markdown.write_text(page, encoding="utf-8")
    else:
        print(page)
    return 0 if found.get("agreement", {}).get("holds", True) else 1


def _measured(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    from benchmarks.training import machine, measure

    _quiet()
    measure.use_threads(asked.threads)
    found: dict[str, Any] = {"schema_version": 1, "machine": machine.describe(), "shape": asked.model or asked.shape}
    _agree(asked, folder, found)
    _time(asked, folder, found)
    return {**found, "load_at_end": machine.load()}


def _agree(asked: argparse.Namespace, folder: Path, found: dict[str, Any]) -> None:
    from benchmarks.training import measure

    if asked.agree > 0:
        setting = replace(_setting(asked, folder, asked.texts[0], 0.0), precision="fp32")
        peers = [name for name in asked.peers if name != "shipped"]
        found["agreement"] = measure.compare(setting, asked.agree, peers)


def _time(asked: argparse.Namespace, folder: Path, found: dict[str, Any]) -> None:
    from benchmarks.training import measure

    turns = (asked.rounds, asked.steps, asked.warm)
    settings = [
        replace(_setting(asked, folder, text, 0.1), precision=precision)
        for text in asked.texts
        for precision in asked.precision
    ]
    if "peers" in asked.parts:
        found["peers"] = [measure.peers(one, asked.peers, *turns, asked.also) for one in settings]
    if "shares" in asked.parts and asked.device == "cpu":
        found["shares"] = [measure.shares_of(one) for one in settings]
    if "methods" in asked.parts:
        found["methods"] = measure.methods(settings[0], asked.recipes or measure.METHODS, *turns)
    if asked.variants:
        found["variants"] = measure.variants(settings[0], asked.variants, *turns)
    if "memory" in asked.parts:
        found["memory"] = measure.memories(settings[0])
    if "others" in asked.parts:
        found["others"] = measure.rest(settings[0], asked.start_text, asked.suite_model, asked.rounds)


def _setting(asked: argparse.Namespace, folder: Path, text: str, dropout: float) -> Any:
    """Write a text and a model with this dropout below `folder`, unless they exist."""
    from benchmarks.training import material

    own = folder / f"{Path(text).name.partition('.')[0]}-{dropout}"
    own.mkdir(exist_ok=True)
    file, parallel = material.write_text(text, own, asked.rows)
    if asked.model:
        model = material.copy_model(Path(asked.model), own / "model", dropout)
    else:
        spread = material.SPREAD[asked.shape] if dropout == 0 else 0.02
        model = material.write_model(asked.shape, own / "model", asked.tokenizer, file, dropout, spread)
    return material.Setting(
        model, file, parallel, asked.batch, asked.length, asked.precision[0], asked.device, options=tuple(asked.set)
    )


def _quiet() -> None:
    os.environ["TQDM_DISABLE"] = "1"
    import datasets

    from registry.resources.models import quiet_transformers

    quiet_transformers()
    datasets.disable_progress_bars()


if __name__ == "__main__":
    sys.exit(main())
