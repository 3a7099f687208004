"""The app of the server. What secsv adds is `record`."""

from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from secsv.flower import record

from . import task

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    settings = context.run_config
    strategy = FedAvg(fraction_train=settings["fraction-train"], min_train_nodes=4, min_available_nodes=task.HOSPITALS)
    # Names, weights and absences alone; and global models, which every silo may know.
    strategy = record(strategy, settings["recording"], task.MODEL, name="five hospitals", global_models=True)
    initial = ArrayRecord({name: Array(array) for name, array in task.initial().items()})
    strategy.start(grid=grid, initial_arrays=initial, num_rounds=settings["num-server-rounds"])
