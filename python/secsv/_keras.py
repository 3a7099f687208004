"""Models of Keras 3 as layers, by their configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ._errors import SecsvError, wrong
from ._graph import Graph, Value
from ._model import Model

#: Samples on which layers and model are compared, and how far a score may be off, relative to the largest.
COMPARED, CLOSE = 64, 1e-3

ACTIVATIONS = {
    "relu": "relu",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "softmax": "softmax",
    "silu": "silu",
    "swish": "silu",
    "relu6": "relu6",
    "hard_tanh": "hard-tanh",
    "hard_sigmoid": "hard-sigmoid",
    "elu": "elu",
}
NOTHING = {"InputLayer", "Dropout", "SpatialDropout1D", "SpatialDropout2D", "GaussianDropout", "GaussianNoise", "AlphaDropout", "ActivityRegularization", "Identity"}


class Refused(Exception):
    """A layer or a setting that there is no layer for."""


def from_keras(model: Any) -> Model:
    """The layers of a model; see ``Model.from_keras``."""
    try:
        import keras
    except ImportError as error:
        raise SecsvError("expected Keras 3 to be installed, found none: pip install keras") from error
    if not isinstance(model, keras.Model) or not hasattr(model, "inputs") or not model.inputs:
        raise wrong("model", "a built keras.Model, Sequential or functional", type(model).__name__)
    if len(model.inputs) != 1 or len(model.outputs) != 1:
        raise wrong("model", "one input and one output", f"{len(model.inputs)} and {len(model.outputs)}")
    found = Walk(model).model()
    prove(keras, found, model)
    return found


class Walk:
    """One pass over the layers, in their order."""

    def __init__(self, model: Any) -> None:
        self.source = model
        self.graph = Graph([int(size) for size in model.inputs[0].shape[1:]])
        #: Names of weights: their places in ``get_weights()``, as lists of arrays are recorded.
        self.names = {id(variable): str(place) for place, variable in enumerate(model.weights)}
        self.values: dict[str, Value] = {}
        self.last = self.graph.sample
        for layer, before in self.steps():
            self.visit(layer, before)

    def steps(self) -> Iterator[tuple[Any, list[str] | None]]:
        """Layers with the names of those whose outputs they take; None where it is the layer before."""
        config = self.source.get_config()
        described = {one["config"]["name"]: one for one in config["layers"]}
        is_chain = not any("inbound_nodes" in one for one in config["layers"])
        for layer in self.source.layers:
            nodes = described.get(layer.name, {}).get("inbound_nodes", [])
            if len(nodes) > 1:
                raise wrong("model", "layers that are used once", layer.name)
            yield layer, None if is_chain else list(histories(nodes))

    def visit(self, layer: Any, before: list[str] | None) -> None:
        kind = type(layer).__name__
        taken = [self.last] if before is None else [self.values[name] for name in before]
        try:
            if kind in NOTHING:
                value = taken[0] if taken else self.graph.sample
            else:
                rule = RULES.get(kind)
                if rule is None:
                    raise Refused(kind)
                value = rule(self, layer, taken)
                value = self.activated(value, getattr(layer, "activation", None) if kind not in ("LSTM",) else None)
        except Refused as refused:
            value = self.graph.unsupported(str(refused), layer.name, (1,))
        self.values[layer.name] = self.last = value

    def activated(self, value: Value, activation: Any) -> Value:
        """The value behind a layer's own activation."""
        name = getattr(activation, "__name__", None)
        if activation is None or name == "linear":
            return value
        if name == "gelu":
            raise Refused("activation gelu (Keras has it by tanh or exact, and does not say which)")
        if name not in ACTIVATIONS:
            raise Refused(f"activation {name}")
        keys = {"alpha": 1.0} if name == "elu" else {}
        return self.graph.add(ACTIVATIONS[name], value, (1,), **keys)

    def weight(self, variable: Any) -> str | None:
        """The name of a weight; None if there is none."""
        return None if variable is None else self.names[id(variable)]

    def model(self) -> Model:
        """The layers, if all are known."""
        self.graph.refuse_missing("model")
        outputs = [int(size) for size in self.source.outputs[0].shape[1:]]
        if len(outputs) != 1:
            raise wrong("model", "one score for each class as output", f"shape {outputs} for each sample")
        output = self.last
        if self.values and hasattr(self.source, "output_names") and len(self.values) > 1:
            output = self.values.get(self.source.output_names[0], self.last)
        return self.graph.model(output, max(outputs[0], 2), layout="keras")


