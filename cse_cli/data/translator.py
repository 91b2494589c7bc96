"""Any sequence-to-sequence model as a translator, in this process or in one worker process a device."""

from __future__ import annotations

import hashlib
import importlib.util
import multiprocessing
import signal
import warnings
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import torch

from cse_cli.core.devices import Compute, choose, thread_setting, usable_threads
from cse_cli.data.languages import Pair, instruction
from registry.errors import CseError, RunFailedError, errors_as_one
from registry.model_files import check_files, digest
from registry.models import load_config, load_tokenizer, locate, quiet_transformers

VERSION = "2"
"""Part of a translator's identity: raised when this file would translate the same sentence otherwise."""

Batch = list[tuple[str, str]]
"""Sentences and their translations."""


@dataclass(frozen=True)
class Settings:
    """Everything that decides a translation.

    Args:
        model: Name or directory of a sequence-to-sequence model.
        prefix: Text put before every sentence, in place of what the languages call for.
        languages: From which language into which.
        beams: Width of the beam search; 1 is greedy.
        max_length: Tokens a sentence, and its translation, are cut to.
    """

    model: str
    prefix: str | None = None
    languages: Pair = field(default_factory=Pair)
    beams: int = 1
    max_length: int = 128


class Translator:
    """Translates windows of sentences in this process; the model is loaded for the first of them.

    Args:
        settings: Model and languages.
        device: "auto", "cpu", "cuda" or "cuda:N".
        batch_tokens: Size of a batch: its sentences x beams x the tokens of the longest. None is a size that suits
            the device. Halved when a GPU's memory does not hold it.

    Raises:
        CseError: The model cannot translate, or not between these languages.
    """

    def __init__(self, settings: Settings, device: str = "auto", batch_tokens: int | None = None) -> None:
        self.settings = settings
        self._device = device
        self.asked_batch_tokens = self._batch_tokens = batch_tokens
        self._config = load_config(settings.model)
        _check(settings.model, self._config)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*sacremoses")  # `warning` says it
            self._tokenizer = load_tokenizer(settings.model)
        self._instruction = instruction(
            settings.model, self._config, self._tokenizer, settings.languages, settings.prefix
        )
        if self._instruction.source is not None:
            self._tokenizer.src_lang = self._instruction.source

    @cached_property
    def identity(self) -> str:
        """What two translations of a sentence must share to be the same: the model's content and how it is asked."""
        folder = locate(self.settings.model)
        content = [digest(folder)]  # of the weights; these files decide how they are used
        for name in ("generation_config.json", "tokenizer_config.json", "vocab.json"):
            file = folder / name
            content.append(hashlib.sha256(file.read_bytes()).hexdigest()[:16] if file.is_file() else "")
        how = (self._instruction.prefix, self._instruction.source, self._instruction.first_token)
        return repr((VERSION, content, how, self.settings.beams, self.settings.max_length, self._normalises))

    @property
    def warning(self) -> str:
        """What the user should know before it starts; empty where there is nothing."""
        if self._normalises is False:
            return (
                "without the package sacremoses, quotation marks and dashes reach a Marian model as they are, "
                "not as in its training; pip install 'cse-registry[translate]'"
            )
        return self._instruction.warning

    def translate(self, windows: Iterable[Sequence[str]]) -> Generator[Batch, None, None]:
        """Yield translations batch by batch; the order within a window is by length, longest first."""
        for window in windows:
            yield from self._window(window)

    def _window(self, sentences: Sequence[str]) -> Generator[Batch, None, None]:
        encoded = self._tokenizer(
            [self._instruction.prefix + sentence for sentence in sentences],
            truncation=True,
            max_length=self.settings.max_length,
        )["input_ids"]
        order = sorted(range(len(sentences)), key=lambda row: len(encoded[row]), reverse=True)
        while order:
            size = max(1, self.batch_tokens // (self.settings.beams * len(encoded[order[0]])))
            rows, order = order[:size], order[size:]
            lines = self._batch([encoded[row] for row in rows])
            if lines is None:
                self._batch_tokens = len(rows) // 2 * self.settings.beams * len(encoded[rows[0]])
                order = rows + order
            else:
                yield [(sentences[row], line) for row, line in zip(rows, lines, strict=True)]

    def _batch(self, encoded: list[list[int]]) -> list[str] | None:
        """Return one line a sentence, or None where memory does not hold so many."""
        inputs = self._tokenizer.pad({"input_ids": encoded}, return_tensors="pt").to(self.compute.device)
        try:
            with torch.inference_mode():
                made = self._model.generate(
                    input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"],
                    forced_bos_token_id=self._instruction.first_token, num_beams=self.settings.beams, do_sample=False,
                    max_length=None, max_new_tokens=self.settings.max_length,
                )  # fmt: skip
        except torch.OutOfMemoryError as error:
            if len(encoded) == 1:
                raise RunFailedError(
                    f"{self.compute.describe()} has not enough memory to translate one sentence of "
                    f"{len(encoded[0])} tokens",
                    "give a lower --max-length, fewer --beams, or --device cpu",
                ) from error
        else:
            return [" ".join(line.split()) for line in self._tokenizer.batch_decode(made, skip_special_tokens=True)]
        torch.cuda.empty_cache()
        return None

    @property
    def batch_tokens(self) -> int:
        """Size of a batch, as it is now."""
        if self._batch_tokens is None:
            self._batch_tokens = 4096 if self.compute.device.type == "cpu" else 16384
        return self._batch_tokens

    @cached_property
    def compute(self) -> Compute:
        """Where it computes."""
        return choose(self._device)

    @cached_property
    def _model(self) -> Any:
        from transformers import AutoModelForSeq2SeqLM

        quiet_transformers()
        dtype = torch.bfloat16 if self.compute.precision == "bf16" else torch.float32
        path, action = locate(self.settings.model), "give a translation model's directory or name"
        with errors_as_one(f"model {self.settings.model!r} cannot be loaded", action, CseError):
            check_files(path)
            model = AutoModelForSeq2SeqLM.from_pretrained(path, dtype=dtype, trust_remote_code=False)
        return model.to(self.compute.device).eval()

    @cached_property
    def _normalises(self) -> bool | None:
        """Whether a Marian model's punctuation is normalised, which changes what it translates."""
        return importlib.util.find_spec("sacremoses") is not None if self._config.model_type == "marian" else None


def _check(model: str, config: Any) -> None:
    """Refuse what could not translate, before anything is loaded."""
    if not config.is_encoder_decoder:
        raise CseError(
            f"model {model!r} is a {config.model_type}, not a sequence-to-sequence model: it cannot translate",
            "use for example Helsinki-NLP/opus-mt-en-de, facebook/m2m100_418M or google-t5/t5-small",
        )
    if not (Path(locate(model)) / "tokenizer.json").is_file() and importlib.util.find_spec("sentencepiece") is None:
        raise CseError(
            f"the tokenizer of model {model!r} needs the package sentencepiece, which is not installed",
            "pip install 'cse-registry[translate]'",
        )


class Workers:
    """Translates in one spawned process a device: windows of sentences go out, batches of translations come back.

    A worker that dies is replaced once for each window; what it had sent back is kept.

    Args:
        translator: What each of them does; its model is not loaded in this process.
        devices: Where, one process each.
    """

    def __init__(self, translator: Translator, devices: Sequence[str]) -> None:
        self.identity = translator.identity
        self._arguments = (translator.settings, translator.asked_batch_tokens, len(devices))
        self._devices = devices

    def translate(self, windows: Iterable[Sequence[str]]) -> Generator[Batch, None, None]:
        """Yield translations as they come, in no order.

        Raises:
            CseError: What a worker raised.
            RunFailedError: Two workers died over the same sentences.
        """
        source = iter(windows)
        first = list(islice(source, len(self._devices)))
        queue = chain(first, source)
        workers = dict(self._start(device) for device in self._devices[: len(first)])
        try:
            while workers:
                ready = wait(list(workers))
                for connection in [each for each in workers if each in ready]:
                    worker = workers[connection]
                    try:
                        answer = connection.recv()
                    except (EOFError, OSError):
                        del workers[connection]
                        workers.update([self._start(worker.device, died=worker)])
                        continue
                    if isinstance(answer, CseError):
                        raise answer
                    if answer:
                        worker.left.difference_update(sentence for sentence, _ in answer)
                        yield answer
                    elif not worker.hand_out(connection, queue):
                        workers.pop(connection).end()
        finally:
            for worker in workers.values():
                worker.end()

    def _start(self, device: str, died: _Worker | None = None) -> tuple[Connection, _Worker]:
        if died is not None:
            died.process.join()
            if died.retried:
                code = died.process.exitcode or 0
                how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
                raise RunFailedError(
                    f"two workers on {device} died, one after the other, over the same sentences; the second {how}",
                    "memory may be short: give a lower --batch-tokens or fewer --workers; what is translated is kept",
                )
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(
            target=_work, args=(theirs, device, *self._arguments), daemon=True
        )
        resource_tracker.ensure_running()  # would unblock the signal below
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # Ctrl-C is for the parent, which ends its workers
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        theirs.close()
        return ours, _Worker(process, device, set() if died is None else died.left, retried=died is not None)


@dataclass
class _Worker:
    """What the parent knows of a worker: the sentences it has not sent back, and whether another died over them."""

    process: SpawnProcess
    device: str
    left: set[str]
    retried: bool

    def hand_out(self, connection: Connection, queue: Iterator[Sequence[str]]) -> bool:
        """Answer a worker that asks for sentences; return whether there were some."""
        if not self.left:
            self.left, self.retried = set(next(queue, ())), False
        if self.left:
            with suppress(BrokenPipeError, ConnectionResetError):  # found dead when it is listened to
                connection.send(sorted(self.left))
        return bool(self.left)

    def end(self) -> None:
        """End its process."""
        self.process.kill()
        self.process.join()


def _work(connection: Connection, device: str, settings: Settings, batch_tokens: int | None, workers: int) -> None:
    """Translate what the parent sends; an empty answer asks for more."""
    if device == "cpu" and thread_setting() is None:
        torch.set_num_threads(max(1, usable_threads() // workers))
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent is gone
        try:
            translator = Translator(settings, device, batch_tokens)
            connection.send([])
            while True:
                for batch in translator.translate([connection.recv()]):
                    connection.send(batch)
                connection.send([])
        except CseError as error:
            connection.send(error)
