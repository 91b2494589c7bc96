import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from cse_cli.data import tokens as columns
from cse_cli.data.sources import open_text
from cse_cli.data.tokens import CHUNK, TokenColumn, text_column, token_column
from cse_cli.recipe.schema import Data
from registry.errors import CseError
from tests.cse_cli.data.vocabularies import Words

LINES = ["one two", "", "three", "four five six seven"]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("".join(f"{line}\n" for line in LINES))
    return open_text(Data(file=str(path)), {"text"})


def test_tokens_come_back_as_the_vocabulary_made_them(text):
    words = Words()
    column = text.tokens("text", words, 5)
    assert column.rows == 4
    assert column.take([3, 0, 3, 1]) == Words().ids([LINES[i] for i in (3, 0, 3, 1)], 5)
    assert column.take([1]) == [[1, 2]]


def test_a_second_start_asks_the_vocabulary_nothing(text):
    words = Words()
    first = text.tokens("text", words, 5).take(range(4))
    assert words.asked == 4
    assert text.tokens("text", words, 5).take(range(4)) == first
    assert words.asked == 4


def test_another_vocabulary_length_or_text_has_another_file(text, tmp_path, home):
    text.tokens("text", Words(), 5)
    text.tokens("text", Words(), 6)
    text.tokens("text", Words("other"), 5)
    (tmp_path / "u.txt").write_text("else\n")
    open_text(Data(file=str(tmp_path / "u.txt")), {"text"}).tokens("text", Words(), 5)
    assert len(list((home / "cache" / "tokens").glob("*.arrow"))) == 4


def test_columns_longer_than_a_chunk_are_read_across_its_edges(tmp_path):
    lines = [f"w{i}" if i % 3 else "" for i in range(2 * CHUNK + 5)]
    seen = []
    column = token_column(
        tmp_path / "a.arrow", lines, len(lines), Words(), 8, lambda done, rows: seen.append((done, rows))
    )
    asked = [0, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK - 1, 2 * CHUNK, 2 * CHUNK + 4]
    assert column.take(asked) == Words().ids([lines[i] for i in asked], 8)
    assert seen == [(CHUNK, len(lines)), (2 * CHUNK, len(lines)), (2 * CHUNK + 5, len(lines))]
    assert text_column(tmp_path / "b.arrow", lines, len(lines)).take(asked) == [lines[i] for i in asked]


@pytest.mark.parametrize("damage", [b"", b"ARROW1 and then nothing", None])
def test_a_damaged_file_is_made_again(text, home, damage):
    text.tokens("text", Words(), 5)
    (path,) = (home / "cache" / "tokens").glob("*.arrow")
    path.write_bytes(path.read_bytes()[:-30] if damage is None else damage)
    words = Words()
    assert text.tokens("text", words, 5).take([0]) == Words().ids(LINES[:1], 5)
    assert words.asked == 4


def test_a_stop_on_the_way_leaves_no_file_behind(text, home):
    class Stops(Words):
        def ids(self, texts, max_length):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        text.tokens("text", Stops(), 5)
    assert [path.suffix for path in (home / "cache" / "tokens").iterdir()] == [".lock"]


def test_a_cache_that_cannot_be_written_is_told(text, home):
    (home / "cache").mkdir(parents=True, exist_ok=True)
    (home / "cache" / "tokens").write_text("a file where a folder should be")
    with pytest.raises(CseError, match="the cache cannot be written"):
        text.tokens("text", Words(), 5)


def test_two_at_once_make_one_file(tmp_path):
    class Slow(Words):
        def ids(self, texts, max_length):
            time.sleep(0.2)
            return super().ids(texts, max_length)

    path, words = tmp_path / "a.arrow", Slow()
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda _: token_column(path, iter(LINES), len(LINES), words, 5), range(2)))
    assert words.asked == 4  # the second waited and found the file
    assert made[0].take(range(4)) == made[1].take(range(4)) == Words().ids(LINES, 5)


def test_what_a_killed_process_left_is_cleared_away(tmp_path):
    (tmp_path / "a.arrow.99999.tmp").write_bytes(b"half")
    token_column(tmp_path / "a.arrow", LINES, 4, Words(), 5)
    assert not list(tmp_path.glob("*.tmp"))


def test_a_wrong_number_of_rows_is_no_cache_hit(tmp_path):
    token_column(tmp_path / "a.arrow", LINES, 4, Words(), 5)
    assert columns._opened(tmp_path / "a.arrow", TokenColumn, 3) is None
