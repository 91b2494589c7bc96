"""Blocks between two comments: the checks of each method on its page, and of all methods on `fidelity.md`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from markdown_table import cell, table

from registry.papers.audits import Audit, Checkpoint, Code, Trajectory, audits, power

PAGES = Path(__file__).parent
FIRST = "<!-- Written by docs/generate.py from registry/papers/audits/: do not edit up to the next comment. -->"
LAST = "<!-- End of the written lines. -->"
_BLOCK = re.compile(rf"{re.escape(FIRST)}\n.*?{re.escape(LAST)}\n\n?", re.DOTALL)


def checked_pages() -> dict[str, str]:
    """Return file name → Markdown of the pages of methods and of `fidelity.md`, with their blocks."""
    made = {"fidelity.md": _replaced(_text("fidelity.md"), all_methods(), all_trajectories())}
    for page in method_pages():
        name = f"methods/{page}.md"
        audit = audits().get(page)
        made[name] = _under_the_title(_text(name), None if audit is None else one_method(audit))
    return made


def method_pages() -> list[str]:
    """Return the stems of the pages of methods, sorted."""
    return sorted(page.stem for page in (PAGES / "methods").glob("*.md") if page.stem != "index")


def _text(name: str) -> str:
    return (PAGES / name).read_text(encoding="utf-8")


def _block(content: str) -> str:
    return f"{FIRST}\n\n{content}\n\n{LAST}\n"


def _replaced(text: str, *contents: str) -> str:
    """Return a page with the contents of its blocks replaced.

    Raises:
        ValueError: If the page does not have one block for each content.
    """
    found, left = len(_BLOCK.findall(text)), iter(contents)
    if found != len(contents):
        raise ValueError(f"the page has {found} blocks of written lines, not {len(contents)}")
    return _BLOCK.sub(lambda _: f"{_block(next(left))}\n", text).rstrip() + "\n"


def _under_the_title(text: str, content: str | None) -> str:
    """Return a page with its block below the title, or without a block."""
    title, _, rest = _BLOCK.sub("", text).partition("\n")
    return f"{title}\n{rest}" if content is None else f"{title}\n\n{_block(content)}\n{rest.lstrip()}"


def one_method(audit: Audit) -> str:
    """Return the checks of one method."""
    tests = f"{_counted(len(audit.equations), 'test')} with the formula written out" if audit.equations else "no test"
    lines = [
        f"- [Checked](../fidelity.md) recipes: {', '.join(f'`{name}`' for name in audit.recipes)}",
        f"- Equations: {tests}",
        *(f"- Code: {_comparison(code)}" for code in audit.code or (None,)),
        *(f"- {_trained(one)}" for one in audit.trajectory),
        *(f"- {_scored(one)}" for one in audit.checkpoint),
    ]
    return "\n\n".join(["\n".join(lines), *(_points(code, audit.page) for code in audit.code)])


def _comparison(code: Code | None) -> str:
    if code is None:
        return "not compared"
    whose = "by the authors" if code.authors else "not by the authors"
    only = f", for {', '.join(f'`{name}`' for name in code.recipes)}" if code.recipes else ""
    return (
        f"[{code.repository}]({code.url}) at `{code.commit[:7]}`, {whose}{only}: "
        f"{code.agree} of {_counted(code.compared, 'point')} agree (read on {code.read} by {code.by})"
    )


def _trained(one: Trajectory) -> str:
    return (
        f"[Trajectory](../fidelity.md#the-authors-programs): in {one.steps} steps of `{one.recipe}` and of the "
        f"authors' program at `{one.commit[:7]}`, the losses differ by at most {power(one.fp32.loss)} of their value"
    )


def _scored(one: Checkpoint) -> str:
    scores = ", ".join(f"{name} {score:.2f}" for name, score in one.scores.items())
    return f"Authors' checkpoint `{one.model}` (`{one.recipe}`): {scores} (`{one.command}`, {one.date}, {one.machine})"


def _points(code: Code, page: str) -> str:
    """Return a folded note with the differences and the agreeing points of one comparison."""
    rows = [
        [cell(one.point), f"`{cell(one.code)}`", cell(one.here), _point(one.page, page), _code(one.switch)]
        for one in code.differences
    ]
    lines = table(["point", "code", "here", "doubtful point", "switch"], rows).split("\n") if rows else []
    lines += ["", f"Agreement in: {', '.join(code.points)}."]
    if code.without:
        lines += ["", f"Not in this code or method: {', '.join(code.without)}."]
    title = f"{_counted(len(rows), 'difference')} from {code.repository}" if rows else f"Points of {code.repository}"
    return "\n".join([f'??? note "{title}"', "", *(f"    {line}".rstrip() for line in lines)])


def _point(point: str, page: str) -> str:
    """Return a link to a doubtful point, which can be on the page of another method."""
    where = _pages_of_points().get(point.lower(), page)
    return f"[{point}]({'' if where == page else f'{where}.md'}#{point.lower()})" if point else ""


@cache
def _pages_of_points() -> dict[str, str]:
    """Return the anchor of each doubtful point → the page with its row."""
    pages = {page: re.findall(r'\| <a id="(\w+)"></a>', _text(f"methods/{page}.md")) for page in method_pages()}
    return {point: page for page, points in pages.items() for point in points}


def _code(text: str) -> str:
    return f"`{cell(text)}`" if text else "none"


def all_methods() -> str:
    """Return the table of all methods, the totals, and the pages without comparisons."""
    header = ["method", "recipes", "tests", "code", "compared", "agree", "differences", "of these explained"]
    rows = [row for audit in audits().values() for row in _rows(audit)]
    codes = [code for audit in audits().values() for code in audit.code]
    compared, agree = sum(code.compared for code in codes), sum(code.agree for code in codes)
    known = sum(bool(one.page) for code in codes for one in code.differences)
    totals = (
        f"{len(audits())} methods, {sum(bool(audit.code) for audit in audits().values())} of them compared with code. "
        f"Of {compared:,} compared points, {agree:,} agree. {known:,} of the {compared - agree:,} differences are "
        "doubtful points on the pages of the methods."
    )
    others = [page for page in method_pages() if page not in audits()]
    without = [f"Pages without comparisons: {', '.join(f'[{page}](methods/{page}.md)' for page in others)}."]
    return "\n\n".join([totals, table(header, rows), *(without if others else ())])


def all_trajectories() -> str:
    """Return the tables of the authors' programs: differences, then what was set and changed."""
    found = [one for audit in audits().values() for one in audit.trajectory]
    changed = []
    for one in found:
        lists = [f"`{cell(setting)}`" for setting in one.settings], one.both, one.repaired
        changed.append([f"`{one.recipe}`", *("; ".join(texts) for texts in lists)])
    header = ["recipe", "program", "steps", "precision", "loss", "norm", "rate", "weights", "scores", "date"]
    rows = [row for one in found for row in _differences(one)]
    settings = table(["recipe", "settings of `cse run`", "on both sides", "in the program"], changed)
    return f"{table(header, rows)}\n\n{settings}"


