import os
import resource
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cse_cli.data import tokens
from cse_cli.data.sources import open_text
from cse_cli.recipe.schema import Data
from tests.cse_cli.data.vocabularies import Words
from tests.support.errors import refuses

LINES = ["one two", "three", "four five six seven", "eight nine", "ten"]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("".join(f"{line}\n" for line in LINES))
    return path


@pytest.fixture
def text(path):
    return open_text(Data(file=str(path)), {"text"})


@pytest.fixture
def shards_of_two(monkeypatch):
    monkeypatch.setattr(tokens, "SHARD", 2)


def files(home):
    return sorted(path.name for path in (home / "cache" / "tokens").rglob("0*.arrow"))


def test_tokens_come_back_as_the_vocabulary_made_them(text):
    column = text.tokens("text", Words(), 5)
    assert column.rows == 5
    assert column.take([3, 0, 3, 1]) == Words().ids([LINES[i] for i in (3, 0, 3, 1)], 5)
    assert column.take(range(5)) == Words().ids(LINES, 5)


@pytest.mark.usefixtures("shards_of_two")
def test_rows_are_found_across_shards(text, home):
    seen = []
    column = text.tokens("text", Words(), 5, lambda done, rows: seen.append((done, rows)))
    assert files(home) == ["00000-2.arrow", "00001-2.arrow", "00002-1.arrow"]
    assert column.take([4, 1, 2, 2]) == Words().ids([LINES[i] for i in (4, 1, 2, 2)], 5)
    assert seen == [(2, 5), (4, 5), (5, 5)]


def test_a_second_start_asks_the_vocabulary_nothing(text):
    words = Words()
    first = text.tokens("text", words, 5).take(range(5))
    assert words.asked == 5
    assert text.tokens("text", words, 5).take(range(5)) == first
    assert words.asked == 5


def test_another_vocabulary_length_or_text_has_another_file(text, tmp_path, home):
    text.tokens("text", Words(), 5)
    text.tokens("text", Words(), 6)
    text.tokens("text", Words("other"), 5)
    (tmp_path / "u.txt").write_text("else\n")
    open_text(Data(file=str(tmp_path / "u.txt")), {"text"}).tokens("text", Words(), 5)
    assert len(files(home)) == 4


@pytest.mark.usefixtures("shards_of_two")
def test_equal_sentences_and_full_shards_are_reused(path, tmp_path):
    words = Words()
    open_text(Data(file=str(path), limit=3), {"text"}).tokens("text", words, 5)
    assert words.asked == 3
    open_text(Data(file=str(path)), {"text"}).tokens("text", words, 5)
    assert words.asked == 6  # its first shard was there
    (tmp_path / "both.tsv").write_text("translation\ttext\n" + "".join(f"x\t{line}\n" for line in LINES))
    both = open_text(Data(file=str(tmp_path / "both.tsv")), {"text", "translation"})
    assert both.tokens("text", words, 5).take([4]) == Words().ids(LINES[4:], 5)
    assert words.asked == 6


DAMAGE = {
    "an empty file": (".arrow", lambda file: file.write_bytes(b"")),
    "another file": (".arrow", lambda file: file.write_bytes(b"ARROW1 and then nothing")),
    "a short file": (".arrow", lambda file: file.write_bytes(file.read_bytes()[:-30])),
    "a short note": (".json", lambda file: file.write_bytes(file.read_bytes()[:-3])),
    "no note": (".json", Path.unlink),
}


@pytest.mark.usefixtures("shards_of_two")
@pytest.mark.parametrize("damage", DAMAGE)
def test_only_a_damaged_shard_is_created_again(text, home, damage):
    suffix, apply = DAMAGE[damage]
    text.tokens("text", Words(), 5)
    file = next((home / "cache" / "tokens").rglob(f"00001-2{suffix}"))
    whole = file.read_bytes()
    apply(file)
    words = Words()
    with pytest.warns(UserWarning, match=r"00001-2\.arrow is damaged and is created again") as told:
        column = text.tokens("text", words, 5)
    assert (len(told), words.asked) == (1, 2)
    assert column.take(range(5)) == Words().ids(LINES, 5)
    assert file.read_bytes() == whole


