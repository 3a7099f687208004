"""Models in ONNX files: graph and weights of the same file, read without any other package.

>>> model, arrays = secsv.onnx.read("model.onnx")
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ._errors import InputError, wrong
from ._graph import Graph, Value
from ._model import Model
from ._protobuf import Message

__all__ = ["read"]

#: Element types by their numbers in the format.
TYPES = {1: "<f4", 2: "u1", 3: "i1", 6: "<i4", 7: "<i8", 9: "?", 10: "<f2", 11: "<f8"}
#: Activations without settings.
PLAIN = {"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh"}
#: Operators that hand on what they take, when testing.
NOTHING = {"Identity", "Dropout"}


class Refused(Exception):
    """An operator that there is no layer for."""


def read(path: str | os.PathLike[str]) -> tuple[Model, dict[str, np.ndarray]]:
    """The layers and the weights of a file. Weights have the names that the file gives them, and lie as layers take them; record every
    round's models by reading every file so.

    A file whose exporter folded batch norm into convolutions is another model than the one whose weights were averaged: export in training
    mode, or read the model off the module.
    """
    file = Path(path)
    if not file.exists():
        raise wrong("file", "this file", "none", file)
    graph = Message(file.read_bytes()).message(7)
    if not graph.fields.get(1):
        raise wrong("graph", "an ONNX model with nodes", "none", file)
    try:
        walk = Walk(graph, file)
        return walk.model(), walk.arrays()
    except InputError as error:
        if error.file is None:
            error.file = str(file)
        raise


class Walk:
    """One pass over a graph, node by node."""

    def __init__(self, graph: Message, file: Path) -> None:
        self.constants: dict[str, Any] = {}
        for tensor in graph.messages(5):
            self.constants[tensor.text(8)] = array_of(tensor, file)
        inputs = [value for value in graph.messages(11) if value.text(1) not in self.constants]
        if len(inputs) != 1:
            raise wrong("inputs", "one input", ", ".join(value.text(1) for value in inputs) or "none", file)
        shape = shape_of(inputs[0], file)
        self.graph = Graph(shape)
        self.values: dict[str, Value] = {inputs[0].text(1): self.graph.sample}
        #: Tensors that layers take, by the name that they have there.
        self.weights: dict[str, np.ndarray] = {}
        nodes = graph.messages(1)
        self.uses: dict[str, int] = {}
        for node in nodes:
            for name in node.texts(1):
                self.uses[name] = self.uses.get(name, 0) + 1
        outputs = [value.text(1) for value in graph.messages(12)]
        for node in nodes:
            self.visit(node, outputs)
        self.outputs = outputs

    def model(self) -> Model:
        """The layers, if all are known."""
        self.graph.refuse_missing("model")
        if len(self.outputs) != 1 or self.outputs[0] not in self.values:
            raise wrong("outputs", "one output that follows from the input", ", ".join(self.outputs))
        output = self.values[self.outputs[0]]
        output = self.graph.reshaped(output, output.shape)
        if len(output.shape) != 1:
            raise wrong("model", "one score for each class as output", f"shape {list(output.shape)} for each sample")
        return self.graph.model(output, max(output.shape[0], 2), layout="pytorch")

    def arrays(self) -> dict[str, np.ndarray]:
        """The weights."""
        return dict(self.weights)

    def visit(self, node: Message, outputs: Sequence[str]) -> None:
        kind, names, made = node.text(4), node.texts(1), node.texts(2)
        if kind == "Constant":
            attributes = attributes_of(node)
            self.constants[made[0]] = attributes.get("value", attributes.get("value_ints", attributes.get("value_float")))
            return
        if names and all(name in self.constants for name in names if name):
            if kind == "Identity":
                self.constants[made[0]] = self.constants[names[0]]
                return
            self.graph.unsupported(f"weights that are computed from others: {kind}", node.text(3), ())
            return
        first = self.values.get(names[0]) if names else None
        try:
            rule = RULES.get(kind)
            if rule is None:
                raise Refused(kind)
            step = Step(self, node, names, attributes_of(node), made[0] in outputs)
            if first is None and kind not in ("Gather", "Add", "Concat"):
                raise Refused(f"{kind} of a constant")
            self.values[made[0]] = rule(step, first)  # type: ignore[arg-type]
        except Refused as refused:
            shape = first.shape if first is not None else (1,)
            self.values[made[0]] = self.graph.unsupported(str(refused), node.text(3), shape)


class Step:
    """A node, with what its rule asks of it."""

    def __init__(self, walk: Walk, node: Message, names: list[str], attributes: dict[str, Any], is_last: bool) -> None:
        self.walk, self.node, self.names, self.attributes, self.is_last = walk, node, names, attributes, is_last
        self.kind = node.text(4)

    def add(self, kind: str, inputs: Any, shape: Sequence[int], /, **keys: Any) -> Value:
        return self.walk.graph.add(kind, inputs, shape, **keys)

    def value(self, place: int) -> Value | None:
        return self.walk.values.get(self.names[place]) if place < len(self.names) else None

    def constant(self, place: int) -> Any:
        """A constant among the inputs; None where it is left out."""
        name = self.names[place] if place < len(self.names) else ""
        return self.walk.constants.get(name) if name else None

    def weight(self, place: int, turned: bool = False) -> str | None:
        """The name of a tensor among the inputs; None where it is left out. ``turned`` ones are kept with rows for columns."""
        name = self.names[place] if place < len(self.names) else ""
        if not name:
            return None
        if name not in self.walk.constants:
            raise Refused(f"{self.kind} of weights that are no constants")
        array = np.asarray(self.walk.constants[name])
        array = array.T if turned else array
        known = self.walk.weights.get(name)
        if known is not None and not np.array_equal(known, array):
            name = f"{name}.turned"
        self.walk.weights[name] = np.ascontiguousarray(array)
        return name

    def same(self, key: str, usual: int, count: int) -> int:
        """One number for all directions."""
        sizes = self.attributes.get(key) or [usual] * count
        if len(set(sizes)) > 1:
            raise Refused(f"{self.kind} with {key} {list(sizes)}")
        return int(sizes[0])

    def padding(self, count: int) -> int:
        """Padding, the same on every side."""
        how = self.attributes.get("auto_pad", b"NOTSET")
        if how not in (b"NOTSET", b"VALID"):
            raise Refused(f"{self.kind} with auto_pad {how.decode()}")
        return 0 if how == b"VALID" else self.same("pads", 0, 2 * count)


def convolution(step: Step, first: Value) -> Value:
    kernel = np.shape(step.constant(1))
    count = len(kernel) - 2
    if count not in (1, 2):
        raise Refused(f"Conv in {count} dimensions")
    stride, dilation, padding = step.same("strides", 1, count), step.same("dilations", 1, count), step.padding(count)
    groups = step.attributes.get("group", 1)
    sizes = [(size + 2 * padding - dilation * (length - 1) - 1) // stride + 1 for size, length in zip(first.shape[1:], kernel[2:])]
    said = {"stride": stride if stride != 1 else None, "padding": padding or None, "dilation": dilation if dilation != 1 else None}
    weight, bias = step.weight(1), step.weight(2)
    return step.add(f"conv{count}d", first, (kernel[0], *sizes), weight=weight, bias=bias, **said, groups=groups if groups != 1 else None)


def pool(which: str) -> Callable[[Step, Value], Value]:
    def add(step: Step, first: Value) -> Value:
        count = len(first.shape) - 1
        if count not in (1, 2):
            raise Refused(f"{step.kind} in {count} dimensions")
        size, stride, padding = step.same("kernel_shape", 1, count), step.same("strides", 1, count), step.padding(count)
        if step.same("dilations", 1, count) != 1:
            raise Refused(f"{step.kind} with dilations")
        if which == "avg" and padding and not step.attributes.get("count_include_pad", 0):
            raise Refused(f"{step.kind} that does not count padded zeros")
        over = [(length + 2 * padding - size) % stride for length in first.shape[1:]]
        if step.attributes.get("ceil_mode", 0) and any(over):
            raise Refused(f"{step.kind} with windows over the edge (ceil_mode)")
        sizes = [(length + 2 * padding - size) // stride + 1 for length in first.shape[1:]]
        said = {"size": size, "stride": stride if stride != size else None, "padding": padding or None}
        return step.add(f"{which}-pool{count}d", first, (first.shape[0], *sizes), **said)

    return add


def whole(which: str) -> Callable[[Step, Value], Value]:
    def add(step: Step, first: Value) -> Value:
        value = step.add(f"global-{which}-pool", first, first.shape[:1])
        return step.walk.graph.reshaped(value, (first.shape[0], *[1] * (len(first.shape) - 1)))

    return add


def reduced(which: str) -> Callable[[Step, Value], Value]:
    def add(step: Step, first: Value) -> Value:
        axes = step.attributes.get("axes")
        axes = step.constant(1) if axes is None else axes
        rank = len(first.shape) + 1
        found = sorted(int(axis) % rank for axis in np.ravel(axes if axes is not None else []))
        if found != list(range(2, rank)) or rank < 3:
            raise Refused(f"{step.kind} over axes {found}")
        keeps = step.attributes.get("keepdims", 1)
        value = step.add(f"global-{which}-pool", first, first.shape[:1])
        return step.walk.graph.reshaped(value, (first.shape[0], *[1] * (rank - 2)) if keeps else first.shape[:1])

    return add


def gemm(step: Step, first: Value) -> Value:
    found = step.attributes
    if found.get("alpha", 1.0) != 1.0 or found.get("beta", 1.0) != 1.0 or found.get("transA", 0):
        raise Refused("Gemm with factors")
    weight = step.weight(1, turned=not found.get("transB", 0))
    outputs = step.walk.weights[weight].shape[0]  # type: ignore[index]
    bias = step.constant(2)
    if bias is not None and np.shape(bias) != (outputs,):
        raise Refused(f"Gemm with a bias of shape {list(np.shape(bias))}")
    return step.add("linear", first, (outputs,), weight=weight, bias=step.weight(2))


def product(step: Step, first: Value) -> Value:
    if step.constant(1) is None or np.ndim(step.constant(1)) != 2:
        raise Refused("product of values")
    weight = step.weight(1, turned=True)
    outputs = step.walk.weights[weight].shape[0]  # type: ignore[index]
    return step.add("linear", first, (*first.shape[:-1], outputs), weight=weight)


def sum_(step: Step, first: Value | None) -> Value:
    one, other = step.value(0), step.value(1)
    if one is not None and other is not None:
        if one.shape != other.shape:
            raise Refused("sum of values of different shapes")
        return step.add("add", [one, other], one.shape)
    value, place = (one, 1) if one is not None else (other, 0)
    assert value is not None
    name = step.names[0 if place else 1]
    layer = step.walk.graph.layers[value.place][0] if value.place is not None else {}
    is_bias = layer.get("kind") == "linear" and "bias" not in layer and np.shape(step.constant(place)) == value.shape[-1:]
    if not is_bias or step.walk.uses.get(name) != 1:
        raise Refused("sum with a constant")
    layer["bias"] = step.weight(place)
    return value


def square(step: Step, first: Value) -> Value:
    if step.kind == "Mul" and step.names[0] == step.names[1]:
        return step.add("square", first, first.shape)
    if step.kind == "Pow" and step.constant(1) is not None and np.all(np.asarray(step.constant(1)) == 2):
        return step.add("square", first, first.shape)
    for value, other in ((step.value(0), step.value(1)), (step.value(1), step.value(0))):
        if step.kind == "Mul" and value is not None and other is not None and is_sigmoid_of(step, other, value):
            return step.add("silu", value, value.shape)
    raise Refused("product of values" if step.kind == "Mul" else "power")


def is_sigmoid_of(step: Step, value: Value, of: Value) -> bool:
    """Whether a value is the sigmoid of another."""
    if value.place is None:
        return False
    layer, inputs = step.walk.graph.layers[value.place]
    return layer["kind"] == "sigmoid" and inputs[0] is of


def batch_norm(step: Step, first: Value) -> Value:
    epsilon = step.attributes.get("epsilon", 1e-5)
    keys = {"weight": step.weight(1), "bias": step.weight(2), "mean": step.weight(3), "variance": step.weight(4)}
    return step.add("batch-norm", first, first.shape, **keys, epsilon=shortest(epsilon))


def layer_norm(step: Step, first: Value) -> Value:
    shape = np.shape(step.constant(1))
    axis = step.attributes.get("axis", -1) % (len(first.shape) + 1)
    if first.shape[axis - 1 :] != shape:
        raise Refused(f"LayerNormalization from axis {axis}")
    return step.add("layer-norm", first, first.shape, weight=step.weight(1), bias=step.weight(2), epsilon=shortest(step.attributes.get("epsilon", 1e-5)))


def flatten(step: Step, first: Value) -> Value:
    if step.attributes.get("axis", 1) != 1:
        raise Refused(f"Flatten from axis {step.attributes['axis']}")
    return step.walk.graph.reshaped(first, (math.prod(first.shape),))


def reshape(step: Step, first: Value) -> Value:
    if step.constant(1) is None:
        raise Refused("Reshape to a computed shape")
    said = [int(size) for size in np.ravel(step.constant(1))][1:]
    said = [first.shape[place] if size == 0 else size for place, size in enumerate(said)]
    known = math.prod(size for size in said if size != -1)
    shape = [math.prod(first.shape) // known if size == -1 else size for size in said]
    if math.prod(shape) != math.prod(first.shape):
        raise Refused("Reshape across samples")
    return step.walk.graph.reshaped(first, shape)


def squeeze(step: Step, first: Value) -> Value:
    axes = step.attributes.get("axes")
    axes = step.constant(1) if axes is None else axes
    rank = len(first.shape) + 1
    if axes is None:
        return step.walk.graph.reshaped(first, [size for size in first.shape if size != 1])
    found = {int(axis) % rank for axis in np.ravel(axes)}
    return step.walk.graph.reshaped(first, [size for place, size in enumerate(first.shape, 1) if place not in found])


def transpose(step: Step, first: Value) -> Value:
    order = list(step.attributes.get("perm", []))
    if order != [0, 2, 1]:
        raise Refused(f"Transpose to {order}")
    return step.add("transpose", first, first.shape[::-1])


def softmax(step: Step, first: Value) -> Value:
    if step.attributes.get("axis", -1) not in (-1, len(first.shape)):
        raise Refused(f"{step.kind} over axis {step.attributes['axis']}")
    if step.kind == "LogSoftmax" and not step.is_last:
        raise Refused("LogSoftmax before other layers")
    return step.add("softmax", first, first.shape)


def gather(step: Step, _: Value | None) -> Value:
    rows, taken = step.constant(0), step.value(1)
    if rows is None or taken is None or np.ndim(rows) != 2 or step.attributes.get("axis", 0) != 0:
        raise Refused("part of a value")
    return step.add("embedding", taken, (*taken.shape, np.shape(rows)[1]), weight=step.weight(0))


def concat(step: Step, _: Value | None) -> Value:
    values = [step.value(place) for place in range(len(step.names))]
    if any(value is None for value in values):
        raise Refused("concat with a constant")
    known = [value for value in values if value is not None]
    if step.attributes.get("axis", 1) % (len(known[0].shape) + 1) != 1:
        raise Refused(f"concat in axis {step.attributes['axis']}")
    if len(known) == 1:
        return known[0]
    return step.add("concat", known, (sum(value.shape[0] for value in known), *known[0].shape[1:]))


def clip(step: Step, first: Value) -> Value:
    least, most = step.attributes.get("min", step.constant(1)), step.attributes.get("max", step.constant(2))
    bounds = tuple(None if bound is None else float(np.ravel(bound)[0]) for bound in (least, most))
    kinds = {(0.0, 6.0): "relu6", (-1.0, 1.0): "hard-tanh", (0.0, None): "relu"}
    if bounds not in kinds:
        raise Refused(f"Clip between {bounds[0]} and {bounds[1]}")
    return step.add(kinds[bounds], first, first.shape)


def hard_sigmoid(step: Step, first: Value) -> Value:
    if abs(step.attributes.get("alpha", 0.2) - 1 / 6) > 1e-6 or step.attributes.get("beta", 0.5) != 0.5:
        raise Refused("HardSigmoid with another slope than 1/6")
    return step.add("hard-sigmoid", first, first.shape)


def gelu(step: Step, first: Value) -> Value:
    if step.attributes.get("approximate", b"none") != b"none":
        raise Refused("gelu by tanh")
    return step.add("gelu", first, first.shape)


RULES: dict[str, Callable[[Step, Any], Value]] = {
    **{name: lambda step, first: step.add(PLAIN[step.kind], first, first.shape) for name in PLAIN},
    **{name: lambda step, first: first for name in NOTHING},
    "Conv": convolution,
    "MaxPool": pool("max"),
    "AveragePool": pool("avg"),
    "GlobalAveragePool": whole("avg"),
    "GlobalMaxPool": whole("max"),
    "ReduceMean": reduced("avg"),
    "ReduceMax": reduced("max"),
    "Gemm": gemm,
    "MatMul": product,
    "Add": sum_,
    "Mul": square,
    "Pow": square,
    "BatchNormalization": batch_norm,
    "LayerNormalization": layer_norm,
    "Flatten": flatten,
    "Reshape": reshape,
    "Squeeze": squeeze,
    "Transpose": transpose,
    "Softmax": softmax,
    "LogSoftmax": softmax,
    "Gather": gather,
    "Concat": concat,
    "Clip": clip,
    "HardSigmoid": hard_sigmoid,
    "Gelu": gelu,
    "LeakyRelu": lambda step, first: step.add("leaky-relu", first, first.shape, slope=shortest(step.attributes.get("alpha", 0.01), 0.01)),
    "Elu": lambda step, first: step.add("elu", first, first.shape, alpha=shortest(step.attributes.get("alpha", 1.0), 1.0)),
}


def shortest(number: float, usual: float = 1e-5) -> float | None:
    """A number of single precision by its shortest decimal digits; None if it is what a layer has anyway."""
    number = float(str(np.float32(number)))
    return None if number == usual else number


def attributes_of(node: Message) -> dict[str, Any]:
    """A node's attributes: numbers, lists of numbers, bytes, arrays."""
    found: dict[str, Any] = {}
    for one in node.messages(5):
        name, kind = one.text(1), one.integer(20)
        if kind == 1 or kind == 0 and 2 in one.fields:
            found[name] = one.floats(2)[-1]
        elif kind == 2 or kind == 0 and 3 in one.fields:
            found[name] = one.integer(3)
        elif kind == 3:
            found[name] = one.bytes(4)
        elif kind == 4:
            found[name] = array_of(one.message(5), None)
        elif kind == 6:
            found[name] = one.floats(7)
        elif kind == 7:
            found[name] = one.integers(8)
    return found


