"""A fitted classifier as an ONNX file: what goes in is what its encoder's network takes, or the encoder's embeddings.

Networks of ours are inside: `conv4`, `mlp`, the frozen Lite0 and feature vectors as they are. Texts, mixed tables and
other people's networks are not; of these the file takes the embeddings. What goes in, and how images have to be
prepared, stands in the file's properties.
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

from crowdshot.classifier.feature_learners import Answered, FeatureFit, Pooled
from crowdshot.classifier.learner_contract import Fitted
from crowdshot.classifier.learners import AmongAll
from crowdshot.encoders.encoder import Encoder
from crowdshot.encoders.feature_input import FeatureInput
from crowdshot.encoders.image_input import ImageInput
from crowdshot.errors import CrowdshotError
from crowdshot.io.atomic import replacing
from crowdshot.model import combined, labeling_search, mixture
from crowdshot.model.feature_model import RARE, SCALES, SHARPNESS, Forecast

if TYPE_CHECKING:
    from crowdshot.classifier.crowd_classifier import CrowdClassifier


# ---- onnx graph ------------------------------------------------------------
#
# Formulas as nodes of an ONNX graph, in double precision.


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


# ---- onnx file ------------------------------------------------------------


TINY = 1e-300  # below which no logarithm is taken


def write_onnx(clf: CrowdClassifier, path: str | os.PathLike[str]) -> None:
    """One file: (n, …) float32 -> "probabilities" (n, K), in the order of ``classes_``."""
    encoder = clf.encoder_
    inside = isinstance(encoder.input, ImageInput | FeatureInput) and encoder.architecture not in (None, "outside")
    fed = encoder.input.to_dict() if inside and encoder.input is not None else {"kind": "embeddings"}
    facts = {
        "classes": json.dumps(clf.classes_.tolist()),
        "learner": clf.learner_,
        "input": json.dumps(fed),
    }
    graph = Graph()
    x = graph.op("Cast", "embeddings", to=TensorProto.DOUBLE)
    x = graph.times(graph.plus(x, -clf.shift_.double().cpu().numpy()), clf.factor_.double().cpu().numpy())
    result = graph.normalised(probabilities(clf.fit_, graph, x))
    model = graph.model("embeddings", ["n", len(clf.shift_)], result, len(clf.classes_), facts)
    if inside:
        network = _network(encoder, len(clf.shift_))
        model = compose.merge_models(network, model, [("embeddings_of_network", "embeddings")])
        onnx.helper.set_model_props(model, facts)
    onnx.checker.check_model(model)
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(model.SerializeToString())


def _network(encoder: Encoder, width: int) -> onnx.ModelProto:
    """The encoder's network, traced by torch; images come as `ImageInput` makes them, features as they are."""
    blank = None if encoder.input is None else encoder.input.blank()
    module = copy.deepcopy(encoder.module).cpu()
    if isinstance(encoder.input, FeatureInput) and encoder.input.mean:
        module = torch.nn.Sequential(_Standardised(encoder.input), module)
    module = torch.nn.Sequential(module, torch.nn.Flatten()).eval()
    buffer: Any = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this exporter is old, but the new one needs half a minute and a package more
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
    def __init__(self, fed: FeatureInput) -> None:
        super().__init__()
        self.mean, self.std = torch.tensor(fed.mean), torch.tensor(fed.std)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - self.mean) / self.std


# ---- what was learned, as formulas --------------------------------------------------------------------------------


@singledispatch
def probabilities(fit: Fitted, graph: Graph, x: Name) -> Name:
    """The graph's p(class | x), (n, K), for x (n, D)."""
    raise CrowdshotError(
        f"the classifier is fitted by {getattr(fit, 'method', type(fit).__name__)}, expected one of combined,"
        " labeling-search, features and Ours, which can be written as ONNX."
    )


@probabilities.register
def _(fit: AmongAll, graph: Graph, x: Name) -> Name:
    spreading = np.zeros((len(fit.named), fit.n_classes))
    spreading[np.arange(len(fit.named)), fit.named.cpu().numpy()] = 1
    return graph.product(probabilities(fit.fit, graph, x), spreading)


@probabilities.register
def _(fit: mixture.Fit, graph: Graph, x: Name) -> Name:
    """(8): softmax of scale (u·m - |m|²/2) + log class sizes, for u and m around the origin and whitened."""
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
    """(8) of each labeling, by inner products with the items, averaged."""
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
def _(fit: Answered, graph: Graph, x: Name) -> Name:
    """Logarithms of the answers of each set added up."""
    logs = []
    for has, question in zip(fit.has.T.numpy(), fit.questions, strict=True):
        p = graph.normalised(probabilities(question, graph, x))
        said = graph.op("Log", graph.op("Max", p, graph.constant(TINY)))
        logs.append(graph.product(said, np.stack([1 - has, has])))
    return graph.softmax(reduce(graph.plus, logs))


@probabilities.register
def _(fit: Pooled, graph: Graph, x: Name) -> Name:
    """Logarithms averaged, as `both.pool` has it; classes of size 0 are left to looks."""
    search, looks = (graph.normalised(probabilities(part, graph, x)) for part in (fit.search, fit.looks))
    weight = combined.weights(float(fit.company))[1]
    logs = [graph.op("Log", graph.op("Max", p, graph.constant(TINY))) for p in (search, looks)]
    mixed = graph.softmax(graph.plus(graph.times(logs[0], weight), graph.times(logs[1], 1 - weight)))
    if fit.search.sizes is None:
        return mixed
    kept = (fit.search.sizes != 0).double().cpu().numpy()
    among = graph.normalised(graph.times(mixed, kept))
    rest = graph.total(graph.times(looks, kept), -1)
    return graph.plus(graph.times(among, rest), graph.times(looks, 1 - kept))


def _forecast(graph: Graph, x: Name, f: Forecast) -> Name:
    """`Forecast.__call__`, term by term."""
    centred = graph.plus(x, -f.centre)
    z = graph.times(centred, f.factor)
    terms = [graph.plus(graph.times(graph.total(z, -1), 0.0), f.nothing * f.size)]  # (n, K), of no x at all
    seen = [(z, f.plain_slopes, f.plain_starts, f.plain_weights)]
    if len(f.near_slopes):
        seen.append((_near(graph, z, f.landmarks), f.near_slopes, f.near_starts, f.near_weights))
    K = len(f.mean)
    units = (np.full(K, 1 / K), np.maximum(f.mean, RARE / K))
    for phi, slopes, starts, weights in seen:
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
    """(n, D), (M, D) -> (n, M): squared distances."""
    crossed = graph.product(a, -2 * points.T)
    return graph.plus(graph.plus(crossed, (points * points).sum(1)), graph.squares(a))
