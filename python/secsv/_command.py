"""The command ``secsv``."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Runs the command line and ends the process with its exit code."""
    from . import _native

    # The command says itself what a signal does: the interpreter would note it and wait for the end.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_native.command(["secsv", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
