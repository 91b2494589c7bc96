"""Time to score the seven English STS test sets.

    python -m benchmarks.gpu.scoring [--device cuda] [--shape bert-base] [--json FILE]

The time includes reading, tokenizing and correlating. If the sets are missing, as many pairs are generated.
"""

from __future__ import annotations

from benchmarks.gpu.document import write
from benchmarks.gpu.material import parser, setting
from benchmarks.training.others import suite


def main() -> None:
    """Score the sets and write the seconds."""
    made = parser(__doc__)
    made.add_argument("--repeats", type=int, default=3)
    made.add_argument("--sentences", type=int, help="Maximum number of generated sentences.")
    asked = made.parse_args()
    with setting(asked, 5000) as common:
        found = suite(str(common.model), asked.device, asked.precision, asked.repeats, asked.sentences)
    every = ", ".join(f"{value:.2f}" for value in found["all"])
    lines = [f"Scoring {found['of']} with {asked.shape}, {asked.precision}: {found['seconds']:.2f} s (all: {every})."]
    write(asked.json, found, lines)


if __name__ == "__main__":
    main()
