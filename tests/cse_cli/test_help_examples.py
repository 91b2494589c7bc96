"""The examples of `--help` are lines to copy: one a line, with options that exist."""

from __future__ import annotations

import shlex

import pytest
import typer.main

from cse_cli.app import all_commands, app

EXAMPLES = [line for command in all_commands for line in str(command.epilog).splitlines()[1:]]
ROOT = typer.main.get_command(app)
WIDTH = 78
"""Columns of a terminal of 80 inside the margins of `--help`."""


def test_every_command_has_examples():
    assert [command for command in all_commands if not str(command.epilog).startswith("Examples:\n")] == []
    assert len(EXAMPLES) > 70


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_a_line_to_copy(example):
    assert len(example) <= WIDTH
    words = shlex.split(example.partition(" | ")[0].partition(" > ")[0])
    while "=" in words[0]:  # an environment variable
        del words[0]
    assert words.pop(0) == "cse"
    command, context = ROOT, ROOT.context_class(ROOT, **ROOT.context_settings)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
        context = command.context_class(command, context)  # a command keeps the help option of its first context
    command.make_parser(context).parse_args(words)
