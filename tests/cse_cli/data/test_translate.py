import pytest
from filelock import FileLock

from cse_cli.data import translate
from cse_cli.data.sources import open_text
from cse_cli.data.translate import CHUNK, new_output, source_text, translate_text
from cse_cli.recipe.schema import Data
from registry.errors import CseError


class Upper:
    """Translates into capitals; stops, as if killed, after `patience` chunks."""

    def __init__(self, patience=99, identity="upper"):
        self.patience, self.identity, self.seen = patience, identity, []

    def translate(self, sentences):
        if self.patience == 0:
            raise KeyboardInterrupt
        self.patience -= 1
        self.seen += sentences
        return [sentence.upper() for sentence in sentences]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("".join(f"line {i}\n" for i in range(2 * CHUNK + 3)))
    return source_text(str(path), "train", None)


def test_line_i_translates_line_i(text, tmp_path):
    made = translate_text(text, Upper(), tmp_path / "out" / "t.tsv")
    assert (made.rows, made.reused) == (2 * CHUNK + 3, 0)
    parallel = open_text(Data(file=str(made.output)), {"text", "translation"})
    assert list(parallel.cells("text")) == list(text.cells("text"))
    assert list(parallel.cells("translation")) == [line.upper() for line in text.cells("text")]


def test_a_killed_translation_goes_on_where_it_stopped(text, tmp_path):
    output = tmp_path / "t.tsv"
    with pytest.raises(KeyboardInterrupt):
        translate_text(text, Upper(patience=1), output)
    assert not output.exists()
    second = Upper()
    made = translate_text(text, second, output)
    assert made.reused == CHUNK
    assert len(second.seen) == CHUNK + 3
    unbroken = translate_text(text, Upper(identity="the same in one go"), tmp_path / "u.tsv")
    assert output.read_bytes() == unbroken.output.read_bytes()


def test_a_finished_translation_is_not_made_again(text, tmp_path):
    translate_text(text, Upper(), tmp_path / "a.tsv")
    made = translate_text(text, Upper(patience=0), tmp_path / "b.tsv")
    assert made.reused == made.rows
    other = Upper(identity="another model")
    translate_text(text, other, tmp_path / "c.tsv")
    assert len(other.seen) == made.rows


def test_tabs_and_returns_become_spaces(tmp_path):
    (tmp_path / "t.txt").write_bytes("a\tb\rc\u2028d\n\nlast\n".encode())
    made = translate_text(source_text(str(tmp_path / "t.txt"), "train", None), Upper(), tmp_path / "t.tsv")
    assert made.output.read_bytes().decode() == "text\ttranslation\na b c\u2028d\tA B C\u2028D\n\t\nlast\tLAST\n"


def test_progress_counts_sentences(text, tmp_path):
    seen = []
    translate_text(text, Upper(), tmp_path / "t.tsv", lambda done, rows: seen.append((done, rows)))
    assert seen == [(CHUNK, text.rows), (2 * CHUNK, text.rows), (text.rows, text.rows)]


def test_two_at_once_are_refused(text, tmp_path, home):
    translate_text(text, Upper(), tmp_path / "t.tsv")
    (folder,) = (home / "cache" / "translations").iterdir()
    with FileLock(folder / "lock"), pytest.raises(CseError, match="another process"):
        translate_text(text, Upper(), tmp_path / "t.tsv")


def test_a_disk_that_refuses_is_told(text, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CseError, match="file"):
        translate_text(text, Upper(), tmp_path / "file" / "t.tsv")


def test_the_source_is_a_file_or_a_data_set(tmp_path):
    assert source_text("graded_pairs", "train", 5).rows == 5
    with pytest.raises(CseError, match="no such file"):
        source_text(str(tmp_path / "nowhere.txt"), "train", None)
    with pytest.raises(CseError, match="unknown dataset"):
        source_text("nowhere", "train", None)


def test_the_output_lies_below_the_state_directory_or_where_it_was_asked(tmp_path, home):
    assert new_output(None, "wiki_en", "train", "a/opus") == home / "translations" / "wiki_en.opus.tsv"
    assert new_output(None, "x/mine.txt.gz", "train", "opus") == home / "translations" / "mine.opus.tsv"
    assert new_output(None, "stsb", "dev", "opus").name == "stsb.dev.opus.tsv"
    assert new_output(str(tmp_path / "t.tsv"), "x", "train", "m") == tmp_path / "t.tsv"
    (tmp_path / "t.tsv").write_text("precious")
    with pytest.raises(CseError, match="exists already"):
        new_output(str(tmp_path / "t.tsv"), "x", "train", "m")
    with pytest.raises(CseError, match=r"must end in \.tsv"):
        new_output(str(tmp_path / "t.txt"), "x", "train", "m")


def test_a_chunk_is_small_enough_to_lose():
    assert translate.CHUNK <= 1024
