"""The command ``secsv``: the program's commands, and those of this package."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence

#: Commands that only the package has, with a line each.
OWN = {
    "init": "Describe a model: its tables for federation.toml, from PyTorch or ONNX",
    "join": "Put silos' own directories together as one run directory",
    "doctor": "Say what is there of a run, what is missing, and what to do",
}


def main() -> None:
    """Runs the command line and ends the process with its exit code."""
    # The command says itself what a signal does: the interpreter would note it and wait for the end. Where it is ignored it stays so.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    arguments = sys.argv[1:]
    if arguments[:1] and arguments[0] in OWN:
        sys.exit(run_own(own(arguments[0]), arguments[1:]))
    from . import _native

    if arguments in (["--help"], ["-h"], ["help"]):
        print("Commands of the Python package beside those below:")
        print("".join(f"  {name:12} {line}\n" for name, line in OWN.items()), flush=True)
    sys.exit(_native.command(["secsv", *arguments]))


def own(name: str) -> Callable[[Sequence[str]], int]:
    """A command of the package."""
    if name == "init":
        from ._init import main as found
    elif name == "join":
        from ._join import main as found
    else:
        from ._doctor import main as found
    return found


def run_own(command: Callable[[Sequence[str]], int], arguments: Sequence[str]) -> int:
    """Runs a command of the package; what its owner can mend ends with exit code 2, as everywhere."""
    from ._errors import InputError, SecsvError

    try:
        return command(arguments)
    except SecsvError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1


if __name__ == "__main__":
    main()
