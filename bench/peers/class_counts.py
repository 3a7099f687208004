"""Counts right predictions of each class for every coalition of a run of one linear layer, and values every client by balanced
accuracy, with NumPy in double precision alone: an implementation of its own.

    python class_counts.py RUN               prints {"samples": [...], "right": {"1:": [...], "1:a,b": [...]}, "values": {...}}
    python class_counts.py RUN RESULT...     compares results of `secsv evaluate RUN --utility balanced-accuracy --json RESULT`

RUN is a run directory as `secsv train` writes it. Needs: numpy.
"""

import itertools
import json
import math
import sys
import tomllib
from pathlib import Path

import numpy as np

TYPES = {"F32": np.float32, "F64": np.float64, "I64": np.int64, "I32": np.int32, "U8": np.uint8}


def tensors(file):
    """The arrays of a safetensors file."""
    data = file.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        first, last = (8 + length + offset for offset in entry["data_offsets"])
        found[name] = np.frombuffer(data[first:last], TYPES[entry["dtype"]]).reshape(entry["shape"])
    return found


def samples(client):
    """All of a client's samples and their classes."""
    file = client / "test.safetensors"
    arrays = tensors(file) if file.exists() else np.load(client / "test.npz")
    return arrays["x"].astype(np.float64), np.asarray(arrays["y"]).reshape(-1).astype(np.int64)


def right(model, layer, x, y, classes):
    """How many samples of each class a model predicts right."""
    scores = x @ model[layer["weight"]].T
    if "bias" in layer:
        scores = scores + model[layer["bias"]]
    predicted = (scores[:, 0] > 0).astype(np.int64) if scores.shape[1] == 1 else scores.argmax(1)
    return [int(((predicted == y) & (y == label)).sum()) for label in range(classes)]


def count(run):
    spec = tomllib.loads((run / "federation.toml").read_text())
    layer, classes = spec["model"]["layers"][0], spec["model"]["classes"]
    ids = [client["id"] for client in spec["clients"]]
    sizes = {client["id"]: client.get("train_size", client.get("weight")) for client in spec["clients"]}
    parts = [samples(run / "clients" / client) for client in ids]
    x, y = np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])
    counts = {"1:": right(tensors(run / "initial.safetensors"), layer, x, y, classes)}
    for number in range(1, spec["rounds"] + 1):
        files = {client: run / "clients" / client / f"round-{number:04d}.safetensors" for client in ids}
        models = {client: tensors(file) for client, file in files.items() if file.exists()}
        for size in range(1, len(models) + 1):
            for members in itertools.combinations(sorted(models), size):
                total = sum(sizes[member] for member in members)
                mean = {
                    name: sum(sizes[m] * models[m][name].astype(np.float64) for m in members) / total
                    for name in models[members[0]]
                }
                counts[f"{number}:" + ",".join(members)] = right(mean, layer, x, y, classes)
    of_classes = [int((y == label).sum()) for label in range(classes)]
    return {"samples": of_classes, "right": counts, "values": values(counts, of_classes, sorted(ids))}


def values(counts, of_classes, ids):
    """Shapley values of balanced accuracy, over all rounds; everybody is there in every round."""
    worth = {key: float(np.mean(np.array(right) / np.array(of_classes))) for key, right in counts.items()}
    total, before = dict.fromkeys(ids, 0.0), worth["1:"]
    for number in range(1, max(int(key.split(":")[0]) for key in counts) + 1):
        for client in ids:
            others = [other for other in ids if other != client]
            for size in range(len(ids)):
                weight = 1 / (len(ids) * math.comb(len(others), size))
                for members in itertools.combinations(others, size):
                    own = worth[f"{number}:" + ",".join(sorted([*members, client]))]
                    without = worth[f"{number}:" + ",".join(members)] if members else before
                    total[client] += weight * (own - without)
        before = worth[f"{number}:" + ",".join(ids)]
    return total


def compare(expected, file):
    result = json.loads(file.read_text())
    assert result["class_samples"] == expected["samples"], (result["class_samples"], expected["samples"])
    found = {
        f"{u['round']}:" + ",".join(sorted(u["coalition"])): u["correct_of_classes"] for u in result["utilities"]
    }
    differ = [key for key, counts in expected["right"].items() if found[key] != counts]
    apart = max(abs(result["fsv"][client] - value) for client, value in expected["values"].items())
    print(f"{file}: {len(expected['right'])} coalitions, {len(differ)} differ; values at most {apart:.2e} apart")
    for key in differ[:10]:
        print(f"  {key}: {expected['right'][key]} here, {found[key]} there")


def main():
    run, *results = (Path(argument) for argument in sys.argv[1:])
    expected = count(run)
    if not results:
        print(json.dumps(expected, indent=1))
    for file in results:
        compare(expected, file)


if __name__ == "__main__":
    main()
