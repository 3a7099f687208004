"""ONNX files: some written here byte by byte, others by PyTorch where it is installed."""

import struct

import numpy as np
import pytest

import secsv
from secsv import onnx

RNG = np.random.default_rng(2)


def varint(number):
    number &= (1 << 64) - 1
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number, value):
    """A field of a message: an integer, or bytes or text."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def tensor(name, array):
    kinds = {"float32": 1, "int64": 7, "float64": 11}
    dims = b"".join(field(1, size) for size in array.shape)
    return dims + field(2, kinds[str(array.dtype)]) + field(8, name) + field(9, array.tobytes())


def attribute(name, value):
    if isinstance(value, int):
        return field(1, name) + field(3, value) + field(20, 2)
    if isinstance(value, float):
        return field(1, name) + varint(2 << 3 | 5) + struct.pack("<f", value) + field(20, 1)
    return field(1, name) + b"".join(field(8, one) for one in value) + field(20, 7)


def node(kind, inputs, output, **attributes):
    parts = b"".join(field(1, name) for name in inputs) + field(2, output) + field(3, f"{kind}-{output}") + field(4, kind)
    return parts + b"".join(field(5, attribute(name, value)) for name, value in attributes.items())


def value(name, shape):
    dims = b"".join(field(1, field(2, "batch") if size is None else field(1, size)) for size in shape)
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, dims)))


def file(path, nodes, weights, shape, output="out"):
    graph = b"".join(field(1, one) for one in nodes) + b"".join(field(5, tensor(name, array)) for name, array in weights.items())
    path.write_bytes(field(1, 8) + field(7, graph + field(11, value("x", [None, *shape])) + field(12, value(output, [None, 3]))))
    return path


def test_a_network_is_read_with_its_weights(tmp_path):
    weights = {
        "a": RNG.normal(size=(6, 8)).astype("f4"),
        "b": RNG.normal(size=8).astype("f4"),
        "c": RNG.normal(size=(8, 5)),
        "d": RNG.normal(size=5),
        "e": RNG.normal(size=(3, 5)).astype("f4"),
        "shape": np.array([0, -1]),
    }
    nodes = [
        node("Reshape", ["x", "shape"], "flat"),
        node("Gemm", ["flat", "a", "b"], "one"),
        node("LeakyRelu", ["one"], "two", alpha=0.1),
        node("MatMul", ["two", "c"], "three"),
        node("Add", ["d", "three"], "four"),
        node("Tanh", ["four"], "five"),
        node("Gemm", ["five", "e"], "out", transB=1),
    ]
    path = file(tmp_path / "model.onnx", nodes, weights, [2, 3])
    model, arrays = onnx.read(path)
    assert model == secsv.Model.from_onnx(path) and sorted(arrays) == ["a", "b", "c", "d", "e"]
    x = RNG.normal(size=(50, 2, 3)).astype("f4")
    one = x.reshape(50, 6).astype(float) @ weights["a"].astype(float) + weights["b"]
    four = np.where(one > 0, one, 0.1 * one) @ weights["c"] + weights["d"]
    expected = np.tanh(four) @ weights["e"].astype(float).T
    assert np.abs(model.scores(arrays, x) - expected).max() < 1e-12


def test_what_has_no_layer_is_refused_by_operator_and_node(tmp_path):
    weights = {"w": RNG.normal(size=(3, 6)).astype("f4")}
    nodes = [node("Erf", ["x"], "one"), node("HardSwish", ["one"], "two"), node("Erf", ["two"], "three"), node("Gemm", ["three", "w"], "out", transB=1)]
    path = file(tmp_path / "model.onnx", nodes, weights, [6])
    with pytest.raises(secsv.Unsupported) as caught:
        secsv.Model.from_onnx(path)
    assert caught.value.operators == {"Erf": ["Erf-one", "Erf-three"], "HardSwish": ["HardSwish-two"]}
    assert caught.value.file == str(path)


@pytest.mark.parametrize("data", [b"", b"\x08\x08", b"no model at all", field(7, b"\x0a\xff\xff\xff\x7f"), field(7, b"\xff" * 20)])
def test_what_is_no_model_is_refused(tmp_path, data):
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    with pytest.raises(secsv.InputError):
        secsv.Model.from_onnx(path)


def test_sums_that_are_no_biases_are_refused(tmp_path):
    """Attack: a constant that is added to scores, and would be taken for a bias of another layer or left out."""
    weights = {"w": RNG.normal(size=(3, 6)).astype("f4"), "v": RNG.normal(size=3).astype("f4"), "u": RNG.normal(size=3).astype("f4")}
    twice = [node("MatMul", ["x", "t"], "one"), node("Add", ["one", "v"], "two"), node("Add", ["one", "u"], "three"), node("Add", ["two", "three"], "out")]
    weights["t"] = RNG.normal(size=(6, 3)).astype("f4")
    with pytest.raises(secsv.Unsupported, match="sum with a constant"):
        secsv.Model.from_onnx(file(tmp_path / "twice.onnx", twice, weights, [6]))
    behind = [node("Gemm", ["x", "w", "v"], "one", transB=1), node("Add", ["one", "u"], "out")]
    with pytest.raises(secsv.Unsupported, match="sum with a constant"):
        secsv.Model.from_onnx(file(tmp_path / "behind.onnx", behind, weights, [6]))


@pytest.mark.parametrize("name", ["blitz", "mlp", "lenet", "separable", "others", "residual", "texts", "square", "tied", "one score"])
def test_files_of_pytorch_have_the_scores_of_the_module(tmp_path, name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: its files are not tested")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed: PyTorch cannot write files")
    from test_torch import SUPPORTED, example

    module, shape = SUPPORTED[name]
    module.eval()
    path = tmp_path / "model.onnx"
    torch.onnx.export(module, (example(shape),), str(path), dynamo=True, verbose=False)
    model, arrays = onnx.read(path)
    x = torch.randint(0, 20, (40, 11)) if shape == "words" else torch.randn(40, *shape)
    with torch.no_grad():
        scores = module(x).double().numpy()
    module.train()
    scores = np.exp(scores) if name == "square" else scores
    found = model.scores(arrays, x)
    assert np.abs(found - scores.reshape(found.shape)).max() <= 1e-4 * max(1, np.abs(scores).max())