def histories(nodes: Any) -> Iterator[str]:
    """Names of the layers that made the tensors in a configuration."""
    if isinstance(nodes, dict):
        if "keras_history" in nodes:
            yield nodes["keras_history"][0]
            return
        nodes = list(nodes.values())
    if isinstance(nodes, (list, tuple)):
        for one in nodes:
            yield from histories(one)


def same(sizes: Any, what: str) -> int:
    """One number for all directions."""
    sizes = [sizes] if isinstance(sizes, int) else list(sizes)
    if len(set(sizes)) > 1:
        raise Refused(f"{what} {sizes}")
    return int(sizes[0])


def padding(layer: Any, kernel: Any, stride: int, dilation: int) -> int | None:
    """Padding on every side."""
    if layer.padding == "valid":
        return None
    around = {(size - 1) * dilation for size in kernel}
    if layer.padding != "same" or stride != 1 or len(around) > 1 or next(iter(around)) % 2:
        raise Refused(f"padding {layer.padding!r} with another stride than 1 or an even kernel")
    return next(iter(around)) // 2 or None


def dense(walk: Walk, layer: Any, taken: list[Value]) -> Value:
    return walk.graph.add("linear", taken, (1,), weight=walk.weight(layer.kernel), bias=walk.weight(layer.bias) if layer.use_bias else None)


def convolution(walk: Walk, layer: Any, taken: list[Value]) -> Value:
    if layer.data_format != "channels_last":
        raise Refused("channels_first")
    stride, dilation = same(layer.strides, "strides"), same(layer.dilation_rate, "dilation_rate")
    groups = getattr(layer, "groups", 1)
    is_depthwise = type(layer).__name__ == "DepthwiseConv2D"
    if is_depthwise:
        groups = int(layer.kernel.shape[2])
    said = {
        "stride": stride if stride != 1 else None,
        "padding": padding(layer, layer.kernel_size, stride, dilation),
        "dilation": dilation if dilation != 1 else None,
        "groups": groups if groups != 1 or is_depthwise else None,
    }
    bias = walk.weight(layer.bias) if layer.use_bias else None
    return walk.graph.add("conv2d", taken, (1,), weight=walk.weight(layer.kernel), bias=bias, **said)


def pool(kind: str) -> Callable[[Walk, Any, list[Value]], Value]:
    def add(walk: Walk, layer: Any, taken: list[Value]) -> Value:
        size, stride = same(layer.pool_size, "pool_size"), same(layer.strides, "strides")
        if layer.padding != "valid":
            raise Refused(f"{type(layer).__name__} with padding {layer.padding!r}")
        return walk.graph.add(kind, taken, (1,), size=size, stride=stride if stride != size else None)

    return add


def plain(kind: str) -> Callable[[Walk, Any, list[Value]], Value]:
    def add(walk: Walk, layer: Any, taken: list[Value]) -> Value:
        if getattr(layer, "keepdims", False):
            raise Refused(f"{type(layer).__name__} with keepdims")
        return walk.graph.add(kind, taken, (1,))

    return add


def batch_norm(walk: Walk, layer: Any, taken: list[Value]) -> Value:
    keys = {
        "weight": walk.weight(layer.gamma) if layer.scale else None,
        "bias": walk.weight(layer.beta) if layer.center else None,
        "mean": walk.weight(layer.moving_mean),
        "variance": walk.weight(layer.moving_variance),
    }
    return walk.graph.add("batch-norm", taken, (1,), **keys, epsilon=float(layer.epsilon))


def layer_norm(walk: Walk, layer: Any, taken: list[Value]) -> Value:
    rank = len(layer.input.shape)
    axes = [layer.axis] if isinstance(layer.axis, int) else list(layer.axis)
    if rank != 2 or [axis % rank for axis in axes] != [1] or getattr(layer, "rms_scaling", False):
        raise Refused("LayerNormalization of more than one dimension")
    weight = walk.weight(layer.gamma) if layer.scale else None
    return walk.graph.add("layer-norm", taken, (1,), weight=weight, bias=walk.weight(layer.beta) if layer.center else None, epsilon=float(layer.epsilon))


def activation(walk: Walk, layer: Any, taken: list[Value]) -> Value:
    # `visit` adds the function itself.
    return taken[0]


