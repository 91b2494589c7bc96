"""A WordNet of a few words in the format of its data files (wndb(5WN)): for tests of whoever reads one."""

from pathlib import Path

Word = str
Pointer = tuple[str, str, str, int, int]
"""Symbol, part of speech, key of the other synset, number of the word here, number of the word there; from 1."""

SYNSETS: dict[str, dict[str, tuple[str, list[Word], list[Pointer]]]] = {
    "a": {
        "hot": ("a", ["hot", "torrid(p)"], [("!", "a", "cold", 1, 1), ("&", "a", "big", 0, 0)]),
        "cold": ("a", ["cold"], [("!", "a", "hot", 1, 1)]),
        "big": ("a", ["large", "big"], [("!", "a", "small", 2, 2), ("!", "a", "small", 1, 2)]),
        "small": ("a", ["little(a)", "small"], [("!", "a", "big", 1, 2), ("!", "a", "big", 2, 2)]),
        "red-hot": ("s", ["red-hot", "Arctic"], [("!", "a", "big", 2, 1)]),
    },
    "n": {
        "man": (
            "n",
            ["man", "adult_male"],
            [("!", "n", "woman", 1, 1), ("!", "n", "woman", 2, 2), ("@", "n", "man", 0, 0)],
        ),
        "woman": ("n", ["woman", "adult_female"], [("!", "n", "man", 1, 1), ("!", "n", "man", 2, 2)]),
    },
    "v": {"rise": ("v", ["rise", "go_up"], [("!", "v", "fall", 1, 2)]), "fall": ("v", ["drop", "fall"], [])},
    "r": {"up": ("r", ["up"], [("!", "r", "down", 1, 1)]), "down": ("r", ["down"], [("!", "r", "up", 1, 1)])},
}
FILES = {"a": "data.adj", "n": "data.noun", "v": "data.verb", "r": "data.adv"}
LICENSE = "  1 A license stands at the top, indented, ! and all.  \n  2 It is no synset.  \n"


def write_wordnet(folder: Path) -> Path:
    """Write the four data files; return their folder."""
    places: dict[tuple[str, str], int] = {}
    for _ in range(2):  # the lines' lengths do not depend on the offsets, which the first round finds
        for part, synsets in SYNSETS.items():
            content = LICENSE
            for key, (kind, words, pointers) in synsets.items():
                places[part, key] = len(content)
                content += _line(places, part, key, kind, words, pointers)
            (folder / FILES[part]).write_text(content, encoding="ascii")
    return folder


def _line(
    places: dict[tuple[str, str], int], part: str, key: str, kind: str, words: list[Word], pointers: list[Pointer]
) -> str:
    named = " ".join(f"{word} 0" for word in words)
    pointed = "".join(
        f" {s} {places.get((p, k), 0):08d} {p} {here:02x}{there:02x}" for s, p, k, here, there in pointers
    )
    frames = " 01 + 01 00" if part == "v" else ""
    counted = f"{len(words):02x} {named} {len(pointers):03d}{pointed}"
    return f'{places[part, key]:08d} 00 {kind} {counted}{frames} | a gloss; "! x"  \n'
