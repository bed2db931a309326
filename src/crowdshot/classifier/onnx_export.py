"""Export a fitted classifier to an ONNX file.

The file contains the encoder's network if it is one of crowdshot's (`conv4`, `mlp`, the frozen Lite0, or feature
vectors). For texts, mixed tables and networks of other libraries, its input is the embeddings. The properties of the
file describe the input and how images must be prepared.
"""

from __future__ import annotations

import copy
import io
import json
import os
import warnings
from functools import reduce, singledispatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import torch
from numpy.typing import ArrayLike
from onnx import TensorProto, compose, helper, numpy_helper

from crowdshot.classifier.feature_learners import CombinedFit, FeatureFit, MultiLabelFit
from crowdshot.classifier.learner_contract import FittedModel
from crowdshot.classifier.learners import AllClassesFit
from crowdshot.encoders.encoder import Encoder
from crowdshot.encoders.feature_input import FeatureInput
from crowdshot.encoders.image_input import ImageInput
from crowdshot.errors import CrowdshotError
from crowdshot.io.atomic import replacing
from crowdshot.model import combined, labeling_search, mixture
from crowdshot.model.feature_model import RARE, SCALES, SHARPNESS, Forecast

if TYPE_CHECKING:
    from crowdshot.classifier.crowd_classifier import CrowdClassifier


# ---- building a graph; formulas are in double precision ----

OPSET = 17
Name = str
"""The name of a value in the graph."""


class Graph:
    """A list of nodes. Each method appends nodes and returns the name of the result."""

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
        """Multiply matrices."""
        return self.op("MatMul", a, self._named(b))

    def squares(self, a: Name) -> Name:
        """Sum squares over the last axis: (n, D) -> (n, 1)."""
        return self.total(self.op("Mul", a, a), -1)

    def total(self, a: Name, axis: int, keep: bool = True) -> Name:
        return self.op("ReduceSum", a, self.constant([axis], np.int64), keepdims=int(keep))

    def softmax(self, a: Name) -> Name:
        """Apply softmax to the last axis, with operators that every runtime supports for doubles."""
        raised = self.op("Exp", self.op("Sub", a, self.op("ReduceMax", a, axes=[-1], keepdims=1)))
        return self.op("Div", raised, self.total(raised, -1))

    def normalised(self, a: Name) -> Name:
        return self.op("Div", a, self.total(a, -1))

    def _named(self, value: ArrayLike | Name) -> Name:
        return value if isinstance(value, str) else self.constant(value)

    def model(
        self, input_name: Name, shape: list[Any], result: Name, n_classes: int, facts: dict[str, str]
    ) -> onnx.ModelProto:
        """Return the model from ``input_name`` (float32) to probabilities (n, K); ``facts`` are its properties."""
        out = helper.make_node("Cast", [result], ["probabilities"], to=TensorProto.FLOAT)
        graph = helper.make_graph(
            [*self.nodes, out],
            "crowdshot",
            [helper.make_tensor_value_info(input_name, TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["n", n_classes])],
            self.constants,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="crowdshot")
        model.ir_version = 8  # supported by runtimes of this opset
        helper.set_model_props(model, facts)
        return model


# ---- writing the file ----

TINY = 1e-300  # smallest probability whose logarithm is taken


def write_onnx(clf: CrowdClassifier, path: str | os.PathLike[str]) -> None:
    """Write a model from (n, …) float32 to "probabilities" (n, K), in the order of ``classes_``."""
    encoder = clf.encoder_
    inside = isinstance(encoder.input, ImageInput | FeatureInput) and encoder.architecture not in (None, "outside")
    spec = encoder.input.to_dict() if inside and encoder.input is not None else {"kind": "embeddings"}
    facts = {
        "classes": json.dumps(clf.classes_.tolist()),
        "learner": clf.learner_,
        "input": json.dumps(spec),
    }
    graph = Graph()
    x = graph.op("Cast", "embeddings", to=TensorProto.DOUBLE)
    x = graph.times(graph.plus(x, -clf._shift.double().cpu().numpy()), clf._factor.double().cpu().numpy())
    result = graph.normalised(probabilities(clf._model, graph, x))
    if clf.temperature_ != 1:
        result = graph.normalised(graph.op("Pow", result, graph.constant(1 / clf.temperature_)))
    model = graph.model("embeddings", ["n", len(clf._shift)], result, len(clf.classes_), facts)
    if inside:
        network = _network(encoder, len(clf._shift))
        model = compose.merge_models(network, model, [("embeddings_of_network", "embeddings")])
        onnx.helper.set_model_props(model, facts)
    onnx.checker.check_model(model)
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(model.SerializeToString())


