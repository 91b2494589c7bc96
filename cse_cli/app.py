"""The Typer app: every command by name, and the one place that prints a `CseError` and sets the exit code."""

from __future__ import annotations

import sys

import typer

from cse_cli import doctor
from cse_cli.analysis import command as analysis
from cse_cli.data import command as data
from cse_cli.evaluation import command as evaluation
from cse_cli.listing import command as listing
from cse_cli.recipe import command as recipe
from cse_cli.runs import command as runs
from cse_cli.tracking import command as tracking
from cse_cli.tuning import command as tuning

app = typer.Typer(
    name="cse",
    help="Run, compare and reproduce unsupervised contrastive sentence embeddings from TOML recipes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command("check", epilog=data.CHECK_RECIPES_EPILOG)(data.check_recipes)
app.command("compare", epilog=analysis.COMPARE_EPILOG)(analysis.compare)
app.command("cp", epilog=recipe.COPY_EPILOG)(recipe.copy)
app.command("doctor", epilog=doctor.EPILOG)(doctor.doctor)
app.command("evaluate", epilog=evaluation.EPILOG)(evaluation.evaluate)
app.command("leaderboard", epilog=analysis.LEADERBOARD_EPILOG)(analysis.leaderboard)
app.command("list", epilog=listing.EPILOG)(listing.list_)
app.command("report", epilog=analysis.REPORT_EPILOG)(analysis.report)
app.command("run", epilog=runs.EPILOG)(runs.run)
app.command("schema", epilog=recipe.SCHEMA_EPILOG)(recipe.schema)
app.command("show", epilog=recipe.SHOW_EPILOG)(recipe.show)
app.command("tune", epilog=tuning.EPILOG)(tuning.tune)
app.command("ui", epilog=tracking.UI_EPILOG)(tracking.ui)
app.add_typer(data.app, name="data")
app.add_typer(tracking.app, name="runs")


def run() -> None:
    """Run the app; a known error becomes one message on stderr and its exit code."""
    try:
        app()
    except Exception as error:
        from registry.errors import CseError

        if not isinstance(error, CseError):
            raise
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)