def array_of(tensor: Message, file: Path | None) -> np.ndarray:
    """A tensor's numbers."""
    name, kind, shape = tensor.text(8), tensor.integer(2), tensor.integers(1)
    if kind not in TYPES:
        raise wrong(name, "numbers of a type that NumPy has", f"element type {kind}", file)
    dtype = np.dtype(TYPES[kind])
    if tensor.integer(14) == 1:
        data = outside(tensor, name, file)
        found = np.frombuffer(data, dtype)
    elif 9 in tensor.fields:
        found = np.frombuffer(tensor.bytes(9), dtype)
    elif 4 in tensor.fields:
        found = np.array(tensor.floats(4), dtype)
    elif 10 in tensor.fields:
        found = np.frombuffer(b"".join(value if isinstance(value, bytes) else value.to_bytes(8, "little") for value in tensor.fields[10]), dtype)
    else:
        found = np.array(tensor.integers(7) or tensor.integers(5)).astype(dtype)
    if found.size != math.prod(shape):
        raise wrong(name, f"{math.prod(shape)} numbers for shape {shape}", found.size, file)
    return found.reshape(shape)


def outside(tensor: Message, name: str, file: Path | None) -> bytes:
    """The bytes of a tensor that lie in a file beside the model."""
    said = {entry.text(1): entry.text(2) for entry in tensor.messages(13)}
    location = said.get("location", "")
    if file is None or not location or Path(location).name != location:
        raise wrong(name, "a file beside the model", location or "none", file)
    beside = file.parent / location
    if not beside.is_file():
        raise wrong(name, f"the file {location} beside the model", "none", file)
    start = int(said.get("offset", 0))
    with open(beside, "rb") as opened:
        opened.seek(start)
        return opened.read(int(said["length"])) if "length" in said else opened.read()


def shape_of(value: Message, file: Path) -> list[int]:
    """The shape of one sample of an input, whose first dimension is the batch."""
    dims = value.message(2).message(1).message(2).messages(1)
    sizes = [dim.integer(1) for dim in dims[1:]]
    if not sizes or any(size < 1 for size in sizes):
        raise wrong(value.text(1), "an input with a batch and sizes that are said", [dim.text(2) or dim.integer(1) for dim in dims], file)
    return sizes
