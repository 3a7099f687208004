"""Modules of PyTorch as layers, by the graph that ``torch.export`` makes of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ._errors import SecsvError, Unsupported, wrong
from ._graph import Graph, Value, same, size_of
from ._model import Model

#: Samples in the batch that is traced: no size of a layer is likely to be the same.
BATCH = 3
#: Samples on which the layers are compared with the module, at most; of large samples fewer, and never fewer than 4.
COMPARED, COMPARED_NUMBERS = 256, 1 << 17
#: How far a score may be from the module's, relative to the largest: in double and in single precision.
CLOSE, CLOSE_SINGLE = 1e-6, 1e-3

#: Activations without settings.
PLAIN = {"relu": "relu", "sigmoid": "sigmoid", "tanh": "tanh", "silu": "silu", "relu6": "relu6", "hardsigmoid": "hard-sigmoid", "square": "square"}
#: Operators that hand on what they take, when testing.
NOTHING = {"dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout", "contiguous", "clone", "detach", "alias", "lift_fresh", "lift_fresh_copy", "identity"}
#: Operators that arrange numbers anew without computing.
RESHAPES = {"view", "reshape", "flatten", "unflatten", "_unsafe_view", "squeeze", "unsqueeze"}
#: What people call operators without a layer.
CALLED = {
    "group_norm": "group-norm",
    "instance_norm": "instance-norm",
    "scaled_dot_product_attention": "attention",
    "_native_multi_head_attention": "attention",
    "conv_transpose2d": "transposed convolution",
    "conv3d": "conv3d",
    "mul": "product of values",
    "matmul": "product of values",
    "bmm": "product of values",
    "hardswish": "hard-swish",
}


class Refused(Exception):
    """An operator that there is no layer for, as people call it."""


def from_torch(module: Any, example: Any, *, ignore: Iterable[str] = ()) -> Model:
    """The layers of a module; see ``Model.from_torch``."""
    try:
        import torch
    except ImportError as error:
        raise SecsvError("expected PyTorch to be installed, found none: pip install secsv[torch]") from error
    if not hasattr(torch, "export"):
        raise SecsvError(f"expected PyTorch 2.5 or newer, found {torch.__version__}")
    if not isinstance(example, torch.Tensor) or example.ndim < 2:
        raise wrong("example", "a tensor with a batch of samples", getattr(example, "shape", type(example).__name__))
    was_training = module.training
    module.eval()
    try:
        sample = example[:1].detach().cpu()
        batch = sample.repeat(BATCH, *[1] * (sample.ndim - 1))
        walk = Walk(exported(torch, module, batch))
        model = walk.model(module, list(ignore))
        prove(torch, model, module, sample, walk)
    finally:
        module.train(was_training)
    return model


def exported(torch: Any, module: Any, batch: Any) -> Any:
    """The graph of a module."""
    try:
        return torch.export.export(module, (batch,))
    except Exception as error:  # noqa: BLE001
        # PyTorch raises many kinds.
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        said = lines[0] if lines else type(error).__name__
        is_data = "data-dependent" in str(error) or "GuardOnDataDependent" in type(error).__name__
        why = f"a branch on the data ({said})" if is_data or "ontrol flow" in said else said
        expected = "a module that torch.export can follow"
        raise Unsupported(f"model: expected {expected}, found {why}", None, "model", expected, why) from error


class Walk:
    """One pass over a graph, node by node."""

    def __init__(self, program: Any) -> None:
        signature = program.graph_signature
        #: Names of parameters and buffers by their placeholders.
        self.names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        self.users = [name for name in signature.user_inputs if isinstance(name, str)]
        self.values: dict[str, Any] = {}
        self.used: set[str] = set()
        self.ends_in_logarithms = False
        self.graph = Graph([])
        self.output: Any = None
        for node in program.graph.nodes:
            self.visit(node)

    def model(self, module: Any, ignore: list[str]) -> Model:
        """The layers, if all are known and use every parameter."""
        self.graph.refuse_missing("model")
        output = self.output
        if not isinstance(output, Value):
            raise wrong("model", "one tensor of scores as output", "another output")
        output = self.graph.reshaped(output, output.shape)
        if len(output.shape) != 1:
            raise wrong("model", "one score for each class as output", f"shape {list(output.shape)} for each sample")
        classes = max(output.shape[0], 2)
        unused = self.unused(module)
        is_named = lambda name: any(matches(pattern, name) for pattern in ignore)
        rest = [name for name in unused if not is_named(name)]
        if rest:
            expected = "a model that computes with all of its parameters (name others in ignore=[...])"
            raise wrong("model", expected, f"none that takes {', '.join(rest)}")
        return self.graph.model(output, classes, layout="pytorch", ignore=[*ignore, *self.twins(module)])

    def unused(self, module: Any) -> list[str]:
        """Parameters and buffers of numbers that no layer takes, but for second names of those that one takes."""
        state = module.state_dict(keep_vars=True)
        held = {state[name].data_ptr() for name in self.used if name in state}
        is_number = lambda array: array.is_floating_point()
        return [name for name, array in state.items() if name not in self.used and is_number(array) and array.data_ptr() not in held]

    def twins(self, module: Any) -> list[str]:
        """Second names of parameters that a layer takes by another name."""
        unused = set(self.unused(module))
        state = module.state_dict()
        return [name for name, array in state.items() if name not in self.used and name not in unused and array.is_floating_point()]

    def visit(self, node: Any) -> None:
        if node.op == "placeholder":
            if node.name in self.users:
                if self.graph.sample.shape or len(self.users) > 1:
                    raise wrong("model", "one input", f"{len(self.users)}")
                self.graph.sample.shape = sample_shape(node)
                self.values[node.name] = self.graph.sample
            elif node.name in self.names:
                self.values[node.name] = self.names[node.name]
            return
        if node.op == "get_attr":
            return
        if node.op == "output":
            outputs = node.args[0]
            if len(outputs) != 1:
                raise wrong("model", "one tensor of scores as output", f"{len(outputs)} outputs")
            self.output = self.values.get(outputs[0].name)
            return
        operator = name_of(node)
        taken = [self.values.get(other.name) for other in node.all_input_nodes]
        if operator == "getitem":
            self.values[node.name] = self.item(self.values.get(node.args[0].name), node.args[1])
            return
        if not any(isinstance(value, (Value, States, LastState)) for value in taken):
            self.values[node.name] = self.constant(node, operator, taken)
            return
        try:
            self.values[node.name] = self.computed(node, operator)
            self.ends_in_logarithms = operator in ("log_softmax", "_log_softmax")
        except Refused as refused:
            self.values[node.name] = self.graph.unsupported(str(refused), module_of(node), sample_shape(node))

    def constant(self, node: Any, operator: str, taken: list[Any]) -> Any:
        """What does not depend on the sample: zeros for a recurrent layer, sizes."""
        if operator in ("zeros", "new_zeros", "zeros_like"):
            return Zeros()
        if any(isinstance(value, str) for value in taken):
            kind = "weights that are computed from others"
            self.graph.unsupported(f"{kind}: {operator}", module_of(node), ())
        return None

    def item(self, value: Any, place: int) -> Any:
        """An output of an operator with several."""
        if isinstance(value, States):
            return value.output(place)
        return value if place == 0 else None

    def computed(self, node: Any, operator: str) -> Any:
        """The value of a node."""
        operator = operator[:-1] if operator.endswith("_") and not operator.startswith("_") else operator
        first = self.value(node, 0)
        if operator in PLAIN:
            return self.graph.add(PLAIN[operator], first, first.shape)
        if operator in NOTHING:
            return first
        if operator in RESHAPES:
            return self.reshape(node, first)
        rule = RULES.get(operator)
        if rule is None:
            raise Refused(CALLED.get(operator, operator))
        return rule(self, node, first)

    def value(self, node: Any, place: int) -> Any:
        """An argument that depends on the sample."""
        arguments = node.args
        found = arguments[place] if place < len(arguments) else None
        if isinstance(found, (list, tuple)):
            return [self.values.get(getattr(one, "name", "")) for one in found]
        found = self.values.get(getattr(found, "name", ""))
        if isinstance(found, (Value, States, LastState)):
            return found
        return None

    def tensor(self, node: Any, place: int, key: str | None = None) -> str | None:
        """The name of a parameter among the arguments."""
        found = argument(node, place, key)
        if found is None:
            return None
        name = self.values.get(getattr(found, "name", ""))
        if not isinstance(name, str):
            raise Refused(f"{name_of(node)} with weights that are no parameter")
        self.used.add(name)
        return name

    def reshape(self, node: Any, first: Value) -> Value:
        before, after = node.args[0].meta["val"].shape, node.meta["val"].shape
        if not len(after) or after[0] != before[0]:
            raise Refused(f"{name_of(node)} across samples")
        return self.graph.reshaped(first, sample_shape(node))


class Zeros:
    """A constant of zeros."""


class States:
    """What a recurrent layer hands on: all hidden states, and the last ones of each layer."""

    def __init__(self, walk: Walk, kind: str, first: Value, weights: list[list[str | None]], hidden: int) -> None:
        self.walk, self.kind, self.first, self.weights, self.hidden = walk, kind, first, weights, hidden
        self.made: dict[bool, Value] = {}

    def output(self, place: int) -> Any:
        if place == 0:
            return Sequence_(self)
        return LastState(self) if place == 1 else None

    def last(self) -> Value:
        """The last hidden state of the last layer."""
        return self.layers(False)

    def all(self) -> Value:
        """The hidden states of the last layer."""
        if self.kind == "gru":
            raise Refused("all hidden states of a GRU")
        return self.layers(True)

    def layers(self, sequence: bool) -> Value:
        if sequence in self.made:
            return self.made[sequence]
        value, steps = self.first, self.first.shape[0]
        for place, (weight_ih, weight_hh, bias_ih, bias_hh) in enumerate(self.weights):
            hands_on_all = sequence or place < len(self.weights) - 1
            if self.kind == "gru" and hands_on_all:
                raise Refused("GRU of several layers")
            shape = (steps, self.hidden) if hands_on_all else (self.hidden,)
            keys = dict(weight_ih=weight_ih, weight_hh=weight_hh, bias_ih=bias_ih, bias_hh=bias_hh)
            value = self.walk.graph.add(self.kind, value, shape, **keys, sequence=True if hands_on_all else None)
        self.made[sequence] = value
        return value


class Sequence_(Value):
    """All hidden states, as long as nobody has said which are wanted."""

    def __init__(self, states: States) -> None:
        super().__init__(None, (states.first.shape[0], states.hidden))
        self.states = states


class LastState:
    """The last hidden state of each layer."""

    def __init__(self, states: States) -> None:
        self.states = states


def made(value: Any) -> Value:
    """A value that layers can take."""
    return value.states.all() if isinstance(value, Sequence_) else value


def linear(walk: Walk, node: Any, first: Value) -> Value:
    first = made(first)
    return walk.graph.add("linear", first, sample_shape(node), weight=walk.tensor(node, 1), bias=walk.tensor(node, 2, "bias"))


def addmm(walk: Walk, node: Any, _: Any) -> Value:
    raise Refused("addmm")


def convolution(kind: str) -> Callable[[Walk, Any, Value], Value]:
    def add(walk: Walk, node: Any, first: Value) -> Value:
        kernel = argument(node, 1).meta["val"].shape[2:]
        settings: dict[str, Any] = {}
        for place, (key, usual) in enumerate((("stride", 1), ("padding", 0), ("dilation", 1))):
            sizes = argument(node, 3 + place, key)
            settings[key] = usual if sizes is None else sizes
        groups = argument(node, 6, "groups") or 1
        if settings["padding"] == "valid":
            settings["padding"] = 0
        elif settings["padding"] == "same":
            dilation = same(settings["dilation"], "dilation")
            around = {(size - 1) * (dilation or 1) for size in kernel}
            if len(around) > 1 or around.pop() % 2:
                raise Refused(f"{kind} with padding on one side more than on the other")
            settings["padding"] = (kernel[0] - 1) * (dilation or 1) // 2
        found = {key: same(sizes, key) for key, sizes in settings.items()}
        for key, size in found.items():
            if size is None:
                raise Refused(f"{kind} with {key} {list(settings[key])}")
        # What is usual need not be said.
        said = {key: size for key, size in found.items() if size != (0 if key == "padding" else 1)}
        weight, bias = walk.tensor(node, 1), walk.tensor(node, 2, "bias")
        return walk.graph.add(kind, made(first), sample_shape(node), weight=weight, bias=bias, **said, groups=groups if groups > 1 else None)

    return add


def pool(kind: str) -> Callable[[Walk, Any, Value], Value]:
    def add(walk: Walk, node: Any, first: Value) -> Value:
        is_max = kind.startswith("max")
        size = same(argument(node, 1), "size")
        stride = argument(node, 2, "stride")
        stride = size if stride in (None, []) else same(stride, "stride")
        padding = same(argument(node, 3, "padding") or 0, "padding")
        dilation = same(argument(node, 4, "dilation") or 1, "dilation") if is_max else 1
        ceil = argument(node, 5 if is_max else 4, "ceil_mode") or False
        counts = argument(node, 5, "count_include_pad") if not is_max else True
        divisor = argument(node, 6, "divisor_override") if not is_max else None
        if size is None or stride is None or padding is None or dilation != 1:
            raise Refused(f"{kind} with other than square windows")
        shape = sample_shape(node)
        if ceil:
            # The same windows, unless the last one would reach over the edge.
            covered = [(before + 2 * padding - size) % stride for before in first.shape[1:]]
            if any(covered):
                raise Refused(f"{kind} with windows over the edge (ceil_mode)")
        if not is_max and (divisor is not None or (padding and counts is False)):
            raise Refused(f"{kind} that does not count padded zeros")
        return walk.graph.add(kind, made(first), shape, size=size, stride=stride if stride != size else None, padding=padding or None)

    return add


def adaptive(which: str, dimensions: int) -> Callable[[Walk, Any, Value], Value]:
    def add(walk: Walk, node: Any, first: Value) -> Value:
        first, shape = made(first), sample_shape(node)
        before, after = first.shape[1:], shape[1:]
        if set(after) == {1}:
            value = walk.graph.add(f"global-{which}-pool", first, first.shape[:1])
            return walk.graph.reshaped(value, shape)
        if before == after:
            return first
        sizes = {b // a for b, a in zip(before, after) if b % a == 0}
        if len(sizes) != 1 or any(b % a for b, a in zip(before, after)):
            raise Refused(f"adaptive {which}-pool of {list(before)} to {list(after)}")
        return walk.graph.add(f"{which}-pool{dimensions}d", first, shape, size=sizes.pop())

    return add


def reduced(which: str) -> Callable[[Walk, Any, Value], Value]:
    def add(walk: Walk, node: Any, first: Value) -> Value:
        first, rank = made(first), len(first.shape) + 1
        dims = argument(node, 1, "dim")
        dims = sorted({dim % rank for dim in ([dims] if isinstance(dims, int) else dims or [])})
        if dims != list(range(2, rank)) or rank < 3:
            raise Refused(f"{which} over dimensions {dims}")
        value = walk.graph.add(f"global-{'avg' if which == 'mean' else 'max'}-pool", first, first.shape[:1])
        return walk.graph.reshaped(value, sample_shape(node))

    return add


def batch_norm(walk: Walk, node: Any, first: Value) -> Value:
    mean, variance = walk.tensor(node, 3, "running_mean"), walk.tensor(node, 4, "running_var")
    if mean is None or variance is None:
        raise Refused("batch-norm without running statistics")
    epsilon = argument(node, 7, "eps")
    keys = dict(weight=walk.tensor(node, 1), bias=walk.tensor(node, 2), mean=mean, variance=variance)
    return walk.graph.add("batch-norm", made(first), first.shape, **keys, epsilon=None if epsilon == 1e-5 else epsilon)


def layer_norm(walk: Walk, node: Any, first: Value) -> Value:
    epsilon = argument(node, 4, "eps")
    weight, bias = walk.tensor(node, 2, "weight"), walk.tensor(node, 3, "bias")
    if weight is None and len(argument(node, 1)) > 1:
        raise Refused("layer-norm over several dimensions without weights")
    return walk.graph.add("layer-norm", made(first), first.shape, weight=weight, bias=bias, epsilon=None if epsilon in (None, 1e-5) else epsilon)


def embedding(walk: Walk, node: Any, _: Any) -> Value:
    taken = walk.value(node, 1)
    if taken is None:
        raise Refused("embedding of something else than the sample")
    return walk.graph.add("embedding", taken, sample_shape(node), weight=walk.tensor(node, 0))


def recurrent(kind: str) -> Callable[[Walk, Any, Value], Any]:
    def add(walk: Walk, node: Any, first: Value) -> States:
        name = kind.upper()
        begins = node.args[1] if isinstance(node.args[1], (list, tuple)) else [node.args[1]]
        if not all(isinstance(walk.values.get(begin.name), Zeros) for begin in begins):
            raise Refused(f"{name} that begins with a state other than zeros")
        has_biases, layers, _, _, bidirectional, batch_first = node.args[3:9]
        if bidirectional:
            raise Refused(f"{name} in both directions")
        if not batch_first:
            raise Refused(f"{name} with steps before samples (batch_first=False)")
        names = []
        for weight in node.args[2]:
            found = walk.values.get(weight.name)
            if not isinstance(found, str):
                raise Refused(f"{name} with weights that are no parameter")
            walk.used.add(found)
            names.append(found)
        each = 4 if has_biases else 2
        if len(names) != each * layers:
            raise Refused(f"{name} with projections")
        hidden = node.args[2][1].meta["val"].shape[1]
        weights = [[*names[place : place + each], *[None] * (4 - each)] for place in range(0, len(names), each)]
        return States(walk, kind, made(first), weights, hidden)

    return add


def select(walk: Walk, node: Any, first: Any) -> Any:
    dim, place = node.args[1], node.args[2]
    if isinstance(first, Sequence_):
        if dim == 1 and place in (-1, first.shape[0] - 1):
            return first.states.last()
        raise Refused(f"{first.states.kind.upper()} of which step {place} is used: only the last hidden state can be")
    if isinstance(first, LastState):
        if dim == 0 and place in (-1, len(first.states.weights) - 1):
            return first.states.last()
        raise Refused(f"{first.states.kind.upper()} of which an inner layer's state is used")
    if first is not None and first.shape and dim > 0 and first.shape[dim - 1] == 1:
        return walk.graph.reshaped(first, sample_shape(node))
    raise Refused("part of a value")


def slice_(walk: Walk, node: Any, first: Any) -> Any:
    before = node.args[0].meta["val"].shape
    if before == node.meta["val"].shape:
        return first
    raise Refused("part of a value")


def squeezed_state(walk: Walk, node: Any, first: Any) -> Any:
    if isinstance(first, LastState):
        if len(first.states.weights) == 1:
            return first.states.last()
        raise Refused("states of several layers")
    return walk.reshape(node, made(first))


def transposed(walk: Walk, node: Any, first: Value) -> Value:
    first = made(first)
    rank = len(first.shape) + 1
    if name_of(node) == "permute":
        order = [dim % rank for dim in node.args[1]]
    else:
        order = list(range(rank))
        one, other = node.args[1] % rank, node.args[2] % rank
        order[one], order[other] = order[other], order[one]
    if order == list(range(rank)):
        return first
    kept = [dim for dim in order[1:] if first.shape[dim - 1] != 1] if order[0] == 0 else None
    if kept == sorted(kept or []) and kept is not None:
        return walk.graph.reshaped(first, sample_shape(node))
    if order == [0, 2, 1]:
        return walk.graph.add("transpose", first, first.shape[::-1])
    raise Refused(f"permute to {order}")


def added(walk: Walk, node: Any, _: Any) -> Value:
    both = [walk.value(node, 0), walk.value(node, 1)]
    alpha = node.kwargs.get("alpha", 1)
    if not all(isinstance(value, Value) for value in both):
        raise Refused("sum with a constant or a parameter")
    one, other = map(made, both)
    if alpha != 1 or one.shape != other.shape:
        raise Refused("sum of values of different shapes")
    return walk.graph.add("add", [one, other], one.shape)


def joined(walk: Walk, node: Any, _: Any) -> Value:
    values = walk.value(node, 0)
    dim = argument(node, 1, "dim") or 0
    if not all(isinstance(value, Value) for value in values):
        raise Refused("concat with a constant or a parameter")
    values = [made(value) for value in values]
    if len(values) == 1:
        return values[0]
    if dim % (len(values[0].shape) + 1) != 1:
        raise Refused(f"concat in dimension {dim}")
    return walk.graph.add("concat", values, sample_shape(node))


def softmax(walk: Walk, node: Any, first: Value) -> Value:
    if argument(node, 1, "dim") not in (-1, len(first.shape)):
        raise Refused(f"softmax over dimension {argument(node, 1, 'dim')}")
    return walk.graph.add("softmax", made(first), first.shape)


def log_softmax(walk: Walk, node: Any, first: Value) -> Value:
    value = softmax(walk, node, first)
    if any(user.op != "output" for user in node.users):
        raise Refused("log-softmax before other layers")
    return value


def gelu(walk: Walk, node: Any, first: Value) -> Value:
    if node.kwargs.get("approximate", "none") != "none":
        raise Refused("gelu by tanh")
    return walk.graph.add("gelu", made(first), first.shape)


def leaky_relu(walk: Walk, node: Any, first: Value) -> Value:
    slope = argument(node, 1, "negative_slope")
    return walk.graph.add("leaky-relu", made(first), first.shape, slope=0.01 if slope is None else slope)


def elu(walk: Walk, node: Any, first: Value) -> Value:
    alpha, scale, input_scale = argument(node, 1, "alpha"), argument(node, 2, "scale"), argument(node, 3, "input_scale")
    if scale not in (None, 1, 1.0) or input_scale not in (None, 1, 1.0):
        raise Refused("elu with scales")
    return walk.graph.add("elu", made(first), first.shape, alpha=None if alpha in (None, 1, 1.0) else alpha)


def hardtanh(walk: Walk, node: Any, first: Value) -> Value:
    least, most = argument(node, 1, "min_val"), argument(node, 2, "max_val")
    bounds = (-1.0 if least is None else float(least), 1.0 if most is None else float(most))
    kinds = {(-1.0, 1.0): "hard-tanh", (0.0, 6.0): "relu6"}
    if bounds not in kinds:
        raise Refused(f"hardtanh between {bounds[0]} and {bounds[1]}")
    return walk.graph.add(kinds[bounds], made(first), first.shape)


def power(walk: Walk, node: Any, first: Value) -> Value:
    if node.args[1] != 2:
        raise Refused(f"power {node.args[1]}")
    return walk.graph.add("square", made(first), first.shape)


def product(walk: Walk, node: Any, first: Value) -> Value:
    if node.args[0] is not node.args[1]:
        raise Refused(CALLED["mul"])
    return walk.graph.add("square", made(first), first.shape)


def unchanged(walk: Walk, node: Any, first: Value) -> Value:
    if node.args[0].meta["val"].dtype != node.meta["val"].dtype:
        raise Refused("change of the element type")
    return first


RULES: dict[str, Callable[[Walk, Any, Any], Any]] = {
    "linear": linear,
    "addmm": addmm,
    "conv1d": convolution("conv1d"),
    "conv2d": convolution("conv2d"),
    "max_pool1d": pool("max-pool1d"),
    "max_pool2d": pool("max-pool2d"),
    "avg_pool1d": pool("avg-pool1d"),
    "avg_pool2d": pool("avg-pool2d"),
    "adaptive_avg_pool1d": adaptive("avg", 1),
    "adaptive_avg_pool2d": adaptive("avg", 2),
    "adaptive_max_pool1d": adaptive("max", 1),
    "adaptive_max_pool2d": adaptive("max", 2),
    "mean": reduced("mean"),
    "amax": reduced("amax"),
    "max": reduced("max"),
    "batch_norm": batch_norm,
    "layer_norm": layer_norm,
    "embedding": embedding,
    "gru": recurrent("gru"),
    "lstm": recurrent("lstm"),
    "select": select,
    "slice": slice_,
    "squeeze": squeezed_state,
    "permute": transposed,
    "transpose": transposed,
    "add": added,
    "cat": joined,
    "softmax": softmax,
    "log_softmax": log_softmax,
    "gelu": gelu,
    "leaky_relu": leaky_relu,
    "elu": elu,
    "hardtanh": hardtanh,
    "pow": power,
    "mul": product,
    "to": unchanged,
    "_to_copy": unchanged,
    "_assert_tensor_metadata": lambda walk, node, first: None,
}


def argument(node: Any, place: int, key: str | None = None) -> Any:
    """An argument by place or by name."""
    if place < len(node.args):
        return node.args[place]
    return node.kwargs.get(key) if key else None


def name_of(node: Any) -> str:
    """The name of a node's operator, without its overload."""
    name = getattr(node.target, "__name__", str(node.target))
    return name.split(".")[0]