def relu(walk: Walk, layer: Any, taken: list[Value]) -> Value:
    most, slope, threshold = layer.max_value, float(layer.negative_slope or 0), float(layer.threshold or 0)
    if threshold or most not in (None, 6) or (most == 6 and slope):
        raise Refused("ReLU with a threshold or another maximum than 6")
    if slope:
        return walk.graph.add("leaky-relu", taken, (1,), slope=slope)
    return walk.graph.add("relu" if most is None else "relu6", taken, (1,))


def leaky_relu(walk: Walk, layer: Any, taken: list[Value]) -> Value:
    return walk.graph.add("leaky-relu", taken, (1,), slope=float(layer.negative_slope))


def elu(walk: Walk, layer: Any, taken: list[Value]) -> Value:
    return walk.graph.add("elu", taken, (1,), alpha=float(layer.alpha))


def embedding(walk: Walk, layer: Any, taken: list[Value]) -> Value:
    if layer.mask_zero:
        raise Refused("Embedding with mask_zero")
    return walk.graph.add("embedding", taken, (1,), weight=walk.weight(layer.embeddings))


def lstm(walk: Walk, layer: Any, taken: list[Value]) -> Value:
    usual = (layer.activation.__name__, layer.recurrent_activation.__name__) == ("tanh", "sigmoid")
    if not usual or layer.go_backwards or layer.return_state or layer.stateful:
        raise Refused("LSTM with other settings than the usual ones")
    cell = layer.cell
    keys = {"weight_ih": walk.weight(cell.kernel), "weight_hh": walk.weight(cell.recurrent_kernel), "bias_ih": walk.weight(cell.bias) if layer.use_bias else None}
    return walk.graph.add("lstm", taken, (1,), **keys, sequence=True if layer.return_sequences else None)


def joined(kind: str) -> Callable[[Walk, Any, list[Value]], Value]:
    def add(walk: Walk, layer: Any, taken: list[Value]) -> Value:
        if kind == "concat" and layer.axis not in (-1, len(layer.output.shape) - 1):
            raise Refused(f"Concatenate in axis {layer.axis}")
        return walk.graph.add(kind, taken, (1,))

    return add


RULES: dict[str, Callable[[Walk, Any, list[Value]], Value]] = {
    "Dense": dense,
    "Conv2D": convolution,
    "DepthwiseConv2D": convolution,
    "MaxPooling2D": pool("max-pool2d"),
    "AveragePooling2D": pool("avg-pool2d"),
    "GlobalAveragePooling2D": plain("global-avg-pool"),
    "GlobalMaxPooling2D": plain("global-max-pool"),
    "Flatten": plain("flatten"),
    "BatchNormalization": batch_norm,
    "LayerNormalization": layer_norm,
    "Activation": activation,
    "Softmax": plain("softmax"),
    "ReLU": relu,
    "LeakyReLU": leaky_relu,
    "ELU": elu,
    "Embedding": embedding,
    "LSTM": lstm,
    "Add": joined("add"),
    "Concatenate": joined("concat"),
}


def prove(keras: Any, found: Model, model: Any) -> None:
    """Compares the layers with a copy of the model that has random weights, on random samples."""
    rng = np.random.default_rng(0)
    copied = keras.models.clone_model(model)
    weights = []
    for variable in model.weights:
        array = np.asarray(keras.ops.convert_to_numpy(variable))
        noise = rng.random(array.shape)
        is_variance = variable.path.endswith("moving_variance")
        weights.append((noise + 0.5 if is_variance else array + 0.4 * (noise - 0.5)).astype(array.dtype))
    copied.set_weights(weights)
    shape = (COMPARED, *found.input)
    rows = [weights[int(layer["weight"])].shape[0] for layer in found.layers if layer["kind"] == "embedding"]
    x = rng.integers(0, min(rows), shape) if rows else rng.normal(size=shape).astype(np.float32)
    expected = np.asarray(keras.ops.convert_to_numpy(copied(x, training=False)), np.float64)
    scores = found.scores(weights, x)
    expected = expected.reshape(scores.shape)
    difference = float(np.abs(scores - expected).max()) / max(float(np.abs(expected).max()), 1e-30)
    if not difference <= CLOSE:
        raise wrong("model", f"the model's scores to {CLOSE:g}", f"a relative difference of {difference:.3g}: please report this model")
