"""Screens of `cse data` and `cse check`: help, one typical output and typical errors of each command."""

from __future__ import annotations

import re

import pytest

from tests.support.command import cse


@pytest.fixture
def screen(tmp_path, monkeypatch, capsys, snapshot):
    """Compare the output of a command with its snapshot, with the temporary directory as TMP."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("CSE_DATA", str(tmp_path / "data"))

    def compare(*command):
        code, out, err = cse(*map(str, command), capsys=capsys)
        text = f"$ cse {' '.join(map(str, command))}\n{out}{err}exit code {code}\n"
        assert re.sub(r" +\n", "\n", text.replace(str(tmp_path), "TMP")) == snapshot

    return compare


@pytest.mark.parametrize("command", ["", "list", "check", "inspect", "download"])
def test_help_of_data(screen, command):
    screen("data", *command.split(), "--help")


def test_help_of_check(screen):
    screen("check", "--help")


def test_requirements(screen):
    screen("check", "--data", "mini/simcse_en")
    settings = ("data.dataset=tatoeba_open", "encoders.online.model=mini_en", "train.steps=0")
    screen("check", "--data", "simcse_en", *(word for one in settings for word in ("--set", one)))


@pytest.mark.slow
def test_verified_data_sets(screen):
    screen("data", "check", "tatoeba_en_de", "tatoeba_open", "wiki1m_prefix", "stsb_open")


@pytest.mark.slow
def test_an_inspected_text(screen):
    screen("data", "inspect", "quickstart", "--set", "data.limit=500")


def test_errors(screen, tmp_path):
    screen("data", "download")
    screen("data", "download", "quickstart")
    (tmp_path / "directory").mkdir()
    screen("check", "directory")
