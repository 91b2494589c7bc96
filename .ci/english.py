"""Find wording that is hard to read, in docstrings, messages, comments and pages. Patterns: .ci/english.tsv.

    python .ci/english.py                every text of the project; exit code 1 if a pattern is found
    python .ci/english.py cse_cli/runs   only these files or directories
    python .ci/english.py --count        number of matches for each pattern

A comment `lint: allow NAME` on the same line permits a pattern, for a quotation or a term of a paper.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SKIPPED = ("docs/reference/", "docs/results/leaderboard.md", "tests/", "registry/texts/", "registry/lexicons/")
"""Generated pages, tests and data."""
MASKED = re.compile(r"``.+?``|`[^`\n]*`|\]\([^)]*\)|https?://\S+|\{[^{}]*\}", re.DOTALL)


@dataclass(frozen=True)
class Text:
    """A text and its first line.

    Args:
        file: Path below the root of the project.
        line: First line, from 1.
        text: Content.
        docstring: Whether it is a docstring.
    """

    file: str
    line: int
    text: str
    docstring: bool = False


def main() -> int:
    """Print every match and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", help="Files or directories. Default: the whole project.")
    parser.add_argument("--count", action="store_true", help="Print the number of matches for each pattern.")
    options = parser.parse_args()
    patterns = dict(_patterns())
    counts: Counter[str] = Counter()
    for file in _files(options.paths):
        lines = (ROOT / file).read_text(encoding="utf-8").split("\n")
        for text in _texts(file):
            for name, line, found in _matches(text, patterns):
                if f"lint: allow {name}" in lines[line - 1]:
                    continue
                counts[name] += 1
                if not options.count:
                    print(f"{file}:{line}: {name}: {found}")
    if options.count:
        for name in patterns:
            print(f"{counts[name]:6} {name}")
    print(f"{sum(counts.values())} matches", file=sys.stderr)
    return 1 if counts else 0


def _patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    for line in (ROOT / ".ci" / "english.tsv").read_text(encoding="utf-8").splitlines():
        name, pattern = line.split("\t")
        yield name, re.compile(pattern, re.IGNORECASE)


def _files(paths: list[str]) -> list[str]:
    wanted = paths or ["cse_cli", "registry", "recipes", "docs", "benchmarks", ".ci", "*.toml", "mkdocs.yml", "*.md"]
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *wanted]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return [
        name
        for name in sorted(set(listed))
        if name.endswith((".py", ".md", ".toml", ".tsv")) and not name.startswith(SKIPPED) and (ROOT / name).is_file()
    ]


def _texts(file: str) -> Iterator[Text]:
    source = (ROOT / file).read_text(encoding="utf-8")
    if file.endswith(".py"):
        yield from _of_python(file, source)
    elif file.endswith(".md"):
        yield from _of_markdown(file, source)
    elif file.endswith(".toml"):
        yield from _of_toml(file, source)
    elif file != ".ci/english.tsv":
        yield from _of_tsv(file, source)


def _of_python(file: str, source: str) -> Iterator[Text]:
    nodes = list(ast.walk(ast.parse(source)))
    docstrings = {docstring for node in nodes if (docstring := _docstring(node)) is not None}
    parts = {part for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        text = _string(node)
        if text is not None and node not in parts and (node in docstrings or len(text.split()) > 1):
            yield Text(file, node.lineno, text, node in docstrings)  # type: ignore[attr-defined]
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Text(file, token.start[0], token.string.lstrip("# "))


def _docstring(node: ast.AST) -> ast.AST | None:
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    first = node.body[0] if node.body else None
    return first.value if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) else None


def _string(node: ast.AST) -> str | None:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "_" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _of_markdown(file: str, source: str) -> Iterator[Text]:
    fenced = False
    for number, line in enumerate(source.split("\n"), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and line.strip():
            yield Text(file, number, line)


def _of_toml(file: str, source: str) -> Iterator[Text]:
    for number, line in enumerate(source.split("\n"), 1):
        if "#" in line:
            yield Text(file, number, line[line.index("#") :].lstrip("# "))
        for value in re.findall(r'"((?:[^"\\]|\\.)* (?:[^"\\]|\\.)* (?:[^"\\]|\\.)*)"', line):
            yield Text(file, number, value)


def _of_tsv(file: str, source: str) -> Iterator[Text]:
    for number, line in enumerate(source.split("\n"), 1):
        for cell in line.split("\t"):
            yield Text(file, number, cell)


def _matches(text: Text, patterns: dict[str, re.Pattern[str]]) -> Iterator[tuple[str, int, str]]:
    masked = MASKED.sub(lambda found: re.sub(r"[^\n]", "_", found[0]), text.text)
    for name, pattern in patterns.items():
        if name.startswith(("doc-", "arg-")) and not text.docstring:
            continue
        for found in pattern.finditer(masked):
            yield name, text.line + masked[: found.start()].count("\n"), found[0].strip()


if __name__ == "__main__":
    sys.exit(main())
