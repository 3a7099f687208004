"""Trains networks that people really train with PyTorch and scikit-learn, as federations, and counts by itself.

    python networks.py write OUT [NAME ...]     trains; OUT/<name> is a run directory, OUT/<name>.counts.json the counts
    python networks.py compare OUT RESULTS      compares RESULTS/<name>.json with them

Results are of `secsv evaluate OUT/<name> --format json`, or of `cargo run -p secsv-federation --example counts OUT/<name>`.

Counts are right predictions of every coalition of every round, computed with PyTorch in double precision from averaged
state dicts: an implementation of its own. Needs torch, safetensors, numpy, scikit-learn, and SECSV_DATA, a directory with
small/digits.csv.gz, small/breast_cancer.csv and heart/processed.*.data.
"""

import copy
import gzip
import itertools
import json
import os
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

import record_layers as small
from record_layers import layer

DATA = Path(os.environ["SECSV_DATA"])
ROUNDS, SILOS = 2, 5


def digits(size, channels=1):
    """Scanned digits, enlarged and padded to images of this size."""
    table = np.loadtxt(gzip.open(DATA / "small/digits.csv.gz"), delimiter=",", dtype=np.float32)
    images, labels = table[:, :-1].reshape(-1, 1, 8, 8) / 16, table[:, -1]
    scale = size // 8
    images = images.repeat(scale, 2).repeat(scale, 3)
    pad = size - 8 * scale
    images = np.pad(images, ((0, 0), (0, 0), (pad // 2, pad - pad // 2), (pad // 2, pad - pad // 2)))
    return images.repeat(channels, 1), labels.astype(np.int64)


def pixels():
    """The same as sequences of 64 integers from 0 to 16."""
    table = np.loadtxt(gzip.open(DATA / "small/digits.csv.gz"), delimiter=",", dtype=np.float32)
    return table[:, :-1], table[:, -1].astype(np.int64)


def breast_cancer():
    table = np.loadtxt(DATA / "small/breast_cancer.csv", delimiter=",", skiprows=1)
    x, y = table[:, :-1], table[:, -1].astype(np.int64)
    return ((x - x.mean(0)) / x.std(0)).astype(np.float32), y


def heart():
    """Four hospitals; columns and their treatment as FLamby's heart disease has them, roughly: 13 numbers, standardised."""
    rows = []
    for file in sorted((DATA / "heart").glob("processed.*.data")):
        for line in file.read_text().split():
            values = [np.nan if v == "?" else float(v) for v in line.split(",")]
            if not np.isnan(values[:10]).any():
                rows.append(np.nan_to_num(values))
    table = np.array(rows)
    x, y = table[:, :13], (table[:, 13] > 0).astype(np.int64)
    return ((x - x.mean(0)) / (x.std(0) + 1e-9)).astype(np.float32), y


class WideBlitz(nn.Module):
    """PyTorch's 60-minute blitz, as its tutorial has it."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 6, 5), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(16 * 5 * 5, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    forward = small.Blitz.forward


class ConvNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.fc, self.bn1, self.out = nn.Linear(8 * 4 * 4, 32), nn.BatchNorm1d(32, eps=1e-3), nn.Linear(32, 10)

    forward = small.ConvBatchNorm.forward


class Mobile(nn.Module):
    """Depthwise-separable convolutions without batch norm."""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(1, 8, 3, stride=2, padding=1)
        self.depth, self.point = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 16, 1)
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        x = F.relu6(self.a(x))
        return self.fc(F.relu6(self.point(F.relu6(self.depth(x)))).mean((2, 3)))


MOBILE = [
    layer("conv2d", "a", stride=2, padding=1), layer("relu6"), layer("conv2d", "depth", padding=1, groups=8),
    layer("relu6"), layer("conv2d", "point"), layer("relu6"), layer("global-avg-pool"), layer("linear", "fc"),
]


class PixelLstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm, self.fc = nn.Embedding(17, 6), nn.LSTM(6, 16, batch_first=True), nn.Linear(16, 10)

    def forward(self, x):
        return self.fc(self.lstm(self.embed(x.long()))[0][:, -1])


PIXEL_LSTM = [layer("embedding", "embed"), layer("lstm", ("lstm", 0)), layer("linear", "fc")]


class OneOutput(nn.Module):
    """FLamby's baseline for heart disease."""

    def __init__(self, features=13):
        super().__init__()
        self.linear = nn.Linear(features, 1)

    def forward(self, x):
        return torch.sigmoid(self.linear(x))


NETWORKS = {
    "blitz": (lambda: digits(32, 3), WideBlitz, small.BLITZ, 10),
    "lenet": (lambda: digits(28), small.LeNet, small.LENET, 10),
    "conv_norm": (lambda: digits(8), ConvNorm, small.CONV_BATCH_NORM, 10),
    "resnet8": (lambda: digits(32, 3), lambda: small.ResNet8((8, 16, 32)), small.RESNET8, 10),
    "mobile": (lambda: digits(8), Mobile, MOBILE, 10, 25),
    "lstm": (pixels, PixelLstm, PIXEL_LSTM, 10, 25),
    "heart": (heart, OneOutput, small.LOGISTIC, 2),
    "sklearn": (breast_cancer, None, [layer("linear", "coef", bias=False)], 2),
}


def train(module, x, y, seed, epochs):
    torch.manual_seed(seed)
    module.train()
    steps = torch.optim.Adam(module.parameters(), lr=2e-3)
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(32):
            if len(batch) < 2:
                continue
            scores = module(x[batch])
            if scores.shape[1] == 1:
                loss = F.binary_cross_entropy(scores[:, 0], y[batch].float())
            else:
                loss = F.cross_entropy(scores, y[batch])
            steps.zero_grad()
            loss.backward()
            steps.step()


def fit_sklearn(state, x, y):
    """scikit-learn's own binary logistic regression: coef_ (1, features) and intercept_ (1,), in double precision."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(max_iter=20, C=0.5).fit(x.astype(np.float64), y)
    return {"coef_": torch.from_numpy(model.coef_.copy()), "intercept_": torch.from_numpy(model.intercept_.copy())}


def mean(states, weights):
    """The weighted mean of all numbers; counts of batches are averaged too, as FedAvg does."""
    total = sum(weights)
    return {
        key: sum(w * s[key].double() for s, w in zip(states, weights)) / total
        for key in states[0]
    }


def right(make, state, x, y):
    """How many samples a model predicts right, in double precision."""
    x = torch.from_numpy(x).double()
    if make is None:
        scores = x @ state["coef_"].double().T + state["intercept_"].double()
    else:
        module = make().double().eval()
        module.load_state_dict({k: v.to(module.state_dict()[k].dtype) for k, v in state.items()})
        with torch.no_grad():
            scores = torch.cat([module(part) for part in x.split(64)])
    if scores.shape[1] == 1:
        above = 0.5 if make is not None else 0.0
        predicted = (scores[:, 0] > above).long()
    else:
        predicted = scores.argmax(1)
    return int((predicted == torch.from_numpy(y)).sum())


def federation_toml(name, shape, classes, tables, weights):
    lines = [f'name = "{name}"', f"rounds = {ROUNDS}", "[model]", f"input = {list(shape)}", f"classes = {classes}"]
    for table in tables:
        lines += ["[[model.layers]]"] + table[1:]
    for i, weight in enumerate(weights):
        lines += ["[[clients]]", f'id = "silo-{i}"', f"train_size = {weight}"]
    return "\n".join(lines) + "\n"


def single(state):
    """As PyTorch keeps it: single precision, counts as integers. scikit-learn's numbers stay double."""
    if "coef_" in state:
        return state
    return {k: (v.round().long() if k.endswith("num_batches_tracked") else v.float()).contiguous() for k, v in state.items()}


def write(out, name):
    load, make, tables, classes, *epochs = NETWORKS[name]
    x, y = load()
    order = np.random.default_rng(5).permutation(len(x))
    x, y = np.ascontiguousarray(x[order]), y[order]
    test = min(len(x) // 4, 150)
    cuts = np.array_split(np.arange(test, len(x)), SILOS)
    tests = np.array_split(np.arange(test), SILOS)
    weights = [len(cut) for cut in cuts]
    run = out / name
    for i in range(SILOS):
        (run / f"clients/silo-{i}").mkdir(parents=True, exist_ok=True)
        part = tests[i]
        save_file(
            {"x": torch.from_numpy(x[part]), "y": torch.from_numpy(y[part]).to(torch.int32)[:, None]},
            run / f"clients/silo-{i}/test.safetensors",
        )
    if make is None:
        tables = [["", 'kind = "linear"', 'weight = "coef_"', 'bias = "intercept_"']]
        state = {"coef_": torch.zeros(1, x.shape[1]).double(), "intercept_": torch.zeros(1).double()}
    else:
        torch.manual_seed(1)
        state = single(make().state_dict())
    (run / "federation.toml").write_text(federation_toml(name, x.shape[1:], classes, tables, weights))
    save_file(state, run / "initial.safetensors")
    counts = {}
    held = (x[:test], y[:test])
    counts["1:"] = right(make, state, *held)
    for number in range(1, ROUNDS + 1):
        states = []
        for i, cut in enumerate(cuts):
            if make is None:
                part = cut[(number - 1) * len(cut) // ROUNDS : number * len(cut) // ROUNDS]
                local = fit_sklearn(state, x[part], y[part])
            else:
                module = make()
                module.load_state_dict(state)
                train(module, x[cut], y[cut], 100 * number + i, *(epochs or [3]))
                local = copy.deepcopy(module.state_dict())
            states.append(local)
            save_file(single(local), run / f"clients/silo-{i}/round-{number:04d}.safetensors")
        for size in range(1, SILOS + 1):
            for members in itertools.combinations(range(SILOS), size):
                model = mean([states[i] for i in members], [weights[i] for i in members])
                counts[f"{number}:" + ",".join(f"silo-{i}" for i in members)] = right(make, model, *held)
        aggregate = mean(states, weights)
        (run / "global").mkdir(exist_ok=True)
        state = single(aggregate)
        save_file(state, run / f"global/round-{number:04d}.safetensors")
    (out / f"{name}.counts.json").write_text(json.dumps(counts))
    print(f"{name}: {len(counts)} coalitions, {counts['1:']} to {counts[f'{ROUNDS}:' + ','.join(f'silo-{i}' for i in range(SILOS))]} of {test} right")


def compare(out, results):
    for file in sorted(results.glob("*.json")):
        name = file.stem.split(".")[0]
        expected = json.loads((out / f"{name}.counts.json").read_text())
        result = json.loads(file.read_text())
        found = result
        if "utilities" in result:
            found = {f"{u['round']}:" + ",".join(u["coalition"]): u["correct"] for u in result["utilities"]}
        differ = [(key, expected[key], found[key]) for key in expected if found.get(key, expected[key]) != expected[key]]
        missing = set(expected) - set(found)
        worst = max((abs(a - b) for _, a, b in differ), default=0)
        print(f"{file.stem}: {len(expected)} counts, {len(differ)} differ (worst {worst}), {len(missing)} missing")


def main():
    command, out, *rest = sys.argv[1:]
    if command == "write":
        for name in rest or NETWORKS:
            write(Path(out), name)
    else:
        compare(Path(out), Path(rest[0]))


if __name__ == "__main__":
    main()
