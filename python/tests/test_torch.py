"""Modules of PyTorch: what has layers is computed as the module does, what has none is refused by operator and module."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: its modules are not tested")

import numpy as np
from torch import nn
from torch.nn import functional as F

import secsv
from secsv import _torch


class Blitz(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2, self.pool = nn.Conv2d(3, 6, 5), nn.Conv2d(6, 16, 5), nn.MaxPool2d(2, 2)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = self.pool(F.relu(self.conv2(self.pool(F.relu(self.conv1(x))))))
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.view(-1, 400))))))


class Residual(nn.Module):
    """Batch norm, a shortcut by a projection, another by the identity, a joined end."""

    def __init__(self):
        super().__init__()
        self.a, self.bn = nn.Conv2d(2, 4, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(4)
        self.short, self.b = nn.Conv2d(2, 4, 1, stride=2), nn.Conv2d(4, 4, 3, padding="same", groups=2)
        self.end = nn.Linear(8, 3)

    def forward(self, x):
        y = F.relu(self.bn(self.a(x)) + self.short(x))
        z = y + self.b(y)
        both = torch.cat([z, y], dim=1)
        return self.end(both.mean([2, 3]))


class Texts(nn.Module):
    """Parallel convolutions over an embedding."""

    def __init__(self):
        super().__init__()
        self.words, self.end = nn.Embedding(50, 6), nn.Linear(8, 2)
        self.threes, self.fours = nn.Conv1d(6, 4, 3), nn.Conv1d(6, 4, 4)

    def forward(self, x):
        x = self.words(x).permute(0, 2, 1)
        found = [F.relu(conv(x)).amax(dim=2) for conv in (self.threes, self.fours)]
        return self.end(torch.cat(found, dim=1))


class Recurrent(nn.Module):
    def __init__(self, kind, layers=1, last="step", words=False):
        super().__init__()
        self.words = nn.Embedding(20, 5) if words else nn.Identity()
        self.rnn = kind(5, 7, num_layers=layers, batch_first=True)
        self.end, self.last = nn.Linear(7, 4), last

    def forward(self, x):
        states, hidden = self.rnn(self.words(x))
        hidden = hidden[0] if isinstance(hidden, tuple) else hidden
        return self.end({"step": lambda: states[:, -1], "hidden": lambda: hidden[-1], "first": lambda: states[:, 0]}[self.last]())


class Square(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        x = self.a(x) ** 2
        return F.log_softmax(self.b(x * x), dim=1)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.b(torch.tanh(self.a(torch.tanh(self.a(x)))))


class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.head, self.auxiliary = nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(x)


class Own(nn.Module):
    """A forward that is a function of the module and the sample."""

    def __init__(self, forward, **parts):
        super().__init__()
        self.does = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.does(self, x)


def sequence(*layers):
    return nn.Sequential(*layers)


SUPPORTED = {
    "blitz": (Blitz(), (3, 32, 32)),
    "mlp": (sequence(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3)), (8,)),
    "lenet": (
        sequence(nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Sigmoid(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(400, 10), nn.Softmax(1)),
        (1, 28, 28),
    ),
    "separable": (sequence(nn.Conv2d(4, 4, 3, groups=4, dilation=2), nn.LeakyReLU(0.1), nn.Conv2d(4, 8, 1), nn.ELU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 5)), (4, 12, 12)),
    "others": (sequence(nn.Conv1d(3, 4, 3), nn.SiLU(), nn.MaxPool1d(2), nn.ReLU6(), nn.AvgPool1d(2), nn.Hardtanh(), nn.Flatten(), nn.Hardsigmoid(), nn.Linear(12, 4)), (3, 14)),
    "residual": (Residual(), (2, 9, 9)),
    "texts": (Texts(), "words"),
    "square": (Square(), (6,)),
    "tied": (Tied(), (8,)),
    "one score": (sequence(nn.Linear(13, 1), nn.Sigmoid()), (13,)),
    "one score, no dimension": (Own(lambda self, x: self.a(x).squeeze(1), a=nn.Linear(5, 1)), (5,)),
    "gru": (Recurrent(nn.GRU), (6, 5)),
    "gru, hidden": (Recurrent(nn.GRU, last="hidden"), (6, 5)),
    "lstm of two layers": (Recurrent(nn.LSTM, layers=2, words=True), "words"),
    "lstm, hidden": (Recurrent(nn.LSTM, last="hidden"), (6, 5)),
    "branch on a shape": (Own(lambda self, x: self.a(x) if x.shape[1] == 5 else x, a=nn.Linear(5, 3)), (5,)),
}


def example(shape):
    return torch.zeros((2, 11), dtype=torch.long) if shape == "words" else torch.zeros((1, *shape))


@pytest.mark.parametrize("name", SUPPORTED)
def test_layers_have_the_scores_of_the_module(name):
    """``from_torch`` proves it on other weights; here by the module's own, in single precision, and on predictions."""
    module, shape = SUPPORTED[name]
    model = secsv.Model.from_torch(module, example(shape))
    assert module.training
    module.eval()
    x = torch.randint(0, 20, (40, 11)) if shape == "words" else torch.randn(40, *shape)
    with torch.no_grad():
        scores = module(x).double().numpy()
    module.train()
    scores = np.exp(scores) if name == "square" else scores
    found = model.scores(module, x)
    assert np.abs(found - scores.reshape(found.shape)).max() <= 1e-4 * max(1, np.abs(scores).max())


