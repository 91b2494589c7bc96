"""Errors of the TOML parser in plain words, with the line of the bracket, quote or key that causes them."""

from __future__ import annotations

import re
import tomllib

from cse_cli.recipe.positions import Position, occurrences

_FORM = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)
_CLOSING = {"[": "]", "{": "}"}
_NAMES = {"[": "array", "{": "inline table"}
_WORDS = {"true": "true", "false": "false", "yes": "true", "on": "true", "no": "false", "off": "false"}
_HEADER = r"^[ \t]*\[+[\w.\"-]+\]+[ \t]*(?:#[^\n]*)?$"
_STATEMENT = re.compile(rf"\s*[\w.\"-]+\s*=|{_HEADER}", re.MULTILINE)
_STRINGS = r"'''.*?'''|\"\"\".*?\"\"\"|'''|\"\"\"|'[^'\n]*'|\"(?:\\.|[^\"\\\n])*\""
_TOKENS = re.compile(rf"{_HEADER}|{_STRINGS}|#[^\n]*|[\[\]{{}}\"']", re.DOTALL | re.MULTILINE)
"""Table headers, strings, comments, brackets, and quotes that begin a string without end."""


def explain(text: str, error: tomllib.TOMLDecodeError) -> tuple[Position, str]:
    """Return place and cause of an error of `tomllib.loads(text)`."""
    found = _FORM.fullmatch(str(error))
    words = found[1] if found else str(error)
    place = Position(int(found[2]), int(found[3])) if found and found[2] else _position(text, len(text))
    at = sum(len(line) + 1 for line in text.split("\n")[: place.line - 1]) + place.column - 1
    if "twice" in words or "overwrite" in words or "Duplicate" in words:
        return _given_twice(text, place)
    if "hex value" in words or words.startswith("Unescaped"):
        return place, r"\ starts an escape sequence. Write the text in single quotes: 'C:\text.txt'"
    opened = _opened(text, at)
    if opened is not None and text[opened] in "\"'":
        return _unclosed_string(text, opened)
    if opened is not None and (words.startswith("Unclosed") or _in_next_statement(text, opened, at)):
        return _unclosed_bracket(text, opened, at)
    return place, _in_line(words, text.split("\n")[place.line - 1], place.column - 1, in_table=opened is not None)


def _in_line(words: str, line: str, column: int, *, in_table: bool) -> str:
    """Return the cause of an error that is in one line."""
    rest = line[column:].strip()
    match words:
        case "Invalid value":
            return _no_value(line, rest)
        case "Invalid statement":
            return f"a line starts with a key or a [table], not with {rest[:1]}"
        case "Invalid initial character for a key part":
            one_line = "an inline table { … } has to be on one line. Write [table] instead"
            return one_line if in_table else "the name is missing"
    if words.startswith("Expected newline"):
        return _after_value(line, line[:column], rest)
    if words.startswith("Expected '='"):
        return _no_equals(line, rest)
    if words.startswith("Expected ']"):
        return f"{words.split()[1]} is missing at the end of {line.strip()}"
    return f"{words[:1].lower()}{words[1:]}"


def _position(text: str, at: int) -> Position:
    before = text[:at].split("\n")
    return Position(len(before), len(before[-1]) + 1)


def _given_twice(text: str, place: Position) -> tuple[Position, str]:
    """Return the second place of a key, and the line of the first one."""
    every = occurrences(text)
    here = [(keys, at) for keys, at in every if at.line == place.line and at.column < place.column]
    for keys, at in reversed(here):
        first = next(other for known, other in every if known == keys)
        if first != at:
            return at, f"'{'.'.join(map(str, keys))}' is given twice, first in line {first.line}. Remove one of them"
    return place, "a key is given twice. Remove one of them"


def _opened(text: str, end: int) -> int | None:
    """Return the position of the last bracket of a value, or of the quote, that is open at `end`, or None."""
    open_at: list[int] = []
    for token in _TOKENS.finditer(text):
        first, start = token[0][0], token.start()
        if start >= end:
            break
        if token[0] in ("'", '"', "'''", '"""'):
            return start
        if len(token[0]) > 1:
            continue
        if first in _CLOSING and ("=" in text[text.rfind("\n", 0, start) + 1 : start] or open_at):
            open_at.append(start)
        elif first in _CLOSING.values() and open_at:
            open_at.pop()
    return open_at[-1] if open_at else None


def _in_next_statement(text: str, opened: int, at: int) -> bool:
    """Return whether a key or a table header begins the line of a position after the line of an open bracket."""
    start = text.rfind("\n", 0, at) + 1
    return start > opened and _STATEMENT.match(text, start) is not None


def _unclosed_string(text: str, opened: int) -> tuple[Position, str]:
    quote = text[opened] * (3 if text[opened : opened + 3] == text[opened] * 3 else 1)
    return _position(text, opened), f"the string is not closed. Add {quote} at its end"


def _unclosed_bracket(text: str, opened: int, at: int) -> tuple[Position, str]:
    if _position(text, opened).line == _position(text, at).line and text[at : at + 1] not in ("\n", ""):
        return _position(text, at), f"a comma is missing between two elements of the {_NAMES[text[opened]]}"
    bracket = text[opened]
    return _position(text, opened), f"the {_NAMES[bracket]} is not closed. Add {_CLOSING[bracket]} at its end"


def _no_value(line: str, rest: str) -> str:
    """Return why a text after `=` is not a value."""
    word = rest.partition("#")[0].strip().strip(",]} ")
    if not word or rest.startswith(","):
        return "a value is missing"
    if word.lower() in _WORDS:
        return f"write {_WORDS[word.lower()]}, in lower case, instead of {word}"
    if word.lower() in ("none", "null", "nil"):
        return f"TOML has no {word}. Remove the line"
    if re.fullmatch(r"[+-]?\.\d+", word):
        return f"write {word.replace('.', '0.', 1)} instead of {word}"
    if word[0] in "“”‘’«":
        return 'use straight quotes: "text"'
    key = line.partition("=")[0].strip()
    return f'text needs quotes: {key} = "{word}"' if line.count("=") == 1 and "[" not in line else "text needs quotes"


def _after_value(line: str, before: str, rest: str) -> str:
    """Return the problem of the text after a value."""
    key, value = (part.strip() for part in before.partition("=")[::2])
    number = re.fullmatch(r"[+-]?\d+", value)
    if not rest:
        return "the line does not end with a line feed"
    if number and re.match(r",\d", rest):
        return f"write a decimal point: {value}.{re.findall(r'[0-9]+', rest)[0]}"
    if number and rest == ".":
        return f"write {value}.0 instead of {value}."
    if number and re.fullmatch(r"\d+", rest):
        return f"write {int(value + rest)} instead of {value}{rest}"
    if value[-1:] == "'" and "'" in rest:
        return "a string in single quotes contains '. Use double quotes"
    if "=" in rest:
        return f"write each key on its own line: '{rest}' follows the value of '{key}'"
    if value[-1:] in "\"']}" or not re.match(r"[\w%.:/-]", rest):
        return f"'{rest}' follows the value of '{key}'. Remove it"
    return f'text needs quotes: {key} = "{line.partition("=")[2].partition("#")[0].strip()}"'


def _no_equals(line: str, rest: str) -> str:
    """Return the problem of the text after a key."""
    key = line.partition("=")[0].strip()
    if rest.startswith(":"):
        return f"write = instead of : after '{line.partition(':')[0].strip()}'"
    if "=" in rest:
        return f'a key contains no spaces. Write {key.replace(" ", "_")}, or "{key}" in quotes'
    return f"= is missing after '{key.split()[0] if key else ''}'"
