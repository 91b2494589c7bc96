"""What was run, and how to run it again."""

from __future__ import annotations

from shlex import quote

from cse_cli.compare.recipes import Change
from cse_cli.recipe.toml import to_toml
from cse_cli.report.again import Again, without_folders
from cse_cli.report.parts import Code, Facts, Part, Section, Words, plain_table
from cse_cli.report.subject import Subject
from cse_cli.report.surroundings import places, settings
from cse_cli.report.words import seed_list, setting


def about(subject: Subject, how: Again) -> Section:
    """Return the recipe: what it is, what was changed, and all of it."""
    result, resolved = subject.result, subject.resolved or {}
    chosen = f"step {result.selected_step} of {result.steps}, by {result.select}" if result.selected_step else ""
    paper = result.paper
    pairs = {
        "recipe": result.recipe,
        "description": str(resolved.get("description", "")),
        "answers": f"{paper.row} of {paper.key}, table {paper.table}" if paper else "",
        "recipe's hash": result.recipe_hash,
        "model": result.model,
        "language": result.language,
        "seed": str(result.seed),
        "seeds of the same recipe": seed_list(list(subject.sisters)) if len(subject.sisters) > 1 else "",
        "steps": f"{result.steps:,}",
        "state kept": chosen,
        "run": result.run_id or "",
    }
    parts: list[Part] = [Facts(tuple((name, value) for name, value in pairs.items() if value)), *_changes(how)]
    if resolved:
        text = to_toml(without_folders(resolved))
        parts.append(Code(text, "toml", "The recipe as it ran, every default written in"))
    else:
        parts.append(Words("The recipe as it ran was not recorded, or cannot be read."))
    return Section("What was run", tuple(parts))


def _changes(how: Again) -> tuple[Part, ...]:
    if how.differs is None:
        return ()
    if not how.differs:
        return (Words("This is the recipe as its file stands today."),)
    words = Words("What ran is not the recipe as its file stands today: it changed since, or the run had --set.")
    return words, changed(how.differs, ("the file today", "this run"))


def changed(differs: tuple[Change, ...], headings: tuple[str, ...]) -> Part:
    """Return the settings that are not the same, a line each."""
    rows = [(change.key, *(setting(without_folders(value)) for value in change.values)) for change in differs]
    return plain_table("Settings that differ", headings, rows)


def again(subject: Subject, one: Again, every: Again) -> Section:
    """Return the commands.

    Args:
        subject: The run.
        one: It alone.
        every: All its seeds.
    """
    result, lines = subject.result, []
    prefix = "".join(f"{name}={quote(value)} " for name, value in settings(subject.environment).items())
    if commit := (result.versions.git or "").removesuffix("+"):
        lines.append(f"git checkout {commit}")
    lines.append(f"{prefix}{one.command}")
    if len(subject.sisters) > 1:
        lines.append(f"{prefix}{every.command}")
    parts: list[Part] = [Code("\n".join(lines), "console")]
    parts += [Words(f"{one.told[0].upper()}{one.told[1:]}.")] if one.told else []
    if named := places(subject.environment):
        parts.append(Words(f"{' and '.join(named)} named the folders of data sets and models."))
    if (result.versions.git or "").endswith("+"):
        parts.append(
            Words("Something in the repository was not committed when it ran: the commit alone may not be it.")
        )
    return Section("Run it again", tuple(parts))
