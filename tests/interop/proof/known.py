"""Functions that are known to differ from JAX's, or to be unsupported, each with the reason."""

from __future__ import annotations

KNOWN: dict[str, str] = {}
"""By path. An entry that is equal again has to go: `python docs/make_interop.py --check` says so."""
