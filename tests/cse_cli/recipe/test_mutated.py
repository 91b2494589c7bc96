"""Hundreds of recipes and studies with one random change, which must cause an error.

Each is a complete recipe or study of the package. A change to another valid name or number is not a mistake.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cse_cli.core.formatting import to_toml
from cse_cli.recipe.check import check_file
from cse_cli.recipe.files import all_recipes, all_studies
from cse_cli.recipe.load import STUDY, load
from cse_cli.recipe.study import load_study, origins_of

pytestmark = pytest.mark.exhaustive

SEED = 20_261_123
Place = tuple[dict[str, Any] | list[Any], Any]
"""A table or an array, and the key or the number of one of its values."""

RIGHT = re.compile(
    "|".join(
        (
            r"negative .*\.(weight|hard_weight|low|high|shift|number|frozen_layers)(\.\d+)?$",  # may be negative
            r"(negative|wrong type) tune\..*",  # a choice of numbers may be of any kind
            r"unknown key (study\.grid|losses\.\w+\.views|tune).*",
            r"misspelled key (evaluators|losses|encoders|tune|encoders\.\w+\.heads)\.\w+$",  # names of the author's own
            r"wrong type (study\.seeds|title|description|.*\.(row|title|description|xlabel|ylabel|make|template))$",
        )
    )
)
"""What is accepted and no mistake: kind of change and path."""


def places(table: Any) -> Iterator[tuple[Place, str]]:
    """Yield every value of a document with its path."""
    for key, value in list(table.items() if isinstance(table, dict) else enumerate(table)):
        yield (table, key), str(key)
        if isinstance(value, dict | list):
            yield from ((place, f"{key}.{path}") for place, path in places(value))


def a_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def unknown_key(place: Place, random: Random) -> str | None:
    inside = place[0][place[1]]
    if not isinstance(inside, dict):
        return None
    name = random.choice(["epochs_", "lr", "enabled", "comment", "settings"])
    inside[name] = random.choice([1, "x", True, 0.5, {"a": 1}])
    return name


def misspelled_key(place: Place, random: Random) -> str | None:
    table, key = place
    if not isinstance(table, dict) or len(key) < 3:
        return None
    at = random.randrange(len(key) - 1)
    wrong = key[:at] + key[at + 1] + key[at] + key[at + 2 :]
    if wrong in table:
        return None
    table[wrong] = table.pop(key)
    return ""


def wrong_type(place: Place, random: Random) -> str | None:
    table, key = place
    was, values = table[key], ["text", 2.5, True, [1], {"a": 1}]
    table[key] = random.choice(
        [one for one in values if type(one) is not type(was) and not (a_number(one) and a_number(was))]
    )
    return ""


def negative(place: Place, _: Random) -> str | None:
    table, key = place
    if not a_number(table[key]):
        return None
    table[key] = -abs(table[key]) or -1
    return ""


CHANGES: dict[str, Callable[[Place, Random], str | None]] = {
    "unknown key": unknown_key,
    "misspelled key": misspelled_key,
    "wrong type": wrong_type,
    "negative": negative,
}


def changed(document: dict[str, Any], random: Random) -> tuple[str, str]:
    """Change one thing of a document, and return the kind of change and the path."""
    while True:
        section = random.choice([key for key in document if key != "schema"])
        found = [(place, path) for place, path in places(document) if path.partition(".")[0] == section]
        place, path = random.choice(found)
        kind = random.choice(list(CHANGES))
        if (more := CHANGES[kind](place, random)) is not None:
            return kind, f"{path}.{more}".rstrip(".")


def test_600_random_changes(tmp_path: Path) -> None:
    random, outcomes, accepted = Random(SEED), Counter[str](), []
    recipes, studies = sorted(all_recipes()), sorted(all_studies().items())
    for number in range(600):
        file = tmp_path / f"{number}.toml"
        if number % 4:
            document = load(random.choice(recipes)).recipe.resolved()
        else:
            name, path = random.choice(studies)
            load_study(name)
            document = {STUDY: {}}
            for source in reversed(origins_of(path).sources):
                document[STUDY] |= {key: value for key, value in source.tables[STUDY].items() if key != "extends"}
            document = copy.deepcopy(document)
            omitted = document[STUDY].pop("omit", ())  # a change of an omitted row has no effect
            if omitted:
                document[STUDY]["rows"] = [row for row in document[STUDY]["rows"] if row["row"] not in omitted]
        kind, where = changed(document, random)
        file.write_text(to_toml(document), encoding="utf-8")
        about = check_file(file)
        outcome = "accepted" if about["valid"] else "refused"
        outcomes[outcome] += 1
        if outcome == "accepted" and not RIGHT.fullmatch(f"{kind} {where}"):
            accepted.append(f"{kind} {where}: {document.get('title')}")
    assert accepted == []
    assert outcomes["refused"] > 400