def _network(encoder: Encoder, width: int) -> onnx.ModelProto:
    """Trace the encoder's network with torch. Its input is prepared images (`ImageInput`) or raw features."""
    blank = None if encoder.input is None else encoder.input.blank()
    module = copy.deepcopy(encoder.module).cpu()
    if isinstance(encoder.input, FeatureInput) and encoder.input.mean:
        module = torch.nn.Sequential(_Standardised(encoder.input), module)
    module = torch.nn.Sequential(module, torch.nn.Flatten()).eval()
    buffer: Any = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the new exporter takes half a minute and needs another package
        torch.onnx.export(
            module,
            (torch.zeros(1, width) if blank is None else blank,),
            buffer,
            input_names=["items"],
            output_names=["embeddings_of_network"],
            dynamic_axes={"items": {0: "n"}, "embeddings_of_network": {0: "n"}},
            opset_version=OPSET,
            dynamo=False,
        )
    return onnx.load_from_string(buffer.getvalue())


class _Standardised(torch.nn.Module):
    def __init__(self, spec: FeatureInput) -> None:
        super().__init__()
        self.mean, self.std = torch.tensor(spec.mean), torch.tensor(spec.std)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - self.mean) / self.std


# ---- fitted models as graphs ----


@singledispatch
def probabilities(fit: FittedModel, graph: Graph, x: Name) -> Name:
    """Add p(class | x) of a fitted model, (n, K), to the graph, for x (n, D)."""
    raise CrowdshotError(
        f"The method {getattr(fit, 'method', type(fit).__name__)} cannot be exported to ONNX",
        argument="method",
        found=getattr(fit, "method", type(fit).__name__),
        expected="combined, labeling-search, features or Ours",
    )


@probabilities.register
def _(fit: AllClassesFit, graph: Graph, x: Name) -> Name:
    spreading = np.zeros((len(fit.named), fit.n_classes))
    spreading[np.arange(len(fit.named)), fit.named.cpu().numpy()] = 1
    return graph.product(probabilities(fit.fit, graph, x), spreading)


@probabilities.register
def _(fit: mixture.Fit, graph: Graph, x: Name) -> Name:
    """Eq (8): softmax of scale (u·m - |m|²/2) + log class sizes, with whitened u and m relative to the origin."""
    covariance = None if fit.covariance is None else fit.covariance.double()
    whitening = mixture.whiten(torch.eye(fit.means.shape[-1], dtype=torch.float64), covariance, fit.covariance_kind)
    origin = fit.origin.double().cpu().numpy().reshape(1, -1)
    whiten = whitening.cpu().numpy()
    means = (fit.means.double().cpu().numpy() - origin) @ whiten
    scale = fit.scale.double().cpu().numpy()
    u = graph.product(graph.plus(x, -origin), whiten)
    constant = -0.5 * scale * (means * means).sum(1) + fit.log_class_probs.double().cpu().numpy()
    return graph.softmax(graph.plus(graph.product(u, scale * means.T), constant))


@probabilities.register
def _(fit: labeling_search.Posterior, graph: Graph, x: Name) -> Name:
    """Average eq (8) over labelings, computed from inner products with the items."""
    u, share, prior = (part.double().cpu().numpy() for part in fit.terms())
    centre, unit, scale = (part.double().cpu().numpy() for part in (fit.centre, fit.unit, fit.scale))
    near = graph.product(graph.times(graph.plus(x, -centre), 1 / unit), u.T)
    each = graph.softmax(graph.plus(graph.product(near, scale * share), prior[:, None, :]))  # (M, n, K)
    weights = fit.log_weights.double().exp().cpu().numpy()[:, None, None]
    return graph.total(graph.times(each, weights), 0, keep=False)


