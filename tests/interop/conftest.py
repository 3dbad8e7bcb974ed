"""What tests of programs from elsewhere share."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture
def wide_numbers() -> Iterator[None]:
    """Lets JAX have numbers of 64 bits for the length of a test."""
    with jax.enable_x64(True):
        yield
