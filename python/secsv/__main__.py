"""``python -m secsv``: the command line."""

from ._command import main

main()
