"""A program of `torch.export` as the bytes of an ONNX or a PT2 file."""

from __future__ import annotations

import importlib
import io
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.export import ExportedProgram

from fewshift.errors import MissingExtra

INPUT = "images"
BATCH = "batch"
DESCRIPTION = "fewshift.json"  # the metadata inside a PT2 file


def check_onnx_is_installed() -> None:
    """Answer a missing part of the extra before any work is done."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        try:
            importlib.import_module(name)
        except ImportError:  # noqa: PERF203
            raise MissingExtra(name, "export") from None


def onnx_bytes(program: ExportedProgram, output: str, metadata: Mapping[str, Any]) -> bytes:
    """One ONNX file with its weights inside, its axes named and `metadata` as JSON texts."""
    with _quiet_exporter():
        made = torch.onnx.export(
            program,
            dynamo=True,
            verbose=False,
            input_names=[INPUT],
            output_names=[output],
            external_data=False,
        )
    assert made is not None
    model = made.model_proto
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = BATCH
        del value.metadata_props[:]
    for thing in (*model.graph.node, *model.graph.initializer):
        del thing.metadata_props[:]  # names and traces of the code that made them
    del model.graph.value_info[:]  # inferred shapes, in terms of the batch's old name
    del model.metadata_props[:]
    for key, value in metadata.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, value if isinstance(value, str) else json.dumps(value)
    content: bytes = model.SerializeToString()
    return content


def run_onnx(content: bytes, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, way)
    """What onnxruntime makes of these images, on the CPU."""
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {INPUT: np.ascontiguousarray(images.numpy())})
    return torch.from_numpy(np.asarray(found))


def torch_bytes(program: ExportedProgram, metadata: Mapping[str, Any]) -> bytes:
    """A PT2 archive as `torch.export.save` writes it, with `metadata` as a JSON file in it.

    Its weights are plain bytes and its graph is JSON, but torch also stores the example input, as a pickle.
    So Fewshift writes such files and reads none.
    """
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={DESCRIPTION: json.dumps(dict(metadata), indent=1)})
    return buffer.getvalue()


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Without what torch's exporter says of packages that are not needed and of its own older parts."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r".*LeafSpec.*", category=FutureWarning)
            yield
    finally:
        log.setLevel(level)