def _differences(one: Trajectory) -> Iterator[list[str]]:
    program = f"[{one.repository}](https://github.com/{one.repository}/tree/{one.commit}) @ `{one.commit[:7]}`"
    first = [f"`{one.recipe}`", program, str(one.steps)]
    last = ["" if one.scores is None else f"{one.scores:.2f}", str(one.date)]
    for precision, apart in (("fp32", one.fp32), ("fp64", one.fp64)):
        if apart is not None:
            numbers = (power(number) for number in (apart.loss, apart.norm, apart.rate, apart.weights))
            yield [*first, precision, *numbers, *last]
            first, last = ["", "", ""], ["", ""]


def _rows(audit: Audit) -> Iterator[list[str]]:
    first = [f"[{cell(audit.method)}](methods/{audit.page}.md)", str(len(audit.recipes)), str(len(audit.equations))]
    if not audit.code:
        yield [*first, "not compared", "", "", "", ""]
    for code in audit.code:
        written = sum(bool(one.page) for one in code.differences)
        counts = [str(number) for number in (code.compared, code.agree, len(code.differences), written)]
        name = f"[{code.repository}]({code.url}) @ `{code.commit[:7]}`"
        yield [*first, name if code.authors else f"{name}, not by the authors", *counts]
        first = ["", "", ""]


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
