"""The app of a hospital. What secsv adds is the mod."""

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from secsv.flower import SiloRecorder

from . import task


def hospital(context: Context) -> int:
    """Which hospital this is: SuperNodes say it, simulations have partitions."""
    return int(context.node_config.get("hospital", context.node_config.get("partition-id", 0)))


def arrays(message: Message):
    return {name: array.numpy() for name, array in message.content["arrays"].items()}


app = ClientApp(mods=[SiloRecorder(lambda context: task.load(hospital(context), "test"))])


@app.train()
def train(message: Message, context: Context) -> Message:
    x, y = task.load(hospital(context), "train")
    model = task.train(arrays(message), x, y)
    sent = ArrayRecord({name: Array(array) for name, array in model.items()})
    metrics = MetricRecord({"num-examples": len(y)})
    return Message(content=RecordDict({"arrays": sent, "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    x, y = task.load(hospital(context), "test")
    metrics = MetricRecord({"accuracy": task.accuracy(arrays(message), x, y), "num-examples": len(y)})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=message)