REFUSED = {
    "group-norm (1)": (sequence(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(64, 2)), (2, 6, 6)),
    "conv2d with stride [2, 1] (0)": (sequence(nn.Conv2d(1, 2, 3, stride=(2, 1)), nn.Flatten(), nn.Linear(24, 2)), (1, 8, 6)),
    "product of values": (Own(lambda self, x: self.a(x) * torch.sigmoid(self.b(x)), a=nn.Linear(4, 2), b=nn.Linear(4, 2)), (4,)),
    "attention": (Own(lambda self, x: self.b(F.scaled_dot_product_attention(x, x, x).flatten(1)), b=nn.Linear(12, 2)), (3, 4)),
    "transposed convolution (0)": (sequence(nn.ConvTranspose2d(1, 1, 3), nn.Flatten(), nn.Linear(36, 2)), (1, 4, 4)),
    "LSTM in both directions (rnn)": (Own(lambda self, x: self.b(self.rnn(x)[0][:, -1]), rnn=nn.LSTM(3, 4, batch_first=True, bidirectional=True), b=nn.Linear(8, 2)), (5, 3)),
    "only the last hidden state can be": (Recurrent(nn.GRU, last="first"), (6, 5)),
    "begins with a state other than zeros": (Own(lambda self, x: self.b(self.rnn(x, torch.ones(1, x.shape[0], 4))[0][:, -1]), rnn=nn.GRU(3, 4, batch_first=True), b=nn.Linear(4, 2)), (5, 3)),
    "gelu by tanh (1)": (sequence(nn.Linear(4, 4), nn.GELU("tanh"), nn.Linear(4, 2)), (4,)),
    "that does not count padded zeros": (sequence(nn.AvgPool2d(3, padding=1, count_include_pad=False), nn.Flatten(), nn.Linear(4, 2)), (1, 5, 5)),
    "weights that are computed from others": (Own(lambda self, x: F.linear(x, self.a.weight * 2), a=nn.Linear(4, 2, bias=False)), (4,)),
    "takes auxiliary.weight, auxiliary.bias": (Unused(), (4,)),
    "a branch on the data": (Own(lambda self, x: self.a(x) if x.sum() > 0 else self.a(-x), a=nn.Linear(4, 2)), (4,)),
    "sum with a constant or a parameter": (Own(lambda self, x: self.a(x) + 1.0, a=nn.Linear(4, 2)), (4,)),
    "across samples": (Own(lambda self, x: self.a(x.reshape(1, -1)), a=nn.Linear(12, 2)), (4,)),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_has_no_layer_is_refused_by_name(said):
    module, shape = REFUSED[said]
    with pytest.raises(secsv.InputError) as caught:
        secsv.Model.from_torch(module, example(shape))
    assert said in str(caught.value)


def test_every_operator_is_named_at_once():
    module = sequence(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Hardswish(), nn.GroupNorm(1, 4), nn.Flatten(), nn.Linear(64, 2))
    with pytest.raises(secsv.Unsupported) as caught:
        secsv.Model.from_torch(module, torch.zeros(1, 2, 6, 6))
    assert caught.value.operators == {"group-norm": ["1", "3"], "hard-swish": ["2"]}
    assert "group-norm (1 and 1 more); hard-swish (2)" in str(caught.value)


def test_parameters_may_be_ignored_by_name():
    model = secsv.Model.from_torch(Unused(), torch.zeros(1, 4), ignore=["auxiliary.*"])
    assert model.ignore == ["auxiliary.*"] and len(model.layers) == 1


def test_a_wrong_layer_does_not_pass_the_proof(monkeypatch):
    """Attack: a converter that leaves an activation out, or takes a maximum for a mean."""
    monkeypatch.setitem(_torch.PLAIN, "relu", "identity")
    with pytest.raises(secsv.InputError, match="the module's scores"):
        secsv.Model.from_torch(sequence(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), torch.zeros(1, 4))
    monkeypatch.setitem(_torch.RULES, "max_pool2d", _torch.pool("avg-pool2d"))
    with pytest.raises(secsv.InputError, match="the module's scores"):
        secsv.Model.from_torch(sequence(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(9, 2)), torch.zeros(1, 1, 6, 6))


def test_a_federation_of_modules_is_valued(tmp_path):
    torch.manual_seed(3)
    model = secsv.Model.from_torch(SUPPORTED["blitz"][0], torch.zeros(1, 3, 32, 32))
    with secsv.Run.create(tmp_path / "run", name="blitz", model=model) as run:
        run.start_of(1, Blitz())
        for silo in ("a", "b", "c"):
            run.record(1, silo, Blitz(), weight=5)
            run.test(silo, torch.randn(4, 3, 32, 32), torch.randint(0, 10, (4,)))
    result = secsv.evaluate(run, protocol="nssv")
    assert len(result.utilities) == 8


def test_a_module_is_described_on_the_command_line(tmp_path, capsys, monkeypatch):
    from secsv._init import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_models.py").write_text("from torch import nn\ndef net():\n    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))\n")
    assert main(["--torch", "own_models:net", "--input", "4"]) == 0
    said = capsys.readouterr().out
    assert said.count("[[model.layers]]") == 3 and 'weight = "0.weight"' in said and "classes = 2" in said
    for arguments in (["--torch", "own_models:none", "--input", "4"], ["--torch", "own_models:net"], ["--torch", "net", "--input", "4"]):
        with pytest.raises(secsv.InputError):
            main(arguments)
