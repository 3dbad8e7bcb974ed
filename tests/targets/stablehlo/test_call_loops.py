"""Calls that a function repeats, as loops: random functions that call one another, and what cannot be a loop.

Catches values that a loop does not carry, stages that read those of another one, and effects that are run once too
often. Oracle: an interpreter of the same functions in numpy, on integers; exact.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

import stablexla as sx
from tests.fuzz.program import Value

V = "tensor<4xi32>"
OPERATIONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add,
    "multiply": np.multiply,
    "xor": np.bitwise_xor,
    "maximum": np.maximum,
}
EAGER = sx.CompileOptions(choices="usual+calls.most-inlined=1")
"""All repeated calls become loops."""
INLINED = sx.CompileOptions()

Line = tuple[str, str, tuple[int, ...]]
"""Where it stands, `` or `if`; an operation's name, or @ and a function's; and the numbers of the values it reads."""


@dataclass
class Function:
    """A function of two arrays that returns two; `lines` are its operations, results numbered on from the arguments."""

    lines: list[Line] = field(default_factory=list)
    returns: tuple[int, int] = (0, 1)

    def text(self, name: str) -> str:
        out, names = [f"func.func {name}(%a: {V}, %b: {V}) -> ({V}, {V}) {{"], ["%a", "%b"]
        for number, (where, operation, reads) in enumerate(self.lines):
            operands, made = ", ".join(names[r] for r in reads), f"%v{number}"
            if operation == "constant":
                out.append(f"{made} = stablehlo.constant dense<{number}> : {V}")
                names.append(made)
            elif not operation.startswith("@"):
                out.append(f"{made} = stablehlo.{operation} {operands} : {V}")
                names.append(made)
            elif where:
                out.append(
                    f"%s{number} = stablehlo.slice {names[reads[0]]} [0:1] : ({V}) -> tensor<1xi32>\n"
                    f"%t{number} = stablehlo.reshape %s{number} : (tensor<1xi32>) -> tensor<i32>\n"
                    f"%z{number} = stablehlo.constant dense<0> : tensor<i32>\n"
                    f"%p{number} = stablehlo.compare LT, %t{number}, %z{number} : (tensor<i32>, tensor<i32>) -> "
                    f'tensor<i1>\n{made}:2 = "stablehlo.if"(%p{number}) ({{\n'
                    f"%c{number}:2 = func.call {operation}({operands}) : ({V}, {V}) -> ({V}, {V})\n"
                    f"stablehlo.return %c{number}#0, %c{number}#1 : {V}, {V}\n}}, {{\n"
                    f"stablehlo.return {operands} : {V}, {V}\n}}) : (tensor<i1>) -> ({V}, {V})"
                )
                names += [f"{made}#0", f"{made}#1"]
            else:
                out.append(f"{made}:2 = func.call {operation}({operands}) : ({V}, {V}) -> ({V}, {V})")
                names += [f"{made}#0", f"{made}#1"]
        first, second = (names[r] for r in self.returns)
        return "\n".join([*out, f"func.return {first}, {second} : {V}, {V}\n}}"])

    def run(self, functions: list[Function], *given: np.ndarray) -> list[np.ndarray]:
        values = list(given)
        for number, (where, operation, reads) in enumerate(self.lines):
            operands = [values[r] for r in reads]
            if operation == "constant":
                values.append(np.full(4, number, np.int32))
            elif not operation.startswith("@"):
                values.append(OPERATIONS[operation](*operands))
            elif where and operands[0][0] >= 0:
                values += operands
            else:
                values += functions[int(operation[2:])].run(functions, *operands)
        return [values[r] for r in self.returns]


def drawn(seed: int) -> list[Function]:
    """Functions of which each calls the ones before it several times; the last one is the program."""
    rng, functions = random.Random(seed), list[Function]()
    for level in range(rng.randint(2, 4)):
        lines, count = list[Line](), 2
        callees = [f"@f{rng.randrange(level)}" for _ in range(2)] if level else []
        for _ in range(rng.randint(4, 9)):
            reads = (rng.randrange(count), rng.randrange(count))
            if callees and rng.random() < 0.6:
                lines.append((rng.choice(["", "", "", "if"]), rng.choice(callees), reads))
                count += 2
            else:
                lines.append(("", rng.choice(["constant", *OPERATIONS]), reads))
                count += 1
        functions.append(Function(lines, (count - 1, rng.randrange(count))))
    return functions


def text_of(functions: list[Function]) -> str:
    private = [f.text(f"private @f{number}") for number, f in enumerate(functions[:-1])]
    return "\n".join([functions[-1].text("@main"), *private])


@pytest.mark.parametrize("seed", range(40))
def test_random_functions(seed: int) -> None:
    functions = drawn(seed)
    given = [np.random.default_rng([seed, i]).integers(-(2**31), 2**31, 4).astype(np.int32) for i in range(2)]
    with np.errstate(over="ignore"):
        wanted = functions[-1].run(functions, *given)
    for options in (EAGER, INLINED):
        for ours, right in zip(sx.compile(text_of(functions), options=options).execute(given), wanted, strict=True):
            np.testing.assert_array_equal(ours, right)


def test_most_of_them_have_loops() -> None:
    loops = ["while" in sx.compile(text_of(drawn(seed)), options=EAGER).ir("stablehlo") for seed in range(10)]
    assert sum(loops) > 6


def module(body: str, inner: str) -> str:
    return f"""
