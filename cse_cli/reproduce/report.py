"""A reproduction in words, and the files of it: a Markdown report for an issue and a JSON document."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, stdev

from cse_cli.core.formatting import counted, seed_list, signed
from cse_cli.core.stats import MOST_SEEDS
from cse_cli.core.tables import Cell, Row, Table, as_markdown, escape_markdown, plain_table
from cse_cli.reproduce.document import Reproduction
from cse_cli.reproduce.verdict import FEWEST_FREEDOM, Claim, Outcome
from registry.errors import CseError
from registry.paths import write_atomically

NAME = "reproduction"
"""Name of the files in a directory, without suffix."""
_SUFFIXES = (".md", ".json")

HEADLINES: dict[Outcome, str] = {
    "reproduced": "reproduced",
    "lower": "lower",
    "higher": "higher",
    "undecided": "not decided yet",
}
_MEANINGS: dict[Outcome, str] = {
    "reproduced": "The reported number is inside this interval.",
    "lower": "Your scores are lower: the reported number is above this interval.",
    "higher": "Your scores are higher: the reported number is below this interval.",
    "undecided": "The reported number is inside this interval, but there are too few seeds for a verdict.",
}


def headline(document: Reproduction) -> str:
    """Return the verdict with your score and the reported one."""
    verdict, claim = document.verdict, document.reference.claim
    std = "" if verdict.std is None else f" ± {verdict.std:.2f}"
    more = ""
    if verdict.outcome == "undecided":
        more = f" ({_more(verdict.more_seeds)})"
    return (
        f"{HEADLINES[verdict.outcome]}{more}: {document.reference.judged} {verdict.mean:.2f}{std} over "
        f"{counted(verdict.n, 'seed')}, reported {claim.value:.{claim.digits}f}"
    )


def _more(seeds: int) -> str:
    return f"more than {MOST_SEEDS:,} more seeds" if seeds > MOST_SEEDS else f"{counted(seeds, 'more seed')}"


def explanation(document: Reproduction) -> Iterator[str]:
    """Yield the sentences that justify the verdict."""
    verdict, reference = document.verdict, document.reference
    if not document.trained:
        yield f"The recipe does not train, so every run should give the reported number ± {reference.claim.unit:g}."
    elif verdict.low is None or verdict.high is None or verdict.sigma is None:
        yield "One seed has no standard deviation, and no runs of others are published."
    else:
        yield (
            f"Expected for {_kind(reference.claim)}: {verdict.low:.2f} to {verdict.high:.2f} "
            f"({100 * (1 - verdict.level):.0f} % prediction interval). {_MEANINGS[verdict.outcome]}"
        )
        yield f"The standard deviation {verdict.sigma:.2f} is from {_basis(document)}."
    if verdict.outcome == "undecided" and verdict.precision is not None:
        if verdict.precision > verdict.tolerance:
            yield (
                f"The mean of your seeds is precise to ± {verdict.precision:.2f} points, and a verdict requires "
                f"± {verdict.tolerance:g}. {_more(verdict.more_seeds).capitalize()} should suffice."
            )
        else:
            yield f"A verdict requires {FEWEST_FREEDOM + 1} seeds if no runs of others are published."
    if document.changes:
        yield f"The recipe was changed: {', '.join(document.changes)}."


def _kind(claim: Claim) -> str:
    if claim.runs == 1:
        return "one more run"
    return f"the {'best' if claim.best else 'mean'} of {claim.runs} runs"


def _basis(document: Reproduction) -> str:
    """Return the runs behind the standard deviation."""
    verdict, others = document.verdict, document.reference.others
    own = f"your {counted(verdict.n, 'seed')}"
    if others is None:
        return own
    theirs = f"{counted(others.n, 'published run')} (± {others.std:.2f}, {others.source})"
    if not verdict.pooled:
        return f"{own}, not from {theirs}, whose variance is different"
    return f"{own} and {theirs}" if verdict.n > 1 else theirs


def scores_table(document: Reproduction) -> Table:
    """Return the reported scores, those of each seed, their mean and the difference."""
    reference, names = document.reference, list(document.reference.scores)
    digits = reference.claim.digits
    means = {name: _mean([seed.scores.get(name) for seed in document.seeds]) for name in names}
    rows = [_row("reported", [f"{value:.{digits}f}" for value in reference.scores.values()])]
    for seed in document.seeds:
        rows.append(_row(f"seed {seed.seed}", [_number(seed.scores.get(name)) for name in names]))
    if len(document.seeds) > 1:
        rows.append(_row("mean", [_number(mean) for mean in means.values()]))
        rows.append(Row("± std", tuple(Cell(_std(document, name)) for name in names), emphasis="spread", below=True))
    differences = [None if mean is None else mean - reference.scores[name] for name, mean in means.items()]
    rows.append(_row("difference", ["" if one is None else signed(one) for one in differences]))
    return Table("", tuple(names), tuple(rows), align="p" + "r" * len(names))


def _std(document: Reproduction, name: str) -> str:
    values = [seed.scores[name] for seed in document.seeds if name in seed.scores]
    return f"{stdev(values):.2f}" if len(values) > 1 else ""


def _row(label: str, cells: list[str]) -> Row:
    return Row(label, tuple(map(Cell, cells)))


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def next_command(document: Reproduction) -> str | None:
    """Return the command that adds the missing seeds, or None if there are enough."""
    missing = document.verdict.more_seeds
    if not 0 < missing <= MOST_SEEDS:
        return None
    seeds = [seed.seed for seed in document.seeds]
    total = len(seeds) + missing
    if seeds == list(range(len(seeds))):
        option = str(total)
    else:
        unused = [seed for seed in range(total + missing) if seed not in seeds]
        option = ",".join(map(str, [*seeds, *unused[:missing]]))
    words = shlex.split(document.command)
    return shlex.join([*words[:-1], option])


def markdown(document: Reproduction) -> str:
    """Return the report, ready to paste into an issue."""
    reference = document.reference
    seeds = seed_list([seed.seed for seed in document.seeds])
    parts = [
        f"# {_text(reference.name)}: {HEADLINES[document.verdict.outcome]}",
        f"**{_text(headline(document))}**",
        "\n".join(f"- {_text(line)}" for line in explanation(document)),
        "## Scores",
        as_markdown(scores_table(document)),
        f"{_text(document.title)} (`{document.recipe}`), {seeds}, settings `{document.settings}`. Reported in: "
        f"{_text(reference.source)}",
    ]
    if document.checks:
        parts.append(f"Checks of the recipe (explained in docs/fidelity.md): {_text(document.checks)}")
    notes = [*reference.notes, *(f"seed {seed.seed} {seed.note}" for seed in document.seeds if seed.note)]
    if notes:
        parts += ["## Remarks", "\n".join(f"- {_text(note)}" for note in notes)]
    if document.doubts:
        rows = [(one.point, one.text, "; ".join(one.settings), "; ".join(one.options)) for one in document.doubts]
        pages = dict.fromkeys(one.page for one in document.doubts)
        parts += [
            "## Doubtful points of the paper",
            f"Explained in {', '.join(f'docs/methods/{page}.md' for page in pages)}.",
            as_markdown(plain_table(["point", "doubtful", "setting of this recipe", "options to try"], rows)),
        ]
    known = [(name, value) for name, value in document.environment.items() if value]
    parts += [
        "## Environment",
        as_markdown(plain_table(["", ""], known)),
        f"```console\n{document.command}\n```",
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _text(text: str) -> str:
    return escape_markdown(text)


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
