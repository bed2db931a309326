"""An ONNX file that computes without end, fails or returns anything but vectors ends in one error."""

import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper, save

from crowdshot import CrowdshotError, load_encoder
from crowdshot.encoders import onnx_models
from crowdshot.encoders.outside import _load

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


@pytest.fixture(autouse=True)
def fresh():
    _load.cache_clear()
    yield
    _load.cache_clear()


def constant(name, values, kind=INT, shape=None):
    return helper.make_tensor(name, kind, [len(values)] if shape is None else shape, values)


def endless():
    """Loop for as long as the input equals itself."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["go_on"]),
            helper.make_node("Identity", ["v"], ["v_on"]),
        ],
        "body",
        [helper.make_tensor_value_info(n, k, []) for n, k in (("i", INT), ("go", BOOL))]
        + [helper.make_tensor_value_info("v", FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("go_on", BOOL, []), helper.make_tensor_value_info("v_on", FLOAT, ["n", 3])],
    )
    return [helper.make_node("Loop", ["", "true", "x"], ["y"], body=body)], [constant("true", [True], BOOL, [])]


NETWORKS = {
    "endless": (endless, "within"),
    "fails": (lambda: ([helper.make_node("Reshape", ["x", "s"], ["y"])], [constant("s", [7, 11])]), "cannot be used"),
    "too large": (
        lambda: (
            [helper.make_node("Expand", ["one", "s"], ["big"]), helper.make_node("Add", ["big", "x"], ["y"])],
            [constant("one", [1.0], FLOAT), constant("s", [2**40, 2**10, 3])],
        ),
        "cannot be used|ended the process",
    ),
    "one number": (lambda: ([helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)], []), "shape"),
    "other rows": (lambda: ([helper.make_node("Concat", ["x", "x"], ["y"], axis=0)], []), "shape"),
    "not finite": (lambda: ([helper.make_node("Div", ["x", "z"], ["y"])], [constant("z", [0.0], FLOAT)]), "NaN"),
    "text": (lambda: ([helper.make_node("Cast", ["x"], ["y"], to=TensorProto.STRING)], []), "numbers"),
}


def written(path, make, kind=FLOAT):
    nodes, constants = make()
    x, y = helper.make_tensor_value_info("x", FLOAT, ["n", 3]), helper.make_tensor_value_info("y", kind, None)
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], constants), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    save(model, path)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_that_attacks(tmp_path, monkeypatch, name):
    make, keyword = NETWORKS[name]
    path = tmp_path / "a.onnx"
    written(path, make, TensorProto.STRING if name == "text" else FLOAT)
    monkeypatch.setattr(onnx_models, "SECONDS", 8)
    monkeypatch.setattr(onnx_models, "SECONDS_PER_ITEM", 0)
    with pytest.raises(CrowdshotError, match=keyword):
        load_encoder(f"onnx:{path}").embed(np.ones((4, 3), np.float32))


@pytest.mark.slow
def test_the_command_ends_with_one_message(tmp_path):
    written(tmp_path / "a.onnx", NETWORKS["fails"][0])
    (tmp_path / "f.csv").write_text("item,a,b,c\n" + "".join(f"{i},{i},1,2\n" for i in range(6)))
    rows = "".join(f"{i},{who},{'ab'[i % 2]}\n" for i in range(6) for who in "xyz")
    (tmp_path / "labels.csv").write_text("item,annotator,label\n" + rows)
    line = ["adapt", "labels.csv", "--features", "f.csv", "--encoder", "onnx:a.onnx", "--out", "out"]
    done = subprocess.run([sys.executable, "-m", "crowdshot", *line], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "a.onnx" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_network_is_started_again_after_an_input_that_ended_it(tmp_path):
    written(tmp_path / "a.onnx", lambda: ([helper.make_node("Identity", ["x"], ["y"])], []))
    encoder = load_encoder(f"onnx:{tmp_path / 'a.onnx'}")
    network = onnx_models.OnnxNetwork(tmp_path / "a.onnx", "cpu")
    network.process.process.kill()
    network.process.process.wait()
    found = network.run({"x": np.ones((4, 3), np.float32)})
    np.testing.assert_array_equal(found, encoder.embed(np.ones((4, 3), np.float32)))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux alone")
def test_the_memory_of_a_network_is_limited(tmp_path, monkeypatch):
    """The network needs 1.5 GB for a few rows, and 0.2 GB is allowed; without the limit it works."""

    def large():
        nodes = [
            helper.make_node("Shape", ["x"], ["rows"], end=1),
            helper.make_node("Concat", ["s", "rows"], ["shape"], axis=0),
            helper.make_node("Expand", ["one", "shape"], ["big"]),
            helper.make_node("ReduceMin", ["big"], ["least"], keepdims=0),
            helper.make_node("Mul", ["x", "least"], ["y"]),
        ]
        return nodes, [constant("one", [1.0], FLOAT), constant("s", [100_000_000])]

    written(tmp_path / "a.onnx", large)
    arrays = {"x": np.ones((4, 3), np.float32)}
    np.testing.assert_array_equal(onnx_models.OnnxNetwork(tmp_path / "a.onnx", "cpu").run(arrays), arrays["x"])
    monkeypatch.setattr(onnx_models, "MEMORY", 2 * 10**8)
    network = onnx_models.OnnxNetwork(tmp_path / "a.onnx", "cpu")
    with pytest.raises(CrowdshotError, match="memory") as caught:
        network.run(arrays)
    assert caught.value.where == str(tmp_path / "a.onnx")
