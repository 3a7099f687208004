"""Exceptions, with the parts that their sentences have."""

from __future__ import annotations


class SecsvError(Exception):
    """Why something could not be done. ``file``, ``field``, ``expected`` and ``found`` are None where they do not apply."""

    def __init__(
        self,
        message: str,
        file: str | None = None,
        field: str | None = None,
        expected: str | None = None,
        found: str | None = None,
    ) -> None:
        super().__init__(message)
        self.file = file
        self.field = field
        self.expected = expected
        self.found = found

    def __reduce__(self):
        parts = (self.args[0], self.file, self.field, self.expected, self.found)
        return type(self), parts


class InputError(SecsvError, ValueError):
    """Input that its owner can mend; the command line ends with exit code 2 for it."""


class Unsupported(InputError):
    """A model with operators that there is no layer for. ``operators`` maps each of them to the modules it was met in."""

    def __init__(self, message: str, *parts: str | None, operators: dict[str, list[str]] | None = None) -> None:
        super().__init__(message, *parts)
        self.operators = operators or {}

    def __reduce__(self):
        function, parts = super().__reduce__()
        return function, parts, {"operators": self.operators}


def wrong(field: str, expected: str, found: object, file: object = None) -> InputError:
    """The error that a field is not what is expected."""
    place = f"{file}: {field}" if file is not None else field
    message = f"{place}: expected {expected}, found {found}"
    return InputError(message, None if file is None else str(file), field, expected, str(found))
