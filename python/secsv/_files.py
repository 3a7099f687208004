"""Files of a run directory: tensors in the safetensors format, written whole or not at all."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ._errors import InputError, wrong

#: Element types of NumPy by the format's names.
TYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
    "BOOL": "?",
}
#: Headers are not longer, as in the format's own reader.
MOST_HEADER = 100_000_000


def write_atomically(path: Path, data: bytes) -> None:
    """Writes a file: whoever looks sees all of it or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.parent / f".partial-{os.getpid()}-{secrets.token_hex(8)}"
    # As readable as other files of this process: a temporary file of the library's would be its owner's alone.
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def type_name(array: np.ndarray) -> str | None:
    """The format's name for an array's element type; None if it has none."""
    for name, code in TYPES.items():
        if array.dtype.newbyteorder("<") == np.dtype(code):
            return name
    return None


def to_bytes(arrays: Mapping[str, np.ndarray], notes: Mapping[str, str] | None = None) -> bytes:
    """A file of arrays, sorted by name. ``notes`` go into the header."""
    header: dict[str, Any] = {"__metadata__": dict(notes)} if notes else {}
    parts, place = [], 0
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        kind = type_name(array)
        if kind is None:
            raise wrong(name, "an array of numbers", f"elements of type {array.dtype}")
        data = array.astype(np.dtype(TYPES[kind]), copy=False).tobytes(order="C")
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [place, place + len(data)]}
        parts.append(data)
        place += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(parts)


def write_tensors(path: Path, arrays: Mapping[str, np.ndarray], notes: Mapping[str, str] | None = None) -> None:
    """Writes arrays to a safetensors file."""
    write_atomically(path, to_bytes(arrays, notes))


def read_header(path: Path) -> tuple[dict[str, Any], dict[str, str], int]:
    """The tensors of a file by name, its notes, and where data begin."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 0 < length <= MOST_HEADER:
            raise wrong("header", "a safetensors file", f"a header of {length} bytes", path)
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError) as error:
            raise wrong("header", "a safetensors file", error, path) from error
    notes = header.pop("__metadata__", None) or {} if isinstance(header, dict) else None
    if not isinstance(header, dict) or not isinstance(notes, dict):
        raise wrong("header", "a safetensors file", "a header that names nothing", path)
    return header, notes, 8 + length


def read_tensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays of a safetensors file, and its notes."""
    header, notes, start = read_header(path)
    data = path.read_bytes()[start:]
    arrays = {}
    for name, info in header.items():
        try:
            kind, (begin, end) = info["dtype"], info["data_offsets"]
            if kind not in TYPES:
                raise wrong(name, f"elements of one of the types {', '.join(TYPES)}", kind, path)
            arrays[name] = np.frombuffer(data[begin:end], TYPES[kind]).reshape(info["shape"])
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise wrong(name, "type, shape and place of a tensor", error, path) from error
    return arrays, notes


def model_arrays(arrays: Any, what: str = "model") -> dict[str, np.ndarray]:
    """A model's arrays by name, as NumPy has them: of a mapping, or of anything with a ``state_dict``. Arrays keep their element
    types; serialised models are refused."""
    if hasattr(arrays, "state_dict"):
        arrays = arrays.state_dict()
    if not isinstance(arrays, Mapping):
        arrays = {str(place): array for place, array in enumerate(arrays)}
    found = {}
    for name, array in arrays.items():
        array = as_numpy(array)
        refuse_serialised(name, array, what)
        found[str(name)] = array
    if not found:
        raise wrong(what, "at least one array", "none")
    return found


def as_numpy(array: Any) -> np.ndarray:
    """An array of any framework as NumPy has it."""
    if hasattr(array, "detach"):
        array = array.detach().cpu()
        if str(array.dtype) == "torch.bfloat16":
            array = array.float()
    elif type(array).__name__ == "Array" and callable(getattr(array, "numpy", None)):
        array = array.numpy()
    return np.asarray(array)


def refuse_serialised(name: str, array: np.ndarray, what: str) -> None:
    """Refuses bytes of a model that only its own library can read."""
    is_bytes = array.dtype.kind in "SUOV" or (array.dtype == np.uint8 and array.ndim <= 1)
    if not is_bytes:
        return
    size = array.nbytes
    raise InputError(
        f"{what}: {name!r} is {size} bytes of {array.dtype}: a serialised model (trees of XGBoost or LightGBM, a pickle), not weights. "
        "Coalitions of silos are valued by weighted means of their weights, and such a model has none.",
        None,
        str(name),
        "an array of weights",
        f"{size} bytes of {array.dtype}",
    )


def quoted(text: str) -> str:
    """Text as a string of TOML."""
    return json.dumps(text, ensure_ascii=False)


def toml_value(value: Any) -> str:
    """A value as TOML has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    return repr(float(value))


def round_of(name: str) -> int | None:
    """The round of a model file's name; None if it is no such name."""
    found = re.fullmatch(r"round-(\d{4})\.safetensors", name)
    return int(found[1]) if found else None


def round_file(number: int) -> str:
    """The name of a round's model file."""
    if not 1 <= number <= 9999:
        raise wrong("round", "1 to 9999", number)
    return f"round-{number:04d}.safetensors"
