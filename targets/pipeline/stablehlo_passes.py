"""Summaries of the passes of jaxlib's MLIR, which jaxlib neither lists nor describes.

`docs/find_stablehlo_passes.py` finds their names in jaxlib's libraries; a test holds this table against them.
"""

from __future__ import annotations

from stablexla.dialects.builds.installed import installed_version

_ALL = {
    "chlo-legalize-to-stablehlo": "writes operations of CHLO out in StableHLO",
    "mhlo-flatten-tuple": "takes the tuples among operands and results of custom calls apart",
    "shape-legalize-to-stablehlo": "turns operations of the shape dialect into StableHLO on arrays of sizes",
    "stablehlo-canonicalize-dynamism": "makes dynamic operations static where what they ask for is constant",
    "stablehlo-check-shape-assertions": "checks and drops the calls @shape_assertion whose condition is constant",
    "stablehlo-compatibility-expander": "writes operations that a target version does not know out in older ones",
    "stablehlo-complex-math-expander": "writes functions of complex numbers out in functions of real ones",
    "stablehlo-convert-to-signless": "turns signed and unsigned integer types into signless ones",
    "stablehlo-legalize-composite-to-call": "turns composites into calls of their decompositions",
    "stablehlo-legalize-deprecated-ops": "turns operations that are to be removed into those that replace them",
    "stablehlo-legalize-qdq-to-quantized-op": "fuses dequantize, operation, quantize into one quantized operation",
    "stablehlo-legalize-quant-to-math": "writes operations on quantized types out in integer arithmetic",
    "stablehlo-legalize-quantized-op-to-qdq": "splits quantized operations into dequantize, operation, quantize",
    "stablehlo-legalize-to-linalg": "lowers StableHLO to linalg (StableHLO's own way; this package has another)",
    "stablehlo-legalize-to-vhlo": "turns StableHLO into VHLO, the dialect that keeps old versions readable",
    "stablehlo-refine-arguments": "gives main's parameters the types in the option `types`",
    "stablehlo-refine-shapes": "carries known sizes from the parameters through the whole program",
    "stablehlo-wrap-in-composite": "wraps the operations in the option `op-names` into composites",
    "trivial-dce": "removes operations without effects whose results nobody reads",
    "vhlo-legalize-to-stablehlo": "turns VHLO of the newest version into StableHLO",
    "vhlo-to-version": "turns operations of VHLO into those of the version in the option `target`",
    "sdy-add-data-flow-edges": "inserts the edges along which shardings pass through operations with regions",
    "sdy-add-func-data-flow-edges": "inserts the edges along which shardings pass through calls of functions",
    "sdy-aggressive-propagate": "propagates shardings, resolving conflicts where that is certain not to hurt",
    "sdy-apply-sharding-constraints": "puts the sharding of a constraint onto the value that it constrains",
    "sdy-basic-propagate": "propagates shardings where nothing is in conflict",
    "sdy-close-shardings": "closes the open dimensions of shardings and drops replicated axes",
    "sdy-constant-or-scalar-merger": "merges equal constants that have equal shardings",
    "sdy-constant-or-scalar-splitter": "gives each reader of a constant or scalar expression one of its own",
    "sdy-convert-global-to-local": "rewrites a program of whole arrays into that of one device with its parts",
    "sdy-drop-sharding-and-mesh": "removes all shardings and meshes",
    "sdy-drop-sharding-rules": "removes the sharding rules of operations",
    "sdy-explicit-gather-scatter-batching": "turns batch dimensions that indices only imply into explicit ones",
    "sdy-export-named-computations": "makes functions of named computations",
    "sdy-export-pipeline": "pipeline: what is done after propagation, up to explicit reshards",
    "sdy-flatten-call-graph": "gives each call a copy of its function",
    "sdy-import-func-calls": "turns calls of functions into named computations",
    "sdy-import-pipeline": "pipeline: what is done before propagation",
    "sdy-inline-meshes": "writes each mesh into the shardings that name it",
    "sdy-insert-explicit-reshards": "inserts reshards where operands do not fit an operation",
    "sdy-insert-func-call-reshards": "inserts reshards where arguments do not fit a function",
    "sdy-lift-inlined-meshes": "gives meshes that stand inside of shardings a name in the module",
    "sdy-manual-axes-cleanup": "puts the manual axes of manual computations into order",
    "sdy-op-priority-propagate": "propagates shardings through some operations before others",
    "sdy-optimize-collectives": "simplifies collective operations",
    "sdy-pad-for-divisibility": "pads arrays whose sizes their shardings do not divide",
    "sdy-per-instruction-partitioning": "puts operations that are to be partitioned alone into manual computations",
    "sdy-populate-op-sharding-rules": "notes on each operation the rule by which shardings pass through it",
    "sdy-pre-order-funcs": "sorts functions so that callers come before those that they call",
    "sdy-propagate-sharding-from-func-to-call": "gives calls the shardings of their function's results",
    "sdy-propagate-to-func-results": "gives the results of functions the shardings of what they return",
    "sdy-propagation-pipeline": "pipeline: import, propagation and export of shardings",
    "sdy-remove-all-gather-reduce-scatter-for-cmv1": "removes gathers and scatters around matrix products",
    "sdy-remove-propagation-debug-info": "removes what propagation noted for debugging",
    "sdy-remove-sharding-groups": "removes sharding groups",
    "sdy-remove-size-one-axes": "removes axes of size 1 from meshes and shardings",
    "sdy-remove-sub-axes-in-input-output-shardings": "removes parts of axes from shardings of parameters and results",
    "sdy-reshard-to-collectives": "turns reshards into collective operations",
    "sdy-resolve-permutation-factors": "resolves shardings along factors that are permuted, as in slices and pads",
    "sdy-resolve-single-device-sharding": "puts what is for one device into an `if` on the number of the device",
    "sdy-sharding-constraint-to-reshard": "turns sharding constraints into reshards",
    "sdy-sharding-group-import": "checks sharding groups and numbers them anew",
    "sdy-sink-data-flow-edges": "moves shardings from data flow edges to the values, and removes the edges",
    "sdy-sink-func-data-flow-edges": "the same for the edges of functions",
    "sdy-unflatten-call-graph": "merges the copies of functions that came of flattening",
    "sdy-update-non-divisible-input-output-shardings": "drops axes that do not divide sizes of parameters and results",
    "sdy-user-priority-propagate": "propagates shardings in the order of the priorities that users gave them",
    "sdy-verify-unreduced-axes": "checks the unreduced axes of shardings",
    "xla-sdy-round-trip-import-shardy-attrs": "reads shardings back from the attributes in which XLA keeps them",
}
# Passes that one line of jaxlib has.
_ONE_LINE = {
    "mhlo-flatten-tuple": "0.10",
    **dict.fromkeys(("sdy-optimize-collectives", "sdy-per-instruction-partitioning"), "0.12"),
    **dict.fromkeys(("sdy-resolve-single-device-sharding", "sdy-verify-unreduced-axes"), "0.12"),
}
_LINE = ".".join(installed_version("jaxlib").split(".")[:2])
STABLEHLO_PASSES = {name: summary for name, summary in _ALL.items() if _ONE_LINE.get(name, _LINE) == _LINE}
"""Passes that the installed jaxlib alone has, by name."""

SHARED = (
    *("bubble-down-memory-space-casts", "canonicalize", "composite-fixed-point-pass", "control-flow-sink", "cse"),
    *("generate-runtime-verification", "inline", "loop-invariant-code-motion", "loop-invariant-subset-hoisting"),
    *("mem2reg", "print-ir", "print-op-stats", "remove-dead-values", "sccp", "snapshot-op-locations", "sroa"),
    *("strip-debuginfo", "symbol-dce", "symbol-privatize", "topological-sort", "view-op-graph"),
)
"""Passes that both MLIRs have."""

UNLISTED_OPTIONS = {
    "stablehlo-legalize-composite-to-call": ("except",),
    "stablehlo-refine-arguments": ("types",),
    "stablehlo-wrap-in-composite": ("op-names",),
}
"""Options without a default, which MLIR does not print."""
