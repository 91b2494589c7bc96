"""Files of a reproduction: a Markdown report and a JSON document."""

from __future__ import annotations

from pathlib import Path

from cse_cli.reproduce.document import Reproduction
from cse_cli.reproduce.report import markdown
from registry.errors import CseError
from registry.paths import write_atomically

NAME = "reproduction"
"""Name of the files in a directory, without suffix."""
_SUFFIXES = (".md", ".json")


def check_output(output: Path | None) -> None:
    """Check before the runs that the files can have these names."""
    if output is None or output.is_dir() or (output.suffix in _SUFFIXES and output.parent.is_dir()):
        return
    if output.suffix in _SUFFIXES:
        raise CseError(
            f"--output: directory '{output.parent}' does not exist", f"mkdir {output.parent}", code="reproduce.output"
        )
    raise CseError(
        f"--output: '{output}' is neither .md, .json nor an existing directory",
        "use report.md, result.json or a directory",
        code="reproduce.output",
    )


def write_output(document: Reproduction, output: Path | None) -> list[Path]:
    """Write the files that `--output` names, and return their paths. Existing files are replaced."""
    if output is None:
        return []
    files = [output / f"{NAME}{suffix}" for suffix in _SUFFIXES] if output.is_dir() else [output]
    for file in files:
        try:
            write_atomically(file, markdown(document) if file.suffix == ".md" else f"{document.to_json()}\n")
        except OSError as error:
            raise CseError(
                f"--output: cannot write '{file}': {error.strerror}",
                "choose a file in a writable directory",
                code="reproduce.output",
            ) from error
    return files
