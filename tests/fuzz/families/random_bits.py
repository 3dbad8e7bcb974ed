"""Random bits, which are a function of their state; the oracle is XLA:CPU alone."""

from __future__ import annotations

from tests.fuzz.program import Value, tensor
from tests.fuzz.writer import Writer, family

random_bits = family("random")


@random_bits.statement(0.5)
def rng_bit_generator(w: Writer) -> list[Value]:
    algorithm, size = w.random.choice([("THREE_FRY", 2), ("PHILOX", 2), ("PHILOX", 3), ("DEFAULT", 2)])
    state = w.pick(lambda v: v.type == f"tensor<{size}xui64>")
    if state is None:
        numbers = [w.random.randrange(1 << 64) for _ in range(size)]
        kind = tensor((size,), "ui64")
        state = w.emit(f"stablehlo.constant dense<{numbers}> : {kind}", (size,), "ui64")
    shape, element = w.shape(), w.random.choice(["ui8", "ui16", "ui32", "ui64"])
    return w.emit_several(
        f"stablehlo.rng_bit_generator {state.name}, algorithm = {algorithm}"
        f" : ({state.type}) -> ({state.type}, {tensor(shape, element)})",
        [((size,), "ui64"), (shape, element)],
    )
