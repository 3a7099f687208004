"""Records utility tables and the values that pyDVL and shapiq give them, for crates/shapley/tests/recorded.rs.

    python -m venv venv && venv/bin/pip install pydvl==0.10.0 shapiq==1.4.1 cvxpy clarabel
    venv/bin/python bench/peers/record_values.py crates/shapley/tests/recorded

A table lists v(S) by the bits of S, v(empty) first. Both libraries get v(S) - v(empty), because pyDVL takes v(empty) for 0.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import shapiq
from pydvl.valuation import (
    BanzhafValuation,
    BetaShapleyValuation,
    ExactLeastCoreValuation,
    LOOValuation,
    ShapleyValuation,
)
from pydvl.valuation.games import DummyGameDataset, DummyGameUtility
from pydvl.valuation.samplers import DeterministicUniformSampler
from pydvl.valuation.stopping import NoStopping


def accuracies(rng, n):
    """Something like accuracies: more members help, with luck, and some do harm."""
    worth = rng.normal(0.3, 0.4, n)
    table = []
    for bits in range(2**n):
        members = [i for i in range(n) if bits >> i & 1]
        score = 1 / (1 + np.exp(-sum(worth[members]))) + rng.normal(0, 0.03)
        table.append(round(float(np.clip(score, 0, 1)), 4))
    return table


def anything(rng, n):
    return [round(float(v), 4) for v in rng.uniform(-1, 1, 2**n)]


def bits_of(members):
    return sum(1 << int(i) for i in members)


def pydvl_values(table):
    n = len(table).bit_length() - 1
    data = DummyGameDataset(n)
    utility = DummyGameUtility(lambda x: table[bits_of(x[:, 0])] - table[0], (-2, 2))

    def values(make, **options):
        sampler = DeterministicUniformSampler()
        return list(map(float, make(utility, sampler, is_done=NoStopping(), progress=False, **options).fit(data).result.values))

    tight = {"solver": "CLARABEL", "tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12}
    core = ExactLeastCoreValuation(utility, solver_options=tight, progress=False).fit(data).result
    return {
        "exact": values(ShapleyValuation),
        "banzhaf": values(BanzhafValuation),
        "beta-shapley 16 1": values(BetaShapleyValuation, alpha=16, beta=1),
        "beta-shapley 1 4": values(BetaShapleyValuation, alpha=1, beta=4),
        "leave-one-out": list(map(float, LOOValuation(utility, progress=False).fit(data).result.values)),
        "least-core": list(map(float, core.values)),
    }


def shapiq_values(table):
    n = len(table).bit_length() - 1
    game = lambda coalitions: np.array([table[bits_of(np.flatnonzero(row))] - table[0] for row in np.atleast_2d(coalitions)])
    exact = shapiq.ExactComputer(game, n_players=n)
    in_order = lambda found: [float(found[(i,)]) for i in range(n)]
    kernel = shapiq.KernelSHAP(n, random_state=0).approximate(budget=2**n, game=game)
    return {"exact": in_order(exact("SV", 1)), "banzhaf": in_order(exact("BV", 1)), "kernelshap": in_order(kernel)}


def main(out):
    rng = np.random.default_rng(2023)
    for n in range(3, 9):
        for kind in (accuracies, anything):
            table = kind(rng, n)
            record = {
                "versions": {name: version(name) for name in ("pyDVL", "shapiq", "numpy", "cvxpy", "clarabel")},
                "utilities": table,
                "pydvl": pydvl_values(table),
                "shapiq": shapiq_values(table),
            }
            (Path(out) / f"{kind.__name__}-{n}.json").write_text(json.dumps(record, indent=1) + "\n")


main(sys.argv[1])
