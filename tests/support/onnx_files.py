"""Small ONNX networks whose outputs are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, BYTES, LONG = TensorProto.FLOAT, TensorProto.UINT8, TensorProto.INT64


def write(
    path: Path,
    outputs: Mapping[str, Any],
    axes: Sequence[int | str] = (1, 3, 32, 32),
    kind: int = FLOAT,
    sized: str = "",
    notes: Mapping[str, str] | None = None,
) -> Path:
    """Whatever the picture is, it gives these outputs (arrays); `sized` names a second input of (B, 2)."""
    constants = [numpy_helper.from_array(np.asarray(value, np.float32), f"{name}_") for name, value in outputs.items()]
    nodes = [helper.make_node("Identity", [f"{name}_"], [name]) for name in outputs]
    inputs = [helper.make_tensor_value_info("images", kind, list(axes))]
    if sized:
        inputs.append(helper.make_tensor_value_info(sized, LONG, ["batch", 2]))
    told = [helper.make_tensor_value_info(n, FLOAT, list(np.shape(v))) for n, v in outputs.items()]
    return _save(path, helper.make_graph(nodes, "constant", inputs, told, constants), notes or {})


def write_map(path: Path, channels: int = 5, axes: Sequence[int | str] = ("batch", 3, 32, 32)) -> Path:
    """A convolution of cells of 8 pixels: (B, channels, 4, 4), of seeded weights."""
    weights = np.random.default_rng(0).normal(size=(channels, 3, 8, 8)).astype(np.float32) / 10
    node = helper.make_node("Conv", ["images", "weights"], ["maps"], strides=[8, 8], kernel_shape=[8, 8])
    inputs = [helper.make_tensor_value_info("images", FLOAT, list(axes))]
    told = [helper.make_tensor_value_info("maps", FLOAT, [axes[0], channels, "h", "w"])]
    graph = helper.make_graph([node], "conv", inputs, told, [numpy_helper.from_array(weights, "weights")])
    return _save(path, graph, {})


def _save(path: Path, graph: Any, notes: Mapping[str, str]) -> Path:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    helper.set_model_props(model, dict(notes))
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def write_classifier(path: Path, side: int = 224) -> Path:
    """Two classes, whose odds are the means of the first two colours, 100 to 1: images are (B, side, side, 3)."""
    nodes = [
        helper.make_node("ReduceMean", ["images"], ["means"], axes=[1, 2], keepdims=0),
        helper.make_node("Gather", ["means", "two"], ["chosen"], axis=1),
        helper.make_node("Div", ["chosen", "hundred"], ["odds"]),
        helper.make_node("Softmax", ["odds"], ["chances"], axis=1),
    ]
    inputs = [helper.make_tensor_value_info("images", FLOAT, ["batch", side, side, 3])]
    told = [helper.make_tensor_value_info("chances", FLOAT, ["batch", 2])]
    constants = [numpy_helper.from_array(np.array([0, 1], np.int64), "two"),
                 numpy_helper.from_array(np.array(100, np.float32), "hundred")]  # fmt: skip
    return _save(path, helper.make_graph(nodes, "classes", inputs, told, constants), {})
