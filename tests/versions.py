"""What a test does where the installed StableHLO is older than what it tests."""

from __future__ import annotations

import pytest

from stablexla.dialects.stablehlo_version import INSTALLED, has_stablehlo


def needs_stablehlo(version: str) -> pytest.MarkDecorator:
    """The mark of a test, or of a row of its parameters, that an older StableHLO skips."""
    return pytest.mark.skipif(not has_stablehlo(version), reason=f"StableHLO {INSTALLED}, and {version} has it")
