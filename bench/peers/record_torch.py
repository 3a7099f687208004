"""Records small PyTorch models of every layer kind, their inputs and their outputs.

Each case becomes <name>.toml (the [model] table of a federation.toml), <name>.model.safetensors (the state dict as
PyTorch saves it) and <name>.io.safetensors (x: inputs, y: outputs in double precision). The tests of
crates/federation hold our inference to these outputs.

    python record_torch.py crates/federation/tests/recorded
Needs: torch, safetensors, numpy. Recorded with the versions that VERSIONS in the output directory names.
"""

import sys
from pathlib import Path

import numpy
import safetensors
import torch
from safetensors.torch import save_file
from torch import nn

SAMPLES = 7


class Square(nn.Module):
    def forward(self, x):
        return x * x


class LastState(nn.Module):
    """A GRU that hands on its last hidden state."""

    def __init__(self, features, hidden, bias=True):
        super().__init__()
        self.gru = nn.GRU(features, hidden, batch_first=True, bias=bias)

    def forward(self, x):
        return self.gru(x)[1][0]


def layer_tables(model):
    """The layers of an nn.Sequential as federation.toml describes them."""
    for name, layer in model.named_children():
        bias = getattr(layer, "bias", None) is not None
        if isinstance(layer, nn.Linear):
            yield {"kind": "linear", "weight": f"{name}.weight"} | ({"bias": f"{name}.bias"} if bias else {})
        elif isinstance(layer, nn.Conv2d):
            yield (
                {"kind": "conv2d", "weight": f"{name}.weight"}
                | ({"bias": f"{name}.bias"} if bias else {})
                | {"stride": layer.stride[0], "padding": layer.padding[0]}
            )
        elif isinstance(layer, LastState):
            keys = ["weight_ih", "weight_hh"] + (["bias_ih", "bias_hh"] if layer.gru.bias else [])
            yield {"kind": "gru"} | {key: f"{name}.gru.{key}_l0" for key in keys}
        else:
            yield {"kind": type(layer).__name__.lower()}


def named(*layers):
    return nn.Sequential(*layers)


torch.manual_seed(20)
CASES = {
    "logistic": ([48], named(nn.Linear(48, 2), nn.Sigmoid())),
    "mnist_cnn": (
        [1, 28, 28],
        named(
            nn.Conv2d(1, 4, 7, stride=3), Square(), nn.Flatten(), nn.Linear(256, 64), Square(), nn.Linear(64, 10)
        ),
    ),
    "padded_cnn": (
        [3, 9, 7],
        named(
            nn.Conv2d(3, 5, (3, 2), stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(5, 4, 2, padding=2, bias=False),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(4 * 8 * 7, 3),
        ),
    ),
    "mirna_gru": ([10, 64], named(LastState(64, 32), nn.Linear(32, 2))),
    "gru_in_between": (
        [6, 5],
        named(nn.Linear(5, 4), nn.Tanh(), LastState(4, 7, bias=False), nn.ReLU(), nn.Linear(7, 3), nn.Softmax(-1)),
    ),
    "dnn": (
        [20],
        named(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 16), nn.Sigmoid(), nn.Linear(16, 4, bias=False), nn.Softmax(-1)),
    ),
}


def toml_value(value):
    return f'"{value}"' if isinstance(value, str) else str(value)


def record(directory, name, shape, model):
    # The numbers are those of single-precision files; the outputs are computed in double precision.
    x = torch.rand(SAMPLES, *shape) * 2 - 1
    save_file(model.state_dict(), directory / f"{name}.model.safetensors", metadata={"format": "pt"})
    with torch.no_grad():
        single = model(x)
        double = model.double()(x.double())
    assert torch.allclose(single.double(), double, atol=1e-5, rtol=1e-5), name
    save_file({"x": x, "y": double, "y_single": single}, directory / f"{name}.io.safetensors")
    lines = [f"input = {shape}", f"classes = {double.shape[1]}"]
    for table in layer_tables(model):
        lines.append("[[layers]]")
        lines += [f"{key} = {toml_value(value)}" for key, value in table.items()]
    (directory / f"{name}.toml").write_text("\n".join(lines) + "\n")


def main():
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, (shape, model) in CASES.items():
        record(directory, name, shape, model)
    versions = f"torch {torch.__version__}, safetensors {safetensors.__version__}, numpy {numpy.__version__}\n"
    (directory / "VERSIONS").write_text(versions)


if __name__ == "__main__":
    main()
