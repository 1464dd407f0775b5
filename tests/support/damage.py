"""Damage to the bytes of a file: a flipped bit, a cut, a piece that is missing, doubled or inserted."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Damage:
    """A damaged file.

    Args:
        start: First byte that is not as before.
        end: The byte of the file before the damage from which all is as before.
        inserted: What stands between them.
    """

    start: int
    end: int
    inserted: bytes

    def apply(self, data: bytes) -> bytes:
        return data[: self.start] + self.inserted + data[self.end :]


def damage(chance: random.Random, data: bytes) -> Damage:
    at = chance.randrange(len(data))
    size = chance.choice((1, 1, 2, 5, 30, 300))
    match chance.randrange(6):
        case 0:
            return Damage(at, at + 1, bytes([data[at] ^ 1 << chance.randrange(8)]))
        case 1:
            return Damage(at, len(data), b"")
        case 2:
            return Damage(at, min(at + size, len(data)), b"")
        case 3:
            return Damage(at, at, data[at : at + size])
        case 4:
            return Damage(at, at, chance.choice((b'"', b'"', b"\n", b"\r", b",", b"\0", b"\xff", b'"\n', b',"', b'""')))
        case _:
            return Damage(at, at, chance.randbytes(size))
