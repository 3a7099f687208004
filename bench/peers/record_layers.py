"""Records small PyTorch networks of every layer kind that a plain nn.Sequential does not cover.

Each case becomes <name>.toml (the [model] table of a federation.toml, written here by hand), <name>.model.safetensors
(the state dict as PyTorch saves it) and <name>.io.safetensors (x: inputs, y: outputs in double precision, y_single: in
single precision). Batch norms have seen batches before. The tests of crates/federation hold our inference to these.

    python record_layers.py crates/federation/tests/recorded
Needs: torch, safetensors, numpy. Recorded with the versions that VERSIONS_LAYERS in the output directory names.
"""

import sys
from pathlib import Path

import numpy
import safetensors
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

SAMPLES = 5


def layer(kind, tensors="", name=None, of=None, bias=True, **keys):
    """One [[layers]] table. `tensors` is the module's name in the state dict."""
    lines = ["[[layers]]", f'kind = "{kind}"']
    if name:
        lines.append(f'name = "{name}"')
    if of:
        lines.append("from = [" + ", ".join(f'"{one}"' for one in of) + "]")
    if kind == "batch-norm":
        lines += [f'weight = "{tensors}.weight"', f'bias = "{tensors}.bias"']
        lines += [f'mean = "{tensors}.running_mean"', f'variance = "{tensors}.running_var"']
    elif kind in ("lstm", "gru"):
        module, number = tensors
        lines += [f'{key} = "{module}.{key}_l{number}"' for key in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    elif tensors:
        lines.append(f'weight = "{tensors}.weight"')
        if bias and kind != "embedding":
            lines.append(f'bias = "{tensors}.bias"')
    for key, value in keys.items():
        lines.append(f"{key} = {str(value).lower() if isinstance(value, bool) else value}")
    return lines


class Blitz(nn.Module):
    """The network of PyTorch's 60-minute blitz, narrower."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 4, 5), nn.Conv2d(4, 6, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(6 * 5 * 5, 20), nn.Linear(20, 12), nn.Linear(12, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = torch.flatten(x, 1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


BLITZ = [
    layer("conv2d", "conv1"), layer("relu"), layer("max-pool2d", size=2),
    layer("conv2d", "conv2"), layer("relu"), layer("max-pool2d", size=2), layer("flatten"),
    layer("linear", "fc1"), layer("relu"), layer("linear", "fc2"), layer("relu"), layer("linear", "fc3"),
]


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(1, 3, 5, padding=2), nn.Conv2d(3, 5, 5)
        self.f1, self.f2 = nn.Linear(5 * 5 * 5, 16), nn.Linear(16, 10)

    def forward(self, x):
        x = F.avg_pool2d(torch.tanh(self.c1(x)), 2)
        x = F.avg_pool2d(torch.tanh(self.c2(x)), 2)
        return self.f2(torch.tanh(self.f1(x.flatten(1))))


LENET = [
    layer("conv2d", "c1", padding=2), layer("tanh"), layer("avg-pool2d", size=2),
    layer("conv2d", "c2"), layer("tanh"), layer("avg-pool2d", size=2), layer("flatten"),
    layer("linear", "f1"), layer("tanh"), layer("linear", "f2"),
]


class ConvBatchNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(2, 5, 3, padding=1), nn.BatchNorm2d(5)
        self.fc, self.bn1, self.out = nn.Linear(5 * 4 * 4, 9), nn.BatchNorm1d(9, eps=1e-3), nn.Linear(9, 3)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn(self.conv(x))), 2)
        return self.out(F.dropout(F.relu(self.bn1(self.fc(x.flatten(1)))), training=self.training))


CONV_BATCH_NORM = [
    layer("conv2d", "conv", padding=1), layer("batch-norm", "bn"), layer("relu"), layer("max-pool2d", size=2),
    layer("flatten"), layer("linear", "fc"), layer("batch-norm", "bn1", epsilon=0.001), layer("relu"),
    layer("dropout"), layer("linear", "out"),
]


class Block(nn.Module):
    """A residual block, with a convolution on the shortcut where sizes change."""

    def __init__(self, inside, outside, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)
        self.shortcut = None
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(out + (x if self.shortcut is None else self.shortcut(x)))


class ResNet8(nn.Module):
    """Three residual blocks over 32x32 images, narrower than usual."""

    def __init__(self, widths=(4, 6, 8)):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, widths[0], 3, 1, 1, bias=False), nn.BatchNorm2d(widths[0])
        self.b1 = Block(widths[0], widths[0], 1)
        self.b2 = Block(widths[0], widths[1], 2)
        self.b3 = Block(widths[1], widths[2], 2)
        self.fc = nn.Linear(widths[2], 10)

    def forward(self, x):
        x = self.b3(self.b2(self.b1(F.relu(self.bn(self.conv(x))))))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


def block_layers(block, stride, shortcut):
    """Of a block whose input has the name `<block>.in`."""
    lines = [
        layer("conv2d", f"{block}.conv1", of=[f"{block}.in"], bias=False, stride=stride, padding=1),
        layer("batch-norm", f"{block}.bn1"), layer("relu"),
        layer("conv2d", f"{block}.conv2", bias=False, padding=1), layer("batch-norm", f"{block}.bn2", name=f"{block}.main"),
    ]
    other = f"{block}.in"
    if shortcut:
        other = f"{block}.short"
        lines += [
            layer("conv2d", f"{block}.shortcut.0", of=[f"{block}.in"], bias=False, stride=stride),
            layer("batch-norm", f"{block}.shortcut.1", name=other),
        ]
    return lines + [layer("add", of=[f"{block}.main", other])]


RESNET8 = [
    layer("conv2d", "conv", bias=False, padding=1), layer("batch-norm", "bn"), layer("relu", name="b1.in"),
    *block_layers("b1", 1, False), layer("relu", name="b2.in"),
    *block_layers("b2", 2, True), layer("relu", name="b3.in"),
    *block_layers("b3", 2, True), layer("relu"),
    layer("global-avg-pool"), layer("linear", "fc"),
]


class Separable(nn.Module):
    """Depthwise and pointwise convolutions, a grouped and a dilated one."""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(2, 4, 3, stride=2, padding=1)
        self.depth, self.point = nn.Conv2d(4, 8, 3, padding=1, groups=4), nn.Conv2d(8, 6, 1)
        self.group, self.wide = nn.Conv2d(6, 4, 3, groups=2), nn.Conv2d(4, 3, 2, dilation=2, padding=1)
        self.fc = nn.Linear(3, 4)

    def forward(self, x):
        x = F.relu6(self.point(self.depth(F.relu6(self.a(x)))))
        x = self.wide(F.silu(self.group(x)))
        return self.fc(x.mean((2, 3)))


SEPARABLE = [
    layer("conv2d", "a", stride=2, padding=1), layer("relu6"), layer("conv2d", "depth", padding=1, groups=4),
    layer("conv2d", "point"), layer("relu6"), layer("conv2d", "group", groups=2), layer("silu"),
    layer("conv2d", "wide", dilation=2, padding=1), layer("global-avg-pool"), layer("linear", "fc"),
]


class EmbeddingLstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm, self.fc = nn.Embedding(11, 4), nn.LSTM(4, 6, 2, batch_first=True), nn.Linear(6, 5)

    def forward(self, x):
        return self.fc(self.lstm(self.embed(x.long()))[0][:, -1])


EMBEDDING_LSTM = [
    layer("embedding", "embed"), layer("lstm", ("lstm", 0), sequence=True), layer("lstm", ("lstm", 1)), layer("linear", "fc"),
]


class TextCnn(nn.Module):
    """Parallel convolutions over a text, the largest of each, one output."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(13, 5)
        self.convs = nn.ModuleList(nn.Conv1d(5, 3, size, padding=size // 2) for size in (2, 3, 4))
        self.fc = nn.Linear(9, 1)

    def forward(self, x):
        x = self.embed(x.long()).permute(0, 2, 1)
        x = torch.cat([F.relu(conv(x)).max(2).values for conv in self.convs], 1)
        return torch.sigmoid(self.fc(x))


TEXT_CNN = [
    layer("embedding", "embed"), layer("transpose", name="text"),
    *sum(
        (
            [layer("conv1d", f"convs.{i}", of=["text"], padding=size // 2), layer("relu"), layer("global-max-pool", name=f"max{i}")]
            for i, size in enumerate((2, 3, 4))
        ),
        [],
    ),
    layer("concat", of=["max0", "max1", "max2"]), layer("linear", "fc"), layer("sigmoid"),
]


class Pointwise(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.ModuleList(nn.Linear(6, 6) for _ in range(7))
        self.norm, self.out = nn.LayerNorm(6), nn.Linear(6, 3)

    def forward(self, x):
        x = F.leaky_relu(self.l[0](x), 0.2)
        x = F.gelu(self.l[1](x))
        x = F.silu(self.norm(self.l[2](x)))
        x = F.elu(self.l[3](x), 0.7)
        x = F.relu6(self.l[4](x))
        x = F.hardtanh(self.l[5](x))
        return self.out(F.hardsigmoid(self.l[6](x)))


POINTWISE = [
    layer("linear", "l.0"), layer("leaky-relu", slope=0.2), layer("linear", "l.1"), layer("gelu"),
    layer("linear", "l.2"), layer("layer-norm", "norm"), layer("silu"), layer("linear", "l.3"), layer("elu", alpha=0.7),
    layer("linear", "l.4"), layer("relu6"), layer("linear", "l.5"), layer("hard-tanh"), layer("linear", "l.6"),
    layer("hard-sigmoid"), layer("linear", "out"),
]


class Dense(nn.Module):
    """Convolutions that each take what all before them handed on."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(5, 3, 3, padding=1)
        self.norm, self.c = nn.BatchNorm2d(8), nn.Conv2d(8, 4, 1)
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        one = torch.cat([x, F.relu(self.a(x))], 1)
        two = torch.cat([one, F.relu(self.b(one))], 1)
        return self.fc(F.avg_pool2d(F.relu(self.c(self.norm(two))), 3, 2, 1).amax((2, 3)))


DENSE = [
    layer("conv2d", "a", padding=1), layer("relu", name="first"), layer("concat", name="one", of=["input", "first"]),
    layer("conv2d", "b", padding=1), layer("relu", name="second"), layer("concat", of=["one", "second"]),
    layer("batch-norm", "norm"), layer("conv2d", "c"), layer("relu"), layer("avg-pool2d", size=3, stride=2, padding=1),
    layer("global-max-pool"), layer("linear", "fc"),
]


class Signals(nn.Module):
    """One-dimensional convolutions and pools, and a normalisation over two dimensions."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv1d(2, 4, 5, stride=2, padding=2), nn.Conv1d(4, 6, 3, groups=2, dilation=2)
        self.norm, self.fc = nn.LayerNorm([6, 3]), nn.Linear(6, 3)

    def forward(self, x):
        x = F.max_pool1d(F.relu(self.a(x)), 3, 1, 1)
        x = F.avg_pool1d(self.b(x), 2)
        return self.fc(self.norm(x).mean(2))


SIGNALS = [
    layer("conv1d", "a", stride=2, padding=2), layer("relu"), layer("max-pool1d", size=3, stride=1, padding=1),
    layer("conv1d", "b", groups=2, dilation=2), layer("avg-pool1d", size=2), layer("layer-norm", "norm"),
    layer("global-avg-pool"), layer("linear", "fc"),
]


class Logistic(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(13, 1)

    def forward(self, x):
        return torch.sigmoid(self.linear(x))


LOGISTIC = [layer("linear", "linear"), layer("sigmoid")]

torch.manual_seed(23)
#        input, classes, module, layers, integers below (or none)
CASES = {
    "blitz": ([3, 32, 32], 10, Blitz(), BLITZ, None),
    "lenet": ([1, 28, 28], 10, LeNet(), LENET, None),
    "conv_batch_norm": ([2, 8, 8], 3, ConvBatchNorm(), CONV_BATCH_NORM, None),
    "resnet8": ([3, 32, 32], 10, ResNet8(), RESNET8, None),
    "separable": ([2, 11, 9], 4, Separable(), SEPARABLE, None),
    "embedding_lstm": ([7], 5, EmbeddingLstm(), EMBEDDING_LSTM, 11),
    "text_cnn": ([9], 2, TextCnn(), TEXT_CNN, 13),
    "pointwise": ([6], 3, Pointwise(), POINTWISE, None),
    "dense": ([2, 7, 6], 3, Dense(), DENSE, None),
    "signals": ([2, 20], 3, Signals(), SIGNALS, None),
    "one_output": ([13], 2, Logistic(), LOGISTIC, None),
}


def inputs(shape, below, samples):
    if below is None:
        return torch.rand(samples, *shape) * 4 - 2
    return torch.randint(0, below, (samples, *shape)).float()


def record(directory, name, shape, classes, module, layers, below):
    module.train()
    with torch.no_grad():
        # Batch norms get means and variances of their own, and are weighted unevenly.
        for norm in (m for m in module.modules() if isinstance(m, (nn.BatchNorm1d, nn.BatchNorm2d, nn.LayerNorm))):
            norm.weight.uniform_(0.5, 1.5)
            norm.bias.uniform_(-0.5, 0.5)
        for _ in range(3):
            module(inputs(shape, below, 16))
    module.eval()
    x = inputs(shape, below, SAMPLES)
    save_file(module.state_dict(), directory / f"{name}.model.safetensors", metadata={"format": "pt"})
    with torch.no_grad():
        single = module(x)
        double = module.double()(x.double())
    assert torch.allclose(single.double(), double, atol=1e-4, rtol=1e-4), name
    save_file(
        {"x": x, "y": double.contiguous(), "y_single": single.contiguous()}, directory / f"{name}.io.safetensors"
    )
    lines = [f"input = {shape}", f"classes = {classes}"] + sum(layers, [])
    (directory / f"{name}.toml").write_text("\n".join(lines) + "\n")


def main():
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, case in CASES.items():
        record(directory, name, *case)
    versions = f"torch {torch.__version__}, safetensors {safetensors.__version__}, numpy {numpy.__version__}\n"
    (directory / "VERSIONS_LAYERS").write_text(versions)


if __name__ == "__main__":
    main()