def sample_shape(node: Any) -> tuple[int, ...]:
    """The shape of one sample of a node's value."""
    value = node.meta.get("val")
    value = value[0] if isinstance(value, (list, tuple)) and value else value
    return tuple(int(size) for size in getattr(value, "shape", ())[1:])


def module_of(node: Any) -> str:
    """The path of the module that a node came from."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = stack[-1][0] if stack else ""
    return path.removeprefix("L['self'].").removeprefix("L['self']")


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern with one ``*`` at most names a tensor."""
    before, star, after = pattern.partition("*")
    return name == pattern if not star else name.startswith(before) and name.endswith(after)


def prove(torch: Any, model: Model, module: Any, sample: Any, walk: Walk) -> None:
    """Compares the layers with the module on random weights and samples: what differs is not handed on."""
    generator = torch.Generator().manual_seed(0)
    copied = copy.deepcopy(module).cpu().eval()
    with torch.no_grad():
        for name, array in copied.state_dict().items():
            if array.is_floating_point():
                noise = torch.rand(array.shape, generator=generator, dtype=torch.float64).to(array.dtype)
                # Spread around what is there: otherwise scales of 1 and means of 0 would hide what is left out.
                array.copy_((noise + 0.5) if name.endswith("running_var") else array + 0.2 * (noise - 0.5))
    x = random_samples(torch, model, copied, sample, generator)
    expected, close = outputs(torch, copied, x)
    if walk.ends_in_logarithms:
        expected = np.exp(expected)
    found = model.scores(copied, x)
    expected = expected.reshape(found.shape)
    scale = max(float(np.abs(expected).max()), 1e-30)
    difference = float(np.abs(found - expected).max()) / scale
    if not difference <= close:
        raise wrong("model", f"the module's scores to {close:g}", f"a relative difference of {difference:.3g}: please report this model")


def random_samples(torch: Any, model: Model, module: Any, sample: Any, generator: Any) -> Any:
    """Random samples of the kind of ``sample``: integers where an embedding takes them."""
    count = min(COMPARED, max(COMPARED_NUMBERS // size_of(sample.shape), 4))
    shape = (count, *sample.shape[1:])
    if sample.is_floating_point():
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(sample.dtype)
    state = module.state_dict()
    rows = [state[layer["weight"]].shape[0] for layer in model.layers if layer["kind"] == "embedding"]
    return torch.randint(0, min(rows, default=2), shape, generator=generator).to(sample.dtype)


def outputs(torch: Any, module: Any, x: Any) -> tuple[np.ndarray, float]:
    """The module's scores in double precision, if it can, and how close others must be."""
    with torch.no_grad():
        try:
            doubled = copy.deepcopy(module).double()
            found = doubled(x.double() if x.is_floating_point() else x)
            return found.double().numpy(), CLOSE
        except RuntimeError:
            # Something in it insists on single precision.
            return module(x).double().numpy(), CLOSE_SINGLE
