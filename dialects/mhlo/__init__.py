"""Operations of MHLO that XLA's own conversion to StableHLO refuses, rewritten as StableHLO and CHLO.

XLA reads HLO as MHLO and StableHLO. Most of what it leaves in MHLO comes from its optimisation passes: fusions,
bitcasts between layouts, copies and asynchronous pairs.
"""

from stablexla.dialects.mhlo import custom_calls, layouts, operations, structure  # noqa: F401  (they register rules)
from stablexla.dialects.mhlo.registry import rewrite_mhlo

__all__ = ["rewrite_mhlo"]
