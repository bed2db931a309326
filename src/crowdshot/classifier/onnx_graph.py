"""Formulas as nodes of an ONNX graph, in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
Name = str
"""Of a value in the graph."""


class Graph:
    """Nodes in the order in which they were added; each method adds one and returns the name of its result."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, value: ArrayLike, dtype: Any = np.float64) -> Name:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype=dtype), name))
        return name

    def op(self, kind: str, *inputs: Name, **attributes: Any) -> Name:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def plus(self, a: Name, b: ArrayLike | Name) -> Name:
        return self.op("Add", a, self._named(b))

    def times(self, a: Name, b: ArrayLike | Name) -> Name:
        return self.op("Mul", a, self._named(b))

    def product(self, a: Name, b: ArrayLike | Name) -> Name:
        """Of matrices."""
        return self.op("MatMul", a, self._named(b))

    def squares(self, a: Name) -> Name:
        """(n, D) -> (n, 1): sums of squares."""
        return self.total(self.op("Mul", a, a), -1)

    def total(self, a: Name, axis: int, keep: bool = True) -> Name:
        return self.op("ReduceSum", a, self.constant([axis], np.int64), keepdims=int(keep))

    def softmax(self, a: Name) -> Name:
        """Over the last axis, by what every runtime has for doubles."""
        raised = self.op("Exp", self.op("Sub", a, self.op("ReduceMax", a, axes=[-1], keepdims=1)))
        return self.op("Div", raised, self.total(raised, -1))

    def normalised(self, a: Name) -> Name:
        return self.op("Div", a, self.total(a, -1))

    def _named(self, value: ArrayLike | Name) -> Name:
        return value if isinstance(value, str) else self.constant(value)

    def model(
        self, given: Name, shape: list[Any], result: Name, n_classes: int, facts: dict[str, str]
    ) -> onnx.ModelProto:
        """From ``given`` (shape, float32) to probabilities (n, K), with ``facts`` beside it."""
        out = helper.make_node("Cast", [result], ["probabilities"], to=TensorProto.FLOAT)
        graph = helper.make_graph(
            [*self.nodes, out],
            "crowdshot",
            [helper.make_tensor_value_info(given, TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["n", n_classes])],
            self.constants,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="crowdshot")
        model.ir_version = 8  # what runtimes of that opset read
        helper.set_model_props(model, facts)
        return model
