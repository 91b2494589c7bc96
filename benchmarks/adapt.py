"""Verdicts of `cse adapt` next to what happens to titles that it does not see.

    python -m benchmarks.adapt make DIRECTORY --descriptions Translation-en.xz --packages Packages
    python -m benchmarks.adapt run DIRECTORY --model MODEL [--minutes 7] [--only debian perl]

`make` writes NAME.txt, one document in each line, and NAME.titles.csv, title and document of others. The documents are
descriptions of Debian packages of one section (40 to 220 words; the two files are in dists/*/main of a mirror, in i18n/
and binary-amd64/), and docstrings of the installed packages, whose first line is the title. `run` runs `cse adapt` with
the titles as `--judge`, scores every candidate of the race on them, and prints a row of a Markdown table for each.
"""

from __future__ import annotations

import argparse
import ast
import csv
import json
import lzma
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from cse_cli.adapt.study import RACE, UNCHANGED
from cse_cli.evaluation.model import load_model
from cse_cli.jobs.request import RunRequest
from cse_cli.jobs.study import plan_study
from registry.evaluators.retrieval_at_k import RetrievalAtK

DEBIAN = {
    "perl": {"perl"},
    "python": {"python"},
    "science": {"science", "math", "gnu-r", "electronics"},
    "admin": {"admin", "net", "utils", "web", "httpd"},
    "media": {"sound", "video", "graphics"},
}
"""Corpus → sections of the packages. The corpus "debian" has all sections."""
PACKAGES = ("matplotlib", "mlflow", "networkx", "numpy", "optuna", "pandas", "scipy", "sklearn", "sqlalchemy", "sympy",
            "torch", "transformers")  # fmt: skip
"""Packages with docstrings. Those that are not installed are left out."""
MOST, HIDDEN = 5000, 700
Titled = tuple[str, str]
"""Title and document."""


def descriptions(translations: Path, packages: Path) -> Iterator[tuple[str, Titled]]:
    """Yield the section, title and text of each description, those with the same start once."""
    listed = packages.read_text(encoding="utf-8")
    sections = dict(re.findall(r"^Package: (\S+)$.*?^Section: (?:\S+/)?(\S+)$", listed, re.MULTILINE | re.DOTALL))
    starts = set()
    with lzma.open(translations, "rt", encoding="utf-8") as file:
        for part in file.read().split("\n\n"):
            name, title = re.search(r"^Package: (.*)$", part, re.M), re.search(r"^Description-en: (.*)$", part, re.M)
            if name is None or title is None or name[1] not in sections:
                continue
            text = " ".join(re.sub(r"^ \.$", "", part[title.end() :], flags=re.MULTILINE).split())
            if 40 <= len(text.split()) <= 220 and text[:80] not in starts:
                starts.add(text[:80])
                yield sections[name[1]], (title[1], text)


def docstrings() -> Iterator[Titled]:
    """Yield first line and text of the docstrings of the installed packages, those with the same start once."""
    starts = set()
    for folder in (Path(spec.origin).parent for name in PACKAGES if (spec := find_spec(name)) and spec.origin):
        for file in sorted(path for path in folder.rglob("*.py") if "test" not in str(path.relative_to(folder))):
            for node in ast.walk(ast.parse(file.read_bytes())):
                if not isinstance(node, ast.FunctionDef | ast.ClassDef):
                    continue
                title, _, rest = (ast.get_docstring(node) or "").partition("\n\n")
                body = re.split(r"\n\s*(?:Parameters|Args:|Returns|Examples?|See Also|References|Notes)\b", rest)[0]
                text = " ".join(body.split())
                if 4 <= len(title.split()) <= 20 and 30 <= len(text.split()) <= 220 and text[:60] not in starts:
                    starts.add(text[:60])
                    yield " ".join(title.split()), text


def write(folder: Path, name: str, found: Sequence[Titled]) -> None:
    """Write the documents of a corpus, and the titles of others: 700, or a quarter if there are fewer."""
    kept = random.Random(7).sample(found, min(len(found), MOST + HIDDEN))
    hidden = min(HIDDEN, len(kept) // 4)
    (folder / f"{name}.txt").write_text("".join(f"{text}\n" for _, text in kept[hidden:]), encoding="utf-8")
    with (folder / f"{name}.titles.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("query", "document"), *kept[:hidden]])
    sys.stdout.write(f"{name}: {len(kept) - hidden} documents, {hidden} hidden titles\n")


def run(folder: Path, name: str, model: str, minutes: float, pooling: Sequence[str]) -> None:
    """Run `cse adapt`, and print a row with its verdict and the scores of all candidates on the hidden titles."""
    out, titles = folder / f"{name}-{Path(model).name}", folder / f"{name}.titles.csv"
    command = [sys.executable, "-m", "cse_cli", "adapt", str(folder / f"{name}.txt"), "--model", model, *pooling]
    command += ["--minutes", f"{minutes:g}", "--out", str(out), "--judge", str(titles), "--json", "--quiet"]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    evaluator = RetrievalAtK(file=str(titles), positive_column="document")
    plan, scores = plan_study(str(out / RACE), RunRequest()), dict[str, float]()
    results = plan.results()
    for cell in plan.cells:
        encode = load_model(str(results[cell.hash][0].run_id)).encode
        scores[cell.row] = evaluator(lambda texts, _side=None, encode=encode: torch.tensor(encode(list(texts))))["mrr"]
    best, hidden = max(scores, key=lambda row: scores[row]), found["differences"].get("judge")
    gain = "" if hidden is None else "{value:+.1f} ({low:+.1f} to {high:+.1f})".format(**hidden)
    shown = found["differences"].get("queries")
    purpose = "" if shown is None else "{value:+.1f} ({low:+.1f} to {high:+.1f})".format(**shown)
    titled = [f"{scores[UNCHANGED]:.1f}", f"{scores[found['chosen']]:.1f}", f"{scores[best]:.1f} ({best})"]
    cells = (name, found["verdict"], found["chosen"], purpose, gain, *titled, f"{found['seconds'] / 60:.1f}")
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


def main() -> None:
    """Make the corpora, or run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--descriptions", type=Path)
    parser.add_argument("--packages", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--pooling")
    parser.add_argument("--minutes", type=float, default=7)
    parser.add_argument("--only", nargs="*")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.what == "make":
        every = list(descriptions(given.descriptions, given.packages))
        write(given.folder, "debian", [titled for _, titled in every])
        for name, sections in DEBIAN.items():
            write(given.folder, name, [titled for section, titled in every if section in sections])
        write(given.folder, "docstrings", list(docstrings()))
        return
    heading = ("corpus", "verdict", "chosen", "queries", "hidden titles, 3 seeds", "titles: unchanged", "chosen",
               "best in hindsight", "minutes")  # fmt: skip
    sys.stdout.write(f"| {' | '.join(heading)} |\n| --- | --- | --- | {' | '.join(['---:'] * 6)} |\n")
    pooling = [] if given.pooling is None else ["--pooling", given.pooling]
    for name in given.only or ["debian", *DEBIAN, "docstrings"]:
        run(given.folder, name, given.model, given.minutes, pooling)


if __name__ == "__main__":
    main()
