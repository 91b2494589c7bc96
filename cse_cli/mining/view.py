"""Output of `cse data mine`."""

from __future__ import annotations

import json
import sys

from cse_cli.mining.mine import RECORD, Mined


def print_mined(mined: Mined) -> None:
    """Print the counts to stderr, and the lines that make a recipe use the file to stdout."""
    sys.stderr.write(
        f"{mined.rows:,} rows from {mined.pairs:,} pairs and {mined.candidates:,} candidates"
        f"{', mined before' if mined.reused else ''}\n"
    )
    negative = "none" if mined.negative_score is None else f"{mined.negative_score:.4f}"
    sys.stderr.write(f"mean cosine with the anchor: positives {mined.positive_score:.4f}, negatives {negative}\n")
    for name, count in mined.skipped.items():
        sys.stderr.write(f"{count:,} candidates removed by --{name.replace('_', '-')}\n")
    if mined.lacking:
        sys.stderr.write(
            f"{mined.lacking:,} of {mined.anchors:,} anchors have fewer negatives: use a larger --range-max, smaller "
            "margins, or a --corpus\n"
        )
    sys.stderr.write(f"record: {mined.output}{RECORD}\nuse in a recipe:\n")
    negatives = mined.columns[2:]
    lines = ["[data]", f"file = {json.dumps(mined.output, ensure_ascii=False)}"]
    for name in mined.columns:
        lines += [f"[views.{name}]", f'column = "{name}"']
    for name in negatives:
        own = "" if len(negatives) == 1 else f".{name}"
        lines += [f"[losses.info_nce{own}]"] if not own else [f"[losses.{name}]", 'name = "info_nce"']
        lines += [f'views = {{ hard = "{name}" }}']
    sys.stdout.write("\n".join(lines) + "\n")
