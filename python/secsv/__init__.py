"""What each organisation contributed to a federated model: Shapley values, in the clear or under secure computation.

>>> result = secsv.evaluate("run")
>>> result.values
{'north': 0.0312, 'south': 0.0298, 'east': -0.0041}

``Run`` writes and reads run directories, ``Model`` describes the network, ``Result`` holds values, ``plan`` and ``compare`` say what
protocols cost. docs/PYTHON.md has it all in one walk.
"""

from ._errors import InputError, SecsvError, Unsupported
from ._evaluate import Comparison, Plan, Progress, compare, evaluate, plan
from ._model import Model
from ._native import VERSION as __version__
from ._result import Result, Utility
from ._run import Run

__all__ = [
    "Comparison",
    "InputError",
    "Model",
    "Plan",
    "Progress",
    "Result",
    "Run",
    "SecsvError",
    "Unsupported",
    "Utility",
    "__version__",
    "compare",
    "evaluate",
    "plan",
]
