"""The script of a site. What secsv adds is `keep_test`."""

import numpy as np
import nvflare.client as flare
import task

from secsv.nvflare import keep_test

flare.init()
site = flare.get_site_name()
keep_test(*task.load(site, "test"), site)
x, y = task.load(site, "train")
while flare.is_running():
    received = flare.receive()
    weight = task.train(np.asarray(received.params[task.NAME], dtype=np.float64), x, y)
    flare.send(flare.FLModel(params={task.NAME: weight}, meta={"NUM_STEPS_CURRENT_ROUND": len(y)}))
