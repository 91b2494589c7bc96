"""Output of `cse data inspect`: one screen of 80 columns, and a JSON document."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.text import Text

from cse_cli.core.console import Console, stdout_console
from cse_cli.core.formatting import counted
from cse_cli.core.tables import as_rich, plain_table
from cse_cli.inspection.facts import LEVELS, Inspection
from cse_cli.inspection.leakage import Leak
from cse_cli.inspection.negatives import Negatives

WIDTH = 80
"""Maximum width of a line."""

QUOTED = 60
"""Maximum number of characters of a quoted sentence."""

_QUANTILES = {0.0: "shortest", 0.5: "median", 1.0: "longest"}


def as_document(inspection: Inspection, alarms: Sequence[str]) -> dict[str, Any]:
    """Return the facts, the alarming ones and the levels of the quantiles as JSON values."""
    leaks = [{**asdict(leak), "share": leak.share} for leak in inspection.leaks]
    return {**asdict(inspection), "leaks": leaks, "quantiles": LEVELS, "alarms": list(alarms)}


def print_inspection(inspection: Inspection, alarms: Sequence[str]) -> None:
    """Print the facts of a text, and then the alarming ones."""
    with stdout_console() as out:
        blank = f", {counted(inspection.blank, 'blank row')} skipped" if inspection.blank else ""
        out.print(Text.assemble((inspection.name, "bold"), f" · {counted(inspection.rows, 'row')}{blank}"))
        longest = inspection.lengths[inspection.anchor].max_length
        settings = f"batches of {inspection.batch_size}, at most {longest} tokens of {inspection.tokenizer}"
        _line(out, f"settings of {inspection.settings}: {settings}")
        _lengths(out, inspection)
        _section(out, "duplicates", _duplicates(inspection))
        _section(out, "language", [_languages(inspection.languages)])
        _leaks(out, inspection)
        if inspection.negatives is not None:
            _section(out, "hard negatives", _negatives(inspection.negatives))
        if alarms:
            _section(out, "alarms", [f"! {alarm}" for alarm in alarms], "yellow")
        else:
            _section(out, "alarms", ["none"])


def _lengths(out: Console, inspection: Inspection) -> None:
    first = inspection.lengths[inspection.anchor]
    sample = "" if first.rows == inspection.rows else f", {first.rows:,} rows evenly spread over the text"
    _heading(out, f"lengths{sample}")
    lines = [("  characters", first.characters, ""), ("  words", first.words, "")]
    for column, one in inspection.lengths.items():
        name = "  tokens" if one is first else f"  tokens of {column}"
        lines.append((name, one.tokens, _share(one.cut, one.rows)))
    headings = ("", *(_QUANTILES.get(level, f"{level:.0%}") for level in LEVELS), "cut")
    rows = [(name, *(f"{value:,}" for value in values), cut) for name, values, cut in lines]
    out.print(as_rich(plain_table(headings, rows, align="l" + "r" * len(headings[1:]))))


def _duplicates(inspection: Inspection) -> Iterator[str]:
    duplicates, near = inspection.duplicates, inspection.near
    yield f"{_share(duplicates.repeats, duplicates.rows)} of the rows are equal to an earlier row"
    yield from (f"  {count:,} × {_quoted(sentence)}" for sentence, count in inspection.frequent)
    batches, rows = _percent(inspection.batches_with_duplicates), _percent(inspection.anchors_with_copy)
    yield f"{batches} of batches of {inspection.batch_size} contain a sentence twice ({rows} of their rows)"
    some = f"{near.sentences:,} distinct sentences"
    some += "" if near.sentences == duplicates.distinct else ", evenly spread,"
    yield f"{near.near:,} of {some} have a near-duplicate"
    for one, other in near.examples[:1]:
        yield f"  {_quoted(one)}"
        yield f"  {_quoted(other)}"


def _languages(languages: Mapping[str, float]) -> str:
    shown = [f"{name} {_percent(share)}" for name, share in list(languages.items())[:4]]
    return f"{', '.join(shown)} (a guess from frequent words)"


def _leaks(out: Console, inspection: Inspection) -> None:
    _heading(out, "sentences of evaluation sets in the text")
    if inspection.leaks:
        headings = ("", "sentences", "equal", "same words", "share", "rows of the text")
        rows = [_leak(one) for one in inspection.leaks]
        out.print(as_rich(plain_table(headings, rows, align="lrrrrr")))
        _line(out, f"for example {_quoted(_worst(inspection.leaks).examples[0])}")
    clean = len(inspection.searched) - len(inspection.leaks)
    _line(out, f"none of {counted(clean, 'other set' if inspection.leaks else 'set')}")


def _leak(one: Leak) -> tuple[str, ...]:
    counts = one.sentences, one.exact, one.same_words
    return (f"  {one.name}", *(f"{count:,}" for count in counts), _percent(one.share), f"{one.rows:,}")


def _worst(leaks: Sequence[Leak]) -> Leak:
    return max(leaks, key=lambda leak: leak.share)


def _negatives(one: Negatives) -> Iterator[str]:
    yield f"word overlap with the anchor: positive {one.positive:.2f}, negative {one.negative:.2f}"
    yield f"{_share(one.harder, one.rows)} of the negatives overlap at least as much as the positive"
    yield (
        f"{_share(one.equal_to_positive, one.rows)} equal to the positive, "
        f"{_share(one.equal_to_anchor, one.rows)} equal to the anchor"
    )


def _share(count: int, rows: int) -> str:
    return f"{count:,} ({_percent(count / rows)})"


def _percent(share: float) -> str:
    """Return a share with at least two digits, so that a small one is not 0 %."""
    if 0 < share < 0.0001:
        return "<0.01 %"
    return f"{100 * share:.2f} %" if share < 0.1 else f"{100 * share:.1f} %"


def _quoted(sentence: str) -> str:
    return f'"{textwrap.shorten(sentence, QUOTED, placeholder=" …")}"'


def _heading(out: Console, text: str) -> None:
    out.print(Text(f"\n{text}", "bold"))


def _section(out: Console, heading: str, lines: Iterator[str] | Sequence[str], style: str = "") -> None:
    _heading(out, heading)
    for line in lines:
        _line(out, line, style)


def _line(out: Console, text: str, style: str = "") -> None:
    indent = "  " + " " * (len(text) - len(text.lstrip()))
    for part in textwrap.wrap(text.strip(), WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  "):
        out.print(Text(part, style), soft_wrap=True)
