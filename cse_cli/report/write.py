"""A report as files: nothing that is there is overwritten unasked, and nothing is left half-written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cse_cli.report.html import html
from cse_cli.report.markdown import markdown
from cse_cli.report.parts import Page
from registry.errors import CseError

HTML, MARKDOWN = (".html", ".htm"), (".md", ".markdown")


@dataclass(frozen=True)
class Target:
    """Where a report goes.

    Args:
        path: The page.
        force: Take the place of what is there.
    """

    path: Path
    force: bool = False

    @property
    def figures(self) -> Path:
        """Folder of a Markdown page's figures."""
        return self.path.with_name(f"{self.path.stem}_figures")

    @property
    def is_markdown(self) -> bool:
        """Whether figures lie beside the page."""
        return self.path.suffix.lower() in MARKDOWN

    def check(self) -> None:
        """Refuse what cannot be written, before any work.

        Raises:
            CseError: Another format, a folder that is not there, or files that are there already.
        """
        if self.path.suffix.lower() not in (*HTML, *MARKDOWN):
            raise CseError(f"--output: '{self.path}' is neither HTML nor Markdown", "let it end in .html or .md")
        if not self.path.parent.is_dir():
            raise CseError(f"--output: there is no folder '{self.path.parent}'", "make it, or name another one")
        if self.path.is_dir():
            raise CseError(f"--output: '{self.path}' is a folder", "name a file in it")
        for there in (self.path, *((self.figures,) if self.is_markdown else ())):
            if there.exists() and not self.force:
                raise CseError(f"'{there}' is there already", "--force overwrites it; --output names another file")

    def write(self, page: Page) -> None:
        """Write the page and, beside Markdown, its figures.

        Raises:
            CseError: They cannot be written.
        """
        try:
            if self.is_markdown:
                self._write_markdown(page)
            else:
                _replace(self.path, html(page).encode())
        except OSError as error:
            raise CseError(
                f"--output: '{error.filename or self.path}' cannot be written: {error.strerror}",
                "name a file in a folder that can be written",
            ) from error

    def _write_markdown(self, page: Page) -> None:
        if page.pictures:
            self.figures.mkdir(exist_ok=True)
        for picture in page.pictures:
            _replace(self.figures / f"{picture.name}.svg", picture.svg)
        _replace(self.path, markdown(page, self.figures.name).encode())


def _replace(path: Path, content: bytes) -> None:
    """Put a file in its place when it is whole."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