def test_a_file_of_the_right_size_that_is_not_arrow_is_named(text, home):
    text.tokens("text", Words(), 5)
    (file,) = (home / "cache" / "tokens").rglob("*.arrow")
    file.write_bytes(b"x" * file.stat().st_size)
    with refuses("data.damaged_cache", file, "delete it"):
        text.tokens("text", Words(), 5)


def test_a_note_of_an_older_version_is_read(text, home):
    first = text.tokens("text", Words(), 5).take(range(5))
    (note,) = (home / "cache" / "tokens").rglob("*.json")
    note.write_text('89abcdef\n{"file": "01234567"}')
    words = Words()
    assert (text.tokens("text", words, 5).take(range(5)), words.asked) == (first, 0)


@pytest.mark.usefixtures("shards_of_two")
def test_a_stop_keeps_finished_shards_only(text, home):
    class Stops(Words):
        def ids(self, texts, max_length):
            if "four five six seven" in texts:
                raise KeyboardInterrupt
            return super().ids(texts, max_length)

    with pytest.raises(KeyboardInterrupt):
        text.tokens("text", Stops(), 5)
    (folder,) = (home / "cache" / "tokens").iterdir()
    assert sorted(path.name for path in folder.iterdir() if path.suffix != ".lock") == ["00000-2.arrow", "00000-2.json"]
    words = Words()
    text.tokens("text", words, 5)
    assert words.asked == 3


def test_the_draft_of_a_killed_process_is_replaced(text, home):
    text.tokens("text", Words(), 5)
    (whole,) = (home / "cache" / "tokens").rglob("*.arrow")
    whole.rename(whole.with_name(f"tmp-{whole.name}"))
    text.tokens("text", Words(), 5)
    names = sorted(path.name for path in whole.parent.iterdir() if path.suffix != ".lock")
    assert names == ["00000-5.arrow", "00000-5.json"]


@pytest.mark.slow
def test_a_full_disk_is_an_error_and_leaves_no_partial_file(tmp_path, home):
    (tmp_path / "long.txt").write_text("".join(f"{'word ' * 90}{i}\n" for i in range(2000)))
    long = open_text(Data(file=str(tmp_path / "long.txt")), {"text"})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))  # the tokens take 0.7 MB
    try:
        with refuses("data.cache_not_writable", "File too large") as caught:
            long.tokens("text", Words(), 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.exit_code == 4
    (folder,) = (home / "cache" / "tokens").iterdir()
    assert [path.name for path in folder.iterdir() if path.suffix != ".lock"] == []


def test_two_at_once_make_one_file(text):
    class Slow(Words):
        def ids(self, texts, max_length):
            time.sleep(0.2)
            return super().ids(texts, max_length)

    words = Slow()
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda _: text.tokens("text", words, 5), range(2)))
    assert words.asked == 5  # the second waited and found the file
    assert made[0].take(range(5)) == made[1].take(range(5)) == Words().ids(LINES, 5)


KILLED = """
import sys
from cse_cli.data.sources import open_text
from cse_cli.recipe.schema import Data
from tests.cse_cli.data.vocabularies import Stuck
if __name__ == "__main__":
    open_text(Data(file=sys.argv[1]), {"text"}).tokens("text", Stuck(), 5)
"""


@pytest.mark.process
def test_a_killed_process_keeps_shards(tmp_path, home):
    lines = [*(f"s{i}" for i in range(tokens.SHARD)), "stuck", "end"]
    (tmp_path / "long.txt").write_text("\n".join(lines))
    (tmp_path / "run.py").write_text(KILLED)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(tmp_path / "run.py"), str(tmp_path / "long.txt")]
    running = subprocess.Popen(command, env=environment, start_new_session=True)
    waited(lambda: "00000-262144.arrow" in files(home))
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert files(home) == ["00000-262144.arrow"]
    words = Words()
    column = open_text(Data(file=str(tmp_path / "long.txt")), {"text"}).tokens("text", words, 5)
    assert words.asked == 2
    assert column.take([0, len(lines) - 1]) == Words().ids([lines[0], lines[-1]], 5)
    assert not list((home / "cache" / "tokens").rglob("tmp*"))


def waited(condition, seconds=120):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)
