"""Publish the bits of portable runs: `python -m benchmarks.portable [RECIPE…]`.

Runs each recipe with seed 0 and `train.portable`, and writes the SHA-256 of its weights to
`cse_cli/jobs/portable.toml`, under the version of torch. Digests of other recipes and versions stay. A changed one is
printed.
"""

from __future__ import annotations

import sys
import tomllib

import cse_cli
from cse_cli.core.formatting import to_toml
from cse_cli.jobs.reproduce import PUBLISHED
from cse_cli.runs.record import MODEL, folder_of
from registry.resources.models import weights_sha256

RECIPES = ("quickstart", *(f"mini/{name}_en" for name in (
    "arccse", "bert_whitening", "cards", "conisi_s", "consert", "ct", "diffcse", "ditto", "esimcse", "focal_infonce",
    "ifcl", "mixcse", "mocose", "pcl", "promptbert", "rankcse_list_mle", "scd", "simcse", "sncse", "tsdae",
)))  # fmt: skip


def main(names: list[str]) -> None:
    """Run the recipes and write the file."""
    text = PUBLISHED.read_text(encoding="utf-8")
    found, comment = tomllib.loads(text), text.partition("\n")[0]
    for name in names or RECIPES:
        (result,) = cse_cli.run(name, settings={"train.portable": True}, seeds=[0])
        of_version = found.setdefault(result.versions.torch.partition("+")[0], {}).setdefault(name, {})
        digest = weights_sha256(folder_of(result.run_id or "") / MODEL)
        changed = "" if of_version.get("0", digest) == digest else f", was {of_version['0']}"
        sys.stdout.write(f"{name}: {digest}{changed}\n")
        of_version["0"] = digest
        PUBLISHED.write_text(f"{comment}\n{to_toml(found)}", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
