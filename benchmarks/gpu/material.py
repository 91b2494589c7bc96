"""Random model and text for the parts, in a temporary directory."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.training.material import SPREAD, Setting, available, write_model, write_text

TEXT = "wiki_en_1m"


def parser(about: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of all parts."""
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--device", default="cpu")
    made.add_argument("--shape", default="bert-base")
    made.add_argument("--precision", default="bf16")
    made.add_argument("--batch", type=int, default=64)
    made.add_argument("--tokenizer", help="Directory of a tokenizer for the random model.")
    made.add_argument("--text", default=TEXT, help="Name of the text. If it is missing, text is generated.")
    made.add_argument("--set", nargs="*", default=[], help="Settings of the recipe, as in `cse run --set`.")
    made.add_argument("--json", type=Path)
    return made


@contextmanager
def setting(asked: argparse.Namespace, rows: int, dropout: float = 0.1) -> Iterator[Setting]:
    """Write a temporary model and `rows` sentences, and yield the setting."""
    from registry.resources.models import quiet_transformers

    os.environ["TQDM_DISABLE"] = "1"
    quiet_transformers()
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        os.environ["CSE_HOME"] = f"{name}/home"
        folder = Path(name)
        text, parallel = write_text(available(asked.text), folder, rows)
        spread = SPREAD[asked.shape] if dropout == 0 else 0.02
        model = write_model(asked.shape, folder / "model", asked.tokenizer, text, dropout, spread)
        options = tuple(asked.set)
        yield Setting(model, text, parallel, asked.batch, 32, asked.precision, asked.device, options=options)