@probabilities.register
def _(fit: FeatureFit, graph: Graph, x: Name) -> Name:
    return _forecast(graph, x, fit.forecast)


@probabilities.register
def _(fit: MultiLabelFit, graph: Graph, x: Name) -> Name:
    """Add up the logarithms of the answers of each set."""
    logs = []
    for has, question in zip(fit.has.T.numpy(), fit.questions, strict=True):
        p = graph.normalised(probabilities(question, graph, x))
        log_p = graph.op("Log", graph.op("Max", p, graph.constant(TINY)))
        logs.append(graph.product(log_p, np.stack([1 - has, has])))
    return graph.softmax(reduce(graph.plus, logs))


@probabilities.register
def _(fit: CombinedFit, graph: Graph, x: Name) -> Name:
    """Average logarithms as `combined.pool` does; the feature model alone decides about classes of size 0."""
    search, features = (graph.normalised(probabilities(part, graph, x)) for part in (fit.search, fit.looks))
    weight = combined.weights(float(fit.company))[1]
    logs = [graph.op("Log", graph.op("Max", p, graph.constant(TINY))) for p in (search, features)]
    mixed = graph.softmax(graph.plus(graph.times(logs[0], weight), graph.times(logs[1], 1 - weight)))
    if fit.search.sizes is None:
        return mixed
    kept = (fit.search.sizes != 0).double().cpu().numpy()
    among = graph.normalised(graph.times(mixed, kept))
    rest = graph.total(graph.times(features, kept), -1)
    return graph.plus(graph.times(among, rest), graph.times(features, 1 - kept))


def _forecast(graph: Graph, x: Name, f: Forecast) -> Name:
    """Add `Forecast.__call__` to the graph, term by term."""
    centred = graph.plus(x, -f.centre)
    z = graph.times(centred, f.factor)
    terms = [graph.plus(graph.times(graph.total(z, -1), 0.0), f.nothing * f.size)]  # (n, K), the constant classifier
    linear = [(z, f.plain_slopes, f.plain_starts, f.plain_weights)]
    if len(f.near_slopes):
        linear.append((_near(graph, z, f.landmarks), f.near_slopes, f.near_starts, f.near_weights))
    K = len(f.mean)
    units = (np.full(K, 1 / K), np.maximum(f.mean, RARE / K))
    for phi, slopes, starts, weights in linear:
        for slope, start, weight in zip(slopes, starts, weights, strict=True):
            above = graph.plus(graph.product(phi, slope), start - f.mean)
            for link, place in np.argwhere(weight):
                score = graph.plus(graph.times(above, SHARPNESS[place] / units[link]), np.log(f.size))
                terms.append(graph.times(graph.softmax(score), weight[link, place]))
    changing = np.count_nonzero(f.factor) or 1
    for u, means, weights in (
        (graph.times(centred, 1 / f.unit), f.means[0], f.mean_weights[0]),
        (graph.times(z, 1 / np.sqrt(changing)), f.means[1], f.mean_weights[1]),
    ):
        squared = _squared(graph, u, means)
        for scale, weight in zip(SCALES, weights, strict=True):
            score = graph.plus(graph.times(squared, -0.5 * scale), np.log(f.size))
            terms.append(graph.times(graph.softmax(score), weight))
    return graph.op("Sum", *terms)


def _near(graph: Graph, z: Name, landmarks: Any) -> Name:
    squared = graph.op("Max", _squared(graph, z, landmarks), graph.constant(0.0))
    return graph.op("Exp", graph.times(squared, -0.5 / max(1, landmarks.shape[1])))


def _squared(graph: Graph, a: Name, points: Any) -> Name:
    """Return squared distances of (n, D) and (M, D): (n, M)."""
    crossed = graph.product(a, -2 * points.T)
    return graph.plus(graph.plus(crossed, (points * points).sum(1)), graph.squares(a))
