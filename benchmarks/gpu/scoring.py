"""What scoring the seven English STS test sets takes; as many generated pairs where they are missing.

python -m benchmarks.gpu.scoring [--device cuda] [--shape bert-base] [--json FILE]

Reading, tokenising and correlating are counted.
"""

from __future__ import annotations

from benchmarks.gpu.document import write
from benchmarks.gpu.material import parser, setting
from benchmarks.training.others import suite


def main() -> None:
    """Score and write the seconds."""
    made = parser(__doc__)
    made.add_argument("--repeats", type=int, default=3)
    made.add_argument("--sentences", type=int, help="of generated text, at most")
    asked = made.parse_args()
    with setting(asked, 5000) as common:
        found = suite(str(common.model), asked.device, asked.precision, asked.repeats, asked.sentences)
    every = ", ".join(f"{value:.2f}" for value in found["all"])
    lines = [f"Scoring {found['of']} with {asked.shape}, {asked.precision}: {found['seconds']:.2f} s (all: {every})."]
    write(asked.json, found, lines)


if __name__ == "__main__":
    main()
