"""Encode parts of a list of sentences with one library, and report the time of each. `encoding_peers.py` starts it.

    PYTHON benchmarks/encoding_worker.py WAY MODEL DIRECTORY THREADS

DIRECTORY contains `texts.json`, the parts and other sentences for the warm-up, and `calibration/train.csv`, the same
sentences for static quantization. The first line on stdout contains the versions. Then each line on stdin is the number
of a part: its embeddings are saved as `NUMBER.npy` in the working directory, and a line of stdout contains the seconds
and the CPU seconds. It imports `cse` only for `cse`, so any other Python can run it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

Encode = Callable[[Sequence[str]], Any]


def with_cse(model: str, precision: str) -> Encode:
    """Return the encoding of `cse evaluate` and `load_model`."""
    from cse_cli.core.devices import choose
    from cse_cli.evaluation.encoder import SentenceEncoder
    from registry.encoders.saved import open_encoder

    encoder, length = open_encoder(model)
    return SentenceEncoder(encoder, choose("cpu", precision), None, length)


def with_torch(model: str, precision: str) -> Encode:
    """Return the encoding of sentence-transformers with torch."""
    return _sentence_transformer(model, "torch", {"torch_dtype": precision})


def with_onnx(model: str, precision: str, threads: int) -> Encode:
    """Return the encoding of sentence-transformers with ONNX Runtime. int8 is quantized dynamically."""
    import onnxruntime
    from sentence_transformers import export_dynamic_quantized_onnx_model

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    settings = {"provider": "CPUExecutionProvider", "session_options": options}
    made = _sentence_transformer(model, "onnx", {**settings, "export": True})
    if precision == "int8":
        made.save_pretrained("onnx")
        export_dynamic_quantized_onnx_model(made, "avx512_vnni", "onnx")
        made = _sentence_transformer("onnx", "onnx", {**settings, "file_name": "onnx/model_qint8_avx512_vnni.onnx"})
    return made


def with_openvino(model: str, precision: str, threads: int, calibration: str) -> Encode:
    """Return the encoding of sentence-transformers with OpenVINO. int8 is quantized statically."""
    from sentence_transformers import export_static_quantized_openvino_model

    settings: dict[str, Any] = {"INFERENCE_NUM_THREADS": threads}
    if precision != "int8":
        settings["INFERENCE_PRECISION_HINT"] = {"fp32": "f32", "bf16": "bf16"}[precision]
    made = _sentence_transformer(model, "openvino", {"ov_config": settings, "export": True})
    if precision == "int8":
        made.save_pretrained("openvino")
        export_static_quantized_openvino_model(made, None, "openvino", calibration, "default", "train", "sentence")
        file = "openvino/openvino_model_qint8_quantized.xml"
        made = _sentence_transformer("openvino", "openvino", {"ov_config": settings, "file_name": file})
    return made


def _sentence_transformer(model: str, backend: str, settings: dict[str, Any]) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(model, backend=backend, model_kwargs=settings, device="cpu")  # type: ignore[arg-type]


def make(way: str, model: str, threads: int, calibration: str) -> Encode:
    """Return a function that encodes sentences. `way` is a library and a precision, such as "onnx int8"."""
    library, precision = way.split()
    if library == "cse":
        return with_cse(model, precision)
    if library == "torch":
        made = with_torch(model, {"fp32": "float32", "bf16": "bfloat16"}[precision])
    elif library == "onnx":
        made = with_onnx(model, precision, threads)
    else:
        made = with_openvino(model, precision, threads, calibration)
    return made.encode  # type: ignore[attr-defined]


def main() -> None:
    """Encode the parts that stdin names."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries print to stdout
    way, model, shared, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    texts = json.loads((Path(shared) / "texts.json").read_text(encoding="utf-8"))
    encode = make(way, model, int(threads), f"{shared}/calibration")
    encode(texts["others"])
    peers = {"onnx": "onnxruntime", "openvino": "openvino"}
    used = ["torch", "transformers", *(peers[name] for name in peers if way.startswith(name))]
    used += [] if way.startswith("cse") else ["sentence-transformers"]
    answers.write(json.dumps([f"{name} {version(name)}" for name in used]) + "\n")
    for line in sys.stdin:
        began, spent = time.perf_counter(), time.process_time()
        embeddings = encode(texts["parts"][int(line)])
        took = time.perf_counter() - began, time.process_time() - spent
        np.save(f"{line.strip()}.npy", np.asarray(embeddings, dtype=np.float32))
        answers.write(json.dumps(took) + "\n")


if __name__ == "__main__":
    main()
