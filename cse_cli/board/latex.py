"""The leaderboard as LaTeX tables: needs the package booktabs, compiles with pdflatex, xelatex and lualatex."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cse_cli.board import wording
from cse_cli.board.grid import Grid, Text, grid
from cse_cli.board.shape import Block

_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "−": "$-$", "±": r"$\pm$", "×": r"$\times$", "·": r"$\cdot$", "→": r"$\to$", "≈": r"$\approx$", "≤": r"$\leq$",
    "≥": r"$\geq$", "√": r"$\surd$", "∞": r"$\infty$", "–": "--", "—": "---", "…": r"\dots{}", "’": "'", "‘": "`",
    "“": "``", "”": "''", "§": r"\S{}", "¹": "$^1$", "†": r"$^\dagger$", "‡": r"$^\ddagger$",
    "▲": r"$^\uparrow$", "▼": r"$^\downarrow$",
    "α": r"$\alpha$", "β": r"$\beta$", "γ": r"$\gamma$", "δ": r"$\delta$", "ε": r"$\varepsilon$", "η": r"$\eta$",
    "θ": r"$\theta$", "λ": r"$\lambda$", "μ": r"$\mu$", "ρ": r"$\rho$", "σ": r"$\sigma$", "τ": r"$\tau$",
    "φ": r"$\varphi$", "ω": r"$\omega$", "♦": r"$\diamond$", "♢": r"$\diamond$", "•": r"$\bullet$",
}  # fmt: skip


def as_latex(blocks: Sequence[Block]) -> str:
    """Return one `table` environment a table."""
    legend = [escape(line) for line in wording.legend(blocks, "bold")]
    return "\n".join(["% \\usepackage{booktabs}", *(_environment(block, legend) for block in blocks)]) + "\n"


def escape(text: str) -> str:
    """Return text that LaTeX prints as it is; letters that its plain fonts lack are named by their code."""
    found = "".join(_SPECIAL.get(letter, letter) for letter in text)
    return re.sub(r"[^\x00-\x7f\u00c0-\u00ff]", lambda match: rf"\texttt{{U+{ord(match.group()):04X}}}", found)


def _environment(block: Block, legend: Sequence[str]) -> str:
    shown = grid(block)
    told = [f"[{number}] {note}" for number, note in enumerate(shown.notes, 1)] + wording.remarks(block)
    below = [rf"\par {line}" for line in [*map(escape, told), *legend]]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering\small",
            rf"\caption{{{escape(block.heading)}}}",
            rf"\begin{{tabular}}{{l{'r' * len(shown.headings)}}}",
            r"\toprule",
            _row([Text(), *map(Text, shown.headings)]),
            r"\midrule",
            *_lines(shown),
            r"\bottomrule",
            r"\end{tabular}",
            r"\par\medskip\footnotesize\raggedright",
            *below,
            r"\end{table}",
        ]
    )


def _lines(shown: Grid) -> list[str]:
    return [(r"\quad" if line.below else "") + _row([Text(line.label), *line.cells]) for line in shown.lines]


def _row(cells: Sequence[Text]) -> str:
    # An opening bracket after the end of a line would be its optional argument.
    texts = [rf"\textbf{{{escape(cell.text)}}}" if cell.strong else escape(cell.text) for cell in cells]
    return f"{{}}{' & '.join(texts)} \\\\"
