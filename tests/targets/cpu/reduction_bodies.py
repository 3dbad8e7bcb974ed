"""Bodies of reductions for tests, as KernelText takes them: %a is the element, %b the total."""

from __future__ import annotations

NEG_INF, INF = "0xFF800000", "0x7F800000"


def plain(operation: str, element: str) -> str:
    """One operation of the total and the element."""
    return f"%r = {operation} %b, %a : {element}"


def in_f32(element: str) -> str:
    """A sum of narrow floats, added in f32."""
    return (
        f"%p = arith.extf %b : {element} to f32\n%q = arith.extf %a : {element} to f32\n"
        f"%s = arith.addf %p, %q : f32\n%r = arith.truncf %s : f32 to {element}"
    )


def of_preds(operation: str) -> str:
    """`ori` or `andi` of preds kept in bytes."""
    return (
        "%z = arith.constant 0 : i8\n%p = arith.cmpi ne, %b, %z : i8\n%q = arith.cmpi ne, %a, %z : i8\n"
        f"%s = arith.{operation} %p, %q : i1\n%r = arith.extui %s : i1 to i8"
    )


def arg_best(largest: bool, element: str = "f32", index: str = "i32") -> str:
    """The body that jax makes for argmax and argmin: %a, %b are value and index, %c, %d the best so far."""
    if element.startswith("i"):
        better = "sgt" if largest else "slt"
        picks = f"%s = arith.cmpi {better}, %c, %a : {element}\n%t = arith.cmpi eq, %c, %a : {element}\n"
    else:
        better = "ogt" if largest else "olt"
        picks = (
            f"%p = arith.cmpf {better}, %c, %a : {element}\n%q = arith.cmpf une, %c, %c : {element}\n"
            f"%s = arith.ori %p, %q : i1\n%t = arith.cmpf oeq, %c, %a : {element}\n"
        )
    return picks + (
        f"%u = arith.cmpi slt, %d, %b : {index}\n%v = arith.andi %t, %u : i1\n%w = arith.ori %s, %v : i1\n"
        f"%x = arith.select %s, %c, %a : {element}\n%y = arith.select %w, %d, %b : {index}"
    )


# Not commutative and not associative: the order shows.
IN_ORDER = "%m = arith.mulf %b, %b : f32\n%n = arith.subf %m, %a : f32\n%h = arith.constant 0.25 : f32\n" \
    "%r = arith.mulf %n, %h : f32"  # fmt: skip
