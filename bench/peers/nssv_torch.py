"""Tests every coalition model of a run directory with PyTorch, one model at a time, as the paper's NSSV does.

    python nssv_torch.py RUN [--loader dataloader|tensors] [--batch 64] [--rounds T] [--threads N] [--utilities FILE]

--loader dataloader: a torch DataLoader over the samples, which fetches and collates them one by one for each model;
this is how the paper's experiments evaluate a model.
--loader tensors: slices of one tensor instead, the best that per-model evaluation in PyTorch can do.
Prints seconds (wall and CPU) for reading, for testing all models, and writes the counts of right predictions with
--utilities, in the same shape as `secsv evaluate --json`, to compare.
Needs: torch, safetensors.
"""

import argparse
import itertools
import json
import time
import tomllib
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Square(nn.Module):
    def forward(self, x):
        return x * x


class LastState(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.gru = nn.GRU(features, hidden, batch_first=True)

    def forward(self, x):
        return self.gru(x)[1][0]


class Network(nn.Module):
    """The layers of a federation.toml, with a map from the names in its files to parameters."""

    def __init__(self, spec, state):
        super().__init__()
        self.layers = nn.ModuleList()
        self.names = {}
        for table in spec["layers"]:
            self.add(table, state)

    def add(self, table, state):
        kind, place = table["kind"], len(self.layers)
        if kind == "linear":
            outputs, inputs = state[table["weight"]].shape
            layer = nn.Linear(inputs, outputs, bias="bias" in table)
        elif kind == "conv2d":
            outputs, inputs, height, width = state[table["weight"]].shape
            stride, padding = table.get("stride", 1), table.get("padding", 0)
            layer = nn.Conv2d(inputs, outputs, (height, width), stride, padding, bias="bias" in table)
        elif kind == "gru":
            gates, features = state[table["weight_ih"]].shape
            layer = LastState(features, gates // 3)
            for key in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                self.names[table[key]] = f"layers.{place}.gru.{key}_l0"
        else:
            layer = {
                "relu": nn.ReLU,
                "sigmoid": nn.Sigmoid,
                "tanh": nn.Tanh,
                "square": Square,
                "softmax": lambda: nn.Softmax(-1),
                "flatten": nn.Flatten,
            }[kind]()
        if kind in ("linear", "conv2d"):
            for key in ("weight", "bias"):
                if key in table:
                    self.names[table[key]] = f"layers.{place}.{key}"
        self.layers.append(layer)

    def load(self, state):
        self.load_state_dict({self.names[name]: tensor for name, tensor in state.items()})

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def right(model, batches):
    count = 0
    with torch.no_grad():
        for x, y in batches:
            count += (model(x).argmax(1) == y).sum().item()
    return count


def train_size(client, round_number):
    overrides = {o["round"]: o["train_size"] for o in client.get("rounds", [])}
    return overrides.get(round_number, client["train_size"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--loader", choices=["dataloader", "tensors"], default="dataloader")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--utilities", type=Path)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)

    begin = time.perf_counter()
    spec = tomllib.loads((args.run / "federation.toml").read_text())
    clients = {client["id"]: client for client in spec["clients"]}
    sets = [load_file(args.run / "clients" / name / "test.safetensors") for name in clients]
    x, y = torch.cat([s["x"] for s in sets]), torch.cat([s["y"] for s in sets])
    data = TensorDataset(x, y)
    model = Network(spec["model"], load_file(args.run / "initial.safetensors")).eval()
    if args.loader == "dataloader":
        batches = DataLoader(data, batch_size=args.batch)
    else:
        batches = [(x[i : i + args.batch], y[i : i + args.batch]) for i in range(0, len(x), args.batch)]
    print(f"read {time.perf_counter() - begin:.2f} s, {len(y)} samples")

    begin, begin_cpu, tests, utilities = time.perf_counter(), time.process_time(), 0, []
    for number in range(1, (args.rounds or spec["rounds"]) + 1):
        local = {}
        for name in clients:
            file = args.run / "clients" / name / f"round-{number:04d}.safetensors"
            if file.exists():
                local[name] = load_file(file)
        for size in range(1, len(local) + 1):
            for coalition in itertools.combinations(sorted(local), size):
                sizes = [train_size(clients[name], number) for name in coalition]
                mean = {
                    key: sum(local[name][key] * (size / sum(sizes)) for name, size in zip(coalition, sizes))
                    for key in local[coalition[0]]
                }
                model.load(mean)
                count = right(model, batches)
                utilities.append({"round": number, "coalition": list(coalition), "correct": count, "total": len(y)})
                tests += 1
    wall, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    print(f"{args.loader}: {tests} models, {wall:.2f} s wall, {cpu:.2f} s CPU, {torch.get_num_threads()} threads")
    if args.utilities:
        args.utilities.write_text(json.dumps({"utilities": utilities}))


if __name__ == "__main__":
    main()
