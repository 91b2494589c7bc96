"""`cse` and `python -m cse_cli`."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    from cse_cli.app import run

    run()


if __name__ == "__main__":
    main()
