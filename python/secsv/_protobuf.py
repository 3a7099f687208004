"""Messages of Protocol Buffers as fields by number: enough to read what has no schema at hand."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ._errors import wrong

#: Kinds of fields on the wire.
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class Message:
    """A message's fields by number, each with all of its values: integers, or bytes."""

    def __init__(self, data: bytes) -> None:
        self.fields: dict[int, list[int | bytes]] = {}
        for number, value in fields_of(data):
            self.fields.setdefault(number, []).append(value)

    def bytes(self, number: int) -> bytes:
        """The last value of a field of bytes; none if it is absent."""
        value = self.fields.get(number, [b""])[-1]
        return value if isinstance(value, bytes) else b""

    def text(self, number: int) -> str:
        """The same as text."""
        return self.bytes(number).decode("utf-8", "replace")

    def texts(self, number: int) -> list[str]:
        """All values of a field of texts."""
        return [value.decode("utf-8", "replace") for value in self.fields.get(number, []) if isinstance(value, bytes)]

    def message(self, number: int) -> Message:
        """The message in a field; an empty one if it is absent."""
        return Message(self.bytes(number))

    def messages(self, number: int) -> list[Message]:
        """All messages in a field."""
        return [Message(value) for value in self.fields.get(number, []) if isinstance(value, bytes)]

    def integer(self, number: int, usual: int = 0) -> int:
        """A signed integer."""
        values = self.integers(number)
        return values[-1] if values else usual

    def integers(self, number: int) -> list[int]:
        """Signed integers, packed or one by one."""
        found: list[int] = []
        for value in self.fields.get(number, []):
            if isinstance(value, int):
                found.append(value)
                continue
            place = 0
            while place < len(value):
                one, place = varint(value, place)
                found.append(one)
        return [value - (1 << 64) if value >> 63 else value for value in found]

    def floats(self, number: int) -> list[float]:
        """Numbers in single precision, packed or one by one."""
        found: list[float] = []
        for value in self.fields.get(number, []):
            data = value if isinstance(value, bytes) else value.to_bytes(4, "little")
            found += struct.unpack(f"<{len(data) // 4}f", data)
        return found


def fields_of(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message, in order."""
    place = 0
    while place < len(data):
        key, place = varint(data, place)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, place = varint(data, place)
            yield number, value
            continue
        if kind == BYTES:
            length, place = varint(data, place)
        else:
            length = {FIXED64: 8, FIXED32: 4}.get(kind, -1)
        if length < 0 or place + length > len(data):
            raise wrong("file", "messages of Protocol Buffers", f"a field of kind {kind} that ends behind the file")
        piece = data[place : place + length]
        yield number, piece if kind == BYTES else int.from_bytes(piece, "little")
        place += length


def varint(data: bytes, place: int) -> tuple[int, int]:
    """A number of up to ten bytes, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(data):
            break
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, place
    raise wrong("file", "messages of Protocol Buffers", "a number that does not end")
