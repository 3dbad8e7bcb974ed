"""Tiles of XLA's shardings, texts such as `{devices=[2,1]<=[2]}`: how many along each dimension, on which devices."""

from __future__ import annotations

import re
from math import prod

import numpy as np

from stablexla.dialects.errors import ShapeError

_TILES = re.compile(r"devices=\[([\d,]*)\](?:<=\[([\d,]*)\](?:T\(([\d,]*)\))?|([\d,]+))?")


def tiles_of(text: str) -> tuple[list[int], list[int]] | None:
    """Return the number of tiles along each dimension, and the devices in the tiles' order; None for other texts.

    Raises:
        ShapeError: the devices that are listed are not as many as there are tiles, or not 0, 1, 2 ..., each once.

    >>> tiles_of("{devices=[3,1]<=[3]}"), tiles_of("{devices=[2,2]<=[2,2]T(1,0)}"), tiles_of("{replicated}")
    (([3, 1], [0, 1, 2]), ([2, 2], [0, 2, 1, 3]), None)
    """
    found = _TILES.search(text)
    if found is None:
        return None
    sizes = _numbers(found[1])
    count = prod(sizes)
    if found[4]:
        devices = _numbers(found[4])
    else:
        grid, turned = _numbers(found[2] or "") or [count], _numbers(found[3] or "")
        if turned and sorted(turned) != list(range(len(grid))):
            raise ShapeError(f"T({found[3]}) of the sharding {text} must order the {len(grid)} numbers before it")
        devices = np.arange(prod(grid)).reshape(grid).transpose(turned or None).reshape(-1).tolist()
    if sorted(devices) != list(range(count)):
        raise ShapeError(
            f"the sharding {text} must list a device for each of its {count} tiles: 0 to {count - 1}, each once",
            hint=f'"{text[: found.start()]}devices=[{found[1]}]<=[{count}]{text[found.end() :]}"' if count else "",
        )
    return sizes, devices


def _numbers(text: str) -> list[int]:
    return [int(n) for n in text.split(",") if n]
