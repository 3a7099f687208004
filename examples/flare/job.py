"""The job: four sites, two rounds of federated averaging. What secsv adds is `add_contribution`."""

import argparse
from pathlib import Path

import numpy as np
import task
from nvflare.app_common.np.recipes.fedavg import NumpyFedAvgRecipe
from nvflare.client.config import TransferType
from nvflare.recipe import SimEnv

from secsv.nvflare import add_contribution

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--recorded", default="recorded", help="where the server's federation.toml goes")
parser.add_argument("--workspace", default="workspace", help="the simulator's own files")
parser.add_argument("--transfer", choices=["FULL", "DIFF"], default="FULL")
options = parser.parse_args()

here = Path(__file__).parent
recipe = NumpyFedAvgRecipe(
    name="hospitals",
    min_clients=task.SITES,
    num_rounds=2,
    model=np.zeros((task.CLASSES, task.FEATURES + 1)).tolist(),
    train_script=str(here / "client.py"),
    params_transfer_type=TransferType[options.transfer],
)
recipe.add_client_file(str(here / "task.py"))
add_contribution(recipe, model=task.MODEL, directory=options.recorded, name="four sites")
# One worker for all sites: several look for free ports at the same time and may take the same.
recipe.execute(SimEnv(num_clients=task.SITES, num_threads=1, workspace_root=options.workspace))