func.func @main(%x: {V}, %y: {V}) -> {V} {{
{body}
}}
func.func private @g(%x: {V}) -> {V} {{
{inner}
return %r : {V}
}}"""


SUM = f"%r = stablehlo.add %x, %x : {V}"
TWICE = f"""%a = call @g(%x) : ({V}) -> {V}
%b = call @g(%MORE) : ({V}) -> {V}
%c = stablehlo.add %a, %b : {V}
return %c : {V}"""


def calls_of(text: str, name: str) -> int:
    """How often an operation stands in the program after inlining."""
    return sx.compile(text, options=EAGER).ir("stablehlo").count(name)


def test_equal_calls_are_one() -> None:
    assert calls_of(module(TWICE.replace("MORE", "x"), SUM), "stablehlo.add") == 2
    assert calls_of(module(TWICE.replace("MORE", "x"), SUM), "while") == 0


def test_calls_with_effects_are_not_one() -> None:
    heard: list[int] = []

    def tell(x: np.ndarray) -> np.ndarray:
        heard.append(int(x[0]))
        return x + 1

    sx.register_custom_call("tests.tell", tell)
    try:
        inner = f"%r = stablehlo.custom_call @tests.tell(%x) {{has_side_effect = true}} : ({V}) -> {V}"
        for more, told in (("x", [5, 5]), ("a", [5, 6]), ("y", [5, 7])):
            heard.clear()
            executable = sx.compile(module(TWICE.replace("MORE", more), inner), options=EAGER)
            executable.execute([np.full(4, 5, np.int32), np.full(4, 7, np.int32)])
            assert heard == told
            assert executable.ir("stablehlo").count("custom_call") == 1
    finally:
        sx.unregister_custom_call("tests.tell")


def test_values_that_no_loop_carries_are_inlined() -> None:
    """A token is no number that could be zero at first."""
    text = """
func.func @main(%x: tensor<4xi32>) -> tensor<4xi32> {
%t = stablehlo.create_token : !stablehlo.token
%a:2 = call @g(%x, %t) : (tensor<4xi32>, !stablehlo.token) -> (tensor<4xi32>, !stablehlo.token)
%b:2 = call @g(%a#0, %a#1) : (tensor<4xi32>, !stablehlo.token) -> (tensor<4xi32>, !stablehlo.token)
return %b#0 : tensor<4xi32>
}
func.func private @g(%x: tensor<4xi32>, %t: !stablehlo.token) -> (tensor<4xi32>, !stablehlo.token) {
%r = stablehlo.add %x, %x : tensor<4xi32>
return %r, %t : tensor<4xi32>, !stablehlo.token
}"""
    executable = sx.compile(text, options=EAGER)
    assert "while" not in executable.ir("stablehlo")
    np.testing.assert_array_equal(executable(np.arange(4, dtype=np.int32)), np.arange(4) * 4)


@pytest.mark.parametrize("element", ["f32", "complex<f64>", "i1", "bf16", "i4"])
@pytest.mark.parametrize("shape", [(), (3,), (0, 2)])
def test_any_type_is_carried(element: str, shape: tuple[int, ...]) -> None:
    """With a value between the calls that is read after both."""
    value = Value("%x", shape, element)
    between = f"%m = stablehlo.multiply %a, %y : {V}\n%b = "
    text = module(TWICE.replace("%MORE", "%m").replace("%b = ", between), SUM).replace(V, value.type)
    usual, loops = (sx.compile(text, options=options) for options in (INLINED, EAGER))
    assert "while" in loops.ir("stablehlo")
    arguments = [np.ones(shape, value.element_type.dtype)] * 2
    assert loops.execute(arguments)[0].tobytes() == usual.execute(arguments)[0].tobytes()


def test_code_is_refused_that_no_loop_bounds() -> None:
    """Two functions that each call two others once."""
    text, last = f"func.func @main(%x: {V}) -> {V} {{\n%r = call @g25(%x) : ({V}) -> {V}\nreturn %r : {V}\n}}", "gh"
    for n in range(26):
        for name in last:
            inner = [f"@{other}{n - 1}" for other in last] if n else []
            lines = [f"%{i} = call {g}(%{i - 1 if i else 'x'}) : ({V}) -> {V}" for i, g in enumerate(inner)]
            result = f"%{len(lines) - 1}" if lines else "%x"
            head = f"\nfunc.func private @{name}{n}(%x: {V}) -> {V} {{"
            text += "\n".join([head, *lines, f"return {result} : {V}\n}}"])
    with pytest.raises(sx.UnsupportedError, match="more than 4,000,000 operations"):
        sx.compile(text)
