"""Page of the papers' tables, the recipes that reproduce each cell, and reproductions by others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from markdown_table import cell
from markdown_table import table as markdown

from registry import papers


def paper_tables() -> str:
    """Return the page of the papers' tables and of reproductions by others."""
    held = [papers.load(key) for key in papers.names()]
    out = [
        "# Papers' tables",
        "The papers' tables, unchanged. A flag is a doubt. `cse leaderboard` shows your runs with these rows. "
        "[Papers' numbers](../papers.md) describes the files.",
        *_paper_counts(held),
    ]
    for paper in held:
        out += [f"## {paper.short}", f"{paper.citation} <{paper.url}>"]
        for identifier, table in paper.tables.items():
            out += _paper_table(identifier, table)
        if paper.figures:
            out += ["Experiments that are only in figures:", _paper_figures(paper)]
    return "\n\n".join([*out, *_reproductions(), *_field(), *_other_lists()])


def _paper_counts(held: list[papers.PaperTables]) -> Iterator[str]:
    header = ["", "tables", "cells", "a recipe", "a study", "a data set", "a reason", "figures", "drawn", "in part"]
    rows = []
    for name, some in [*((paper.short, [paper]) for paper in held), ("all", held)]:
        tables = [table for paper in some for table in paper.tables.values()]
        answers = [table.answer(row, column.name) for table in tables for row, column in table.printed()]
        kinds = Counter(answer.kind for answer in answers)
        reasons = Counter(answer.text for answer in answers if answer.kind == "reason")
        figures = [figure for paper in some for figure in paper.figures.values()]
        drawn = sum(figure.not_reproduced_because is None and figure.lacks is None for figure in figures)
        partly = sum(figure.lacks is not None for figure in figures)
        by_kind = (kinds[kind] for kind in ("recipe", "study", "data", "reason"))
        rows.append([name, *map(str, (len(tables), len(answers), *by_kind, len(figures), drawn, partly))])
    yield (
        "Number of cells that a recipe or a study of this project can compute (`cse leaderboard --table` shows the "
        "finished runs), that are in a data set of the catalog, or that only have a reason. Then the number of "
        "figures, and those that this project draws in full and in part:"
    )
    yield markdown(header, rows)
    yield "Reasons:"
    yield markdown(["reason", "cells"], [[cell(reason), str(n)] for reason, n in reasons.most_common()])


def _paper_table(identifier: str, table: papers.Table) -> Iterator[str]:
    yield f"### {table.title}: `{identifier}`"
    whole = f" Computed by `{table.study}`." if table.study else ""
    yield f"{table.caption} ({table.metric}).{whole}"
    rows = []
    for name, row in table.rows.items():
        headings = [column.name for column in table.columns]
        cells = [f"**{c}**" if h in row.bold else c for h, c in zip(headings, row.cells, strict=True)]
        if row.std:
            cells = [f"{number} ± {std}" for number, std in zip(cells, row.std, strict=True)]
        rows.append([cell(name), *cells, _answers(table, name)])
    yield markdown(["", *(column.name for column in table.columns), "recipe"], rows)
    if table.flags:
        yield "\n".join(f"- {_where(flag)}{flag.note}" for flag in table.flags)


def _answers(table: papers.Table, row: str) -> str:
    """Return the recipes or reasons of a row's cells, each once."""
    found = [table.answer(name, column.name) for name, column in table.printed() if name == row]
    return "; ".join(dict.fromkeys(cell(a.text) if a.kind == "reason" else f"`{a.text}`" for a in found))


def _paper_figures(paper: papers.PaperTables) -> str:
    rows = []
    for identifier, figure in paper.figures.items():
        quoted = [f"{q.what} {q.value:g}" + (f" … {q.high:g}" if q.high else "") for q in figure.quoted]
        found = ", ".join(f"`{a.text}`" if a.kind != "reason" else a.text for a in figure.answers)
        found += f"; missing: {figure.lacks}" if figure.lacks else ""
        rows.append(
            [figure.number, f"`{identifier}`", *map(cell, (figure.caption, "; ".join(quoted), found, figure.note))]
        )
    return markdown(["", "", "content", "numbers in the text", "recipe", "note"], rows)


def _reproductions() -> Iterator[str]:
    yield "## Reproductions by others"
    yield "Averages over the seven English STS sets. `registry/papers/reproductions.toml` also has single sets."
    rows = [
        [f"`{r.recipe}`", str(r.n), f"{r.mean:.2f}", f"{r.std:.2f}" if r.std else "", f"{r.low:.2f} … {r.high:.2f}",
         f"<{r.source}>", cell(r.note)]
        for r in papers.reproductions()
        if r.score == papers.AVERAGE
    ]  # fmt: skip
    yield markdown(["recipe", "runs", "mean", "std", "range", "source", "note"], rows)


def _field() -> Iterator[str]:
    yield "## Community leaderboard"
    listed = papers.field_rows()
    yield (
        f"{len(listed)} rows, in `registry/papers/field_leaderboard.tsv`, from "
        "<https://github.com/Doragd/Awesome-Sentence-Embedding>. Each has a recipe of this project that computes it "
        "(`cse leaderboard --community` shows the finished runs), or a reason why there is no recipe:"
    )
    names = dict.fromkeys(row.encoder for row in listed)
    groups = {name: [row for row in listed if row.encoder == name] for name in names}
    yield markdown(
        ["encoder", "rows", "a recipe", "a reason", "no recipe yet"],
        [_field_counts(name, rows) for name, rows in [*groups.items(), ("all", list(listed))]],
    )
    yield "Each row:"
    yield markdown(
        ["encoder", "method", "listed", "recipe"],
        [[row.encoder, cell(row.method), f"{row.avg:.2f}", cell(_field_answer(row))] for row in listed],
    )
    yield "Doubtful ones:"
    rows = [[r.encoder, r.method, f"{r.avg:.2f}", f"{r.avg_recomputed:.2f}", cell(r.note)] for r in listed if r.note]
    yield markdown(["encoder", "method", "listed", "recomputed", "note"], rows)


def _other_lists() -> Iterator[str]:
    yield "## Other lists"
    yield (
        "Results in `registry/papers/other_lists.tsv`, which the community leaderboard does not list. Methods with "
        "labels, or with sentences of a language model, have other data than the others, so their lists are separate."
    )
    rows = [
        [papers.LISTS[r.list], r.encoder, cell(r.method), f"{r.avg:.2f}", cell(_field_answer(r)), cell(r.note),
         cell(r.source)]
        for r in papers.listed_rows()
        if r.list != papers.COMMUNITY
    ]  # fmt: skip
    yield markdown(["list", "encoder", "method", "reported", "recipe", "note", "source"], rows)


def _field_counts(name: str, rows: list[papers.FieldRow]) -> list[str]:
    kinds = Counter(row.answer.kind if row.answer else "open" for row in rows)
    return [name, *map(str, (len(rows), kinds["recipe"], kinds["reason"], kinds["open"]))]


def _field_answer(row: papers.FieldRow) -> str:
    if row.answer is None:
        return "no recipe yet"
    return f"`{row.recipe}`" if row.recipe else row.not_reproduced_because


def _where(flag: papers.Flag) -> str:
    place = ", ".join(filter(None, (flag.row, flag.column))) or "whole table"
    return f"**{flag.kind.replace('_', ' ')}** ({place}): "
