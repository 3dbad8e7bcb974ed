"""Grouping: what is computed together, what is not, and that the groups can always be put in an order."""

from __future__ import annotations

from collections.abc import Iterator

import mlir.ir as ir
import pytest

from stablexla.lowering.support.operations import body_of, defining, main_of, walk
from stablexla.targets.grouping.group import GROUP, LONGEST_ROW, MOST_AHEAD, MOST_OPERATIONS, blocks_of
from stablexla.targets.grouping.loops import is_generic
from tests.fuzz.generate import FOUNDATION, draw
from tests.targets.grouping.stages import grouped


def members(text: str) -> dict[str, list[str]]:
    """The operations of each group, by label; a loop nest goes by the last arithmetic in it."""
    found: dict[str, list[str]] = {}
    module = grouped(text)
    for op in walk(main_of(module)):
        if GROUP in op.attributes:
            label = ir.StringAttr(op.attributes[GROUP]).value
            names = [op.name, *(o.name for o in body_of(op)[:-1])] if is_generic(op) else [op.name]
            found.setdefault(label, []).append(names[-1].split(".", 1)[1])
    return found


def kinds(text: str) -> list[tuple[str, list[str]]]:
    """The groups' kinds and members, in the order of the first members."""
    return [(label.split(".")[0], names) for label, names in members(text).items()]


def main(parameters: str, body: str, result: str) -> str:
    """A program; `result` is "%name : type"."""
    return f"func.func public @main({parameters}) -> {result.split(': ')[1]} {{\n{body}\nreturn {result}\n}}"


def reduced(x: str, dimensions: str, source: str, made: str, name: str = "add") -> str:
    """The text of a reduction from %zero."""
    return (
        f"stablehlo.reduce({x} init: %zero) applies stablehlo.{name} across dimensions = [{dimensions}]"
        f" : ({source}, tensor<f32>) -> {made}"
    )


ZERO = "%zero = stablehlo.constant dense<0.0> : tensor<f32>\n"
T, ROW = "tensor<8x16xf32>", "tensor<8xf32>"


class TestElementwise:
    def test_a_chain_is_one_group(self) -> None:
        body = f"%0 = stablehlo.exponential %x : {T}\n%1 = stablehlo.negate %0 : {T}\n%2 = stablehlo.add %1, %0 : {T}"
        assert kinds(main(f"%x: {T}", body, f"%2 : {T}")) == [("loop", ["exp", "negf", "addf"])]

    def test_operands_made_apart_are_taken_in(self) -> None:
        body = f"%0 = stablehlo.exponential %x : {T}\n%1 = stablehlo.negate %y : {T}\n%2 = stablehlo.add %1, %0 : {T}"
        assert kinds(main(f"%x: {T}, %y: {T}", body, f"%2 : {T}")) == [("loop", ["exp", "negf", "addf"])]

    def test_two_that_share_only_an_operand_stay_apart(self) -> None:
        body = f"%0 = stablehlo.exponential %x : {T}\n%1 = stablehlo.negate %x : {T}"
        text = f"func.func public @main(%x: {T}) -> ({T}, {T}) {{\n{body}\nreturn %0, %1 : {T}, {T}\n}}"
        assert kinds(text) == [("loop", ["exp"]), ("loop", ["negf"])]

    def test_a_reader_at_other_places_is_another_group(self) -> None:
        body = (
            f"%0 = stablehlo.exponential %x : {T}\n%1 = stablehlo.reverse %0, dims = [0] : {T}\n"
            f"%2 = stablehlo.add %1, %0 : {T}"
        )
        assert kinds(main(f"%x: {T}", body, f"%2 : {T}")) == [("loop", ["exp"]), ("loop", ["generic", "addf"])]

    def test_groups_have_a_largest_size(self) -> None:
        count = 2 * MOST_OPERATIONS
        lines = [f"%{i + 1} = stablehlo.exponential %{i} : {T}" for i in range(count)]
        first = f"%0 = stablehlo.negate %x : {T}\n"
        sizes = [len(m) for m in members(main(f"%x: {T}", first + "\n".join(lines), f"%{count} : {T}")).values()]
        assert sum(sizes) == count + 1
        assert max(sizes) == MOST_OPERATIONS

    def test_plain_operations_on_integers_count_less(self) -> None:
        array, count = "tensor<16xui32>", 2 * MOST_OPERATIONS
        lines = [f"%{i + 1} = stablehlo.xor %{i}, %x : {array}" for i in range(count)]
        first = f"%0 = stablehlo.negate %x : {array}\n"
        (made,) = members(main(f"%x: {array}", first + "\n".join(lines), f"%{count} : {array}")).values()
        assert len(made) == count + 1


class TestReductions:
    def test_what_is_summed_and_what_is_made_of_the_sum(self) -> None:
        body = (
            f"{ZERO}%0 = stablehlo.exponential %x : {T}\n%1 = {reduced('%0', '1', T, ROW)}\n"
            f"%2 = stablehlo.negate %1 : {ROW}\n"
            f"%3 = stablehlo.broadcast_in_dim %2, dims = [0] : ({ROW}) -> {T}\n%4 = stablehlo.multiply %0, %3 : {T}"
        )
        assert kinds(main(f"%x: {T}", body, f"%4 : {T}")) == [("row", ["exp", "addf", "negf", "mulf"])]

    def test_a_row_kept_with_a_dimension_of_one(self) -> None:
        column = "tensor<8x1xf32>"
        body = (
            f"{ZERO}%1 = {reduced('%x', '1', T, ROW)}\n%2 = stablehlo.reshape %1 : ({ROW}) -> {column}\n"
            f"%3 = stablehlo.broadcast_in_dim %2, dims = [0, 1] : ({column}) -> {T}\n"
            f"%4 = stablehlo.subtract %x, %3 : {T}"
        )
        assert kinds(main(f"%x: {T}", body, f"%4 : {T}")) == [("row", ["addf", "subf"])]

    def test_a_sum_over_rows_takes_in_what_only_it_reads(self) -> None:
        column = "tensor<16xf32>"
        body = f"{ZERO}%0 = stablehlo.exponential %x : {T}\n%1 = {reduced('%0', '0', T, column)}"
        assert kinds(main(f"%x: {T}", body, f"%1 : {column}")) == [("reduce", ["exp", "addf"])]

    def test_but_not_what_others_read_too(self) -> None:
        column = "tensor<16xf32>"
        body = f"{ZERO}%0 = stablehlo.exponential %x : {T}\n%1 = {reduced('%0', '0', T, column)}"
        text = f"func.func public @main(%x: {T}) -> ({T}, {column}) {{\n{body}\nreturn %0, %1 : {T}, {column}\n}}"
        assert kinds(text) == [("loop", ["exp"]), ("reduce", ["addf"])]

    def test_rows_that_leave_the_cache_are_not_walked_again(self) -> None:
        wide = f"tensor<2x{LONGEST_ROW() + 1}xf32>"
        body = (
            f"{ZERO}%0 = {reduced('%x', '1', wide, 'tensor<2xf32>')}\n"
            f"%1 = stablehlo.broadcast_in_dim %0, dims = [0] : (tensor<2xf32>) -> {wide}\n"
            f"%2 = stablehlo.subtract %x, %1 : {wide}"
        )
        assert kinds(main(f"%x: {wide}", body, f"%2 : {wide}")) == [("row", ["addf"]), ("loop", ["subf"])]


class TestProducts:
    @pytest.mark.parametrize(
        ("x", "y", "dimensions", "made", "groups"),
        [
            ("9x3", "9x3", "batching_dims = [0] x [0], contracting_dims = [1] x [1]", "9", ["row"]),
            ("3x9", "9x3", "batching_dims = [1] x [0], contracting_dims = [0] x [1]", "9", ["loop", "row"]),
            ("9x1x3", "9x1x3", "batching_dims = [0] x [0], contracting_dims = [2] x [2]", "9x1x1", ["row"]),
        ],
    )
    def test_dot_products_are_reductions(self, x: str, y: str, dimensions: str, made: str, groups: list[str]) -> None:
        x, y, made = (f"tensor<{extents}xf32>" for extents in (x, y, made))
        body = (
            f"%0 = stablehlo.negate %x : {x}\n%1 = stablehlo.dot_general %0, %y, {dimensions} : ({x}, {y}) -> {made}\n"
            f"%2 = stablehlo.sqrt %1 : {made}"
        )
        assert [kind for kind, _ in kinds(main(f"%x: {x}, %y: {y}", body, f"%2 : {made}"))] == groups

    def test_products_that_read_an_operand_again_are_none(self) -> None:
        x, y, made = (f"tensor<{extents}xf32>" for extents in ("9x2x3", "9x3", "9x2"))
        dimensions = "batching_dims = [0] x [0], contracting_dims = [2] x [1]"
        body = f"%0 = stablehlo.dot_general %x, %y, {dimensions} : ({x}, {y}) -> {made}"
        assert kinds(main(f"%x: {x}, %y: {y}", body, f"%0 : {made}")) == [("contraction", ["addf"])]


class TestAfterProducts:
    """Operations on a product's results join it where they leave it one result."""

    X, Y, Z = "tensor<40x30xf32>", "tensor<30x40xf32>", "tensor<40x40xf32>"

    def kinds(self, body: str, result: str = "%9") -> list[tuple[str, list[str]]]:
        z, types = self.Z, f"({self.X}, {self.Y}) -> {self.Z}"
        body = f"%0 = stablehlo.dot %x, %y : {types}\n{body.replace('@', f': {z}')}"
        return kinds(main(f"%x: {self.X}, %y: {self.Y}, %z: {z}", body, f"{result} : {z}"))

    def test_two_ways_that_meet(self) -> None:
        body = "%1 = stablehlo.sine %0 @\n%9 = stablehlo.multiply %0, %1 @"
        ((kind, names),) = self.kinds(body)
        assert kind == "contraction"
        assert names[-1] == "mulf"

    def test_ways_of_several_operations(self) -> None:
        body = (
            "%1 = stablehlo.negate %0 @\n%2 = stablehlo.add %0, %z @\n%3 = stablehlo.abs %1 @\n"
            "%4 = stablehlo.multiply %2, %0 @\n%9 = stablehlo.maximum %3, %4 @"
        )
        assert [kind for kind, _ in self.kinds(body)] == ["contraction"]

    @pytest.mark.parametrize(("more", "groups"), [(0, 1), (1, 2)])
    def test_as_many_as_are_looked_at(self, more: int, groups: int) -> None:
        steps = MOST_AHEAD - 2 + more
        chain = "".join(f"%s{n + 1} = stablehlo.negate %s{n} @\n" for n in range(steps)).replace("%s0 @", "%0 @")
        assert len(self.kinds(f"{chain}%9 = stablehlo.multiply %0, %s{steps} @")) == groups

    def test_a_way_through_another_kernel(self) -> None:
        """A residual: the sum needs the second product, and that the first one's activation."""
        body = "%1 = stablehlo.abs %0 @\n%2 = stablehlo.dot %1, %z @\n%9 = stablehlo.add %0, %2 @"
        found = self.kinds(body.replace("dot %1, %z @", f"dot %1, %z : ({self.Z}, {self.Z}) -> {self.Z}"))
        assert found == [("contraction", ["addf"]), ("loop", ["absf"]), ("contraction", ["addf", "addf"])]

    def test_ways_at_other_places(self) -> None:
        body = "%1 = stablehlo.abs %0 @\n%2 = stablehlo.reverse %1, dims = [0] @\n%9 = stablehlo.add %0, %2 @"
        assert self.kinds(body)[0] == ("contraction", ["addf"])

    def test_ways_that_stay_apart(self) -> None:
        """Both are results: the product would have two."""
        body = "%1 = stablehlo.abs %0 @\n%2 = stablehlo.sine %0 @\n"
        body += f"%3 = stablehlo.dot %1, %2 : ({self.Z}, {self.Z}) -> {self.Z}\n%9 = stablehlo.negate %3 @"
        assert self.kinds(body)[0] == ("contraction", ["addf"])


class TestOrder:
    """A group may not be needed by something that it needs."""

    def test_nothing_lies_between(self) -> None:
        square = "tensor<8x8xf32>"
        body = (
            f"%0 = stablehlo.exponential %x : {square}\n"
            f"%1 = stablehlo.transpose %0, dims = [1, 0] : ({square}) -> {square}\n%2 = stablehlo.add %0, %1 : {square}"
        )
        assert [k for k, _ in kinds(main(f"%x: {square}", body, f"%2 : {square}"))] == ["loop", "transpose", "loop"]

    def test_not_even_in_main(self) -> None:
        """The condition is a scalar made of one operand of the last addition, and chooses the other."""
        body = (
            f"{ZERO}%0 = stablehlo.exponential %x : {T}\n%1 = {reduced('%0', '0, 1', T, 'tensor<f32>')}\n"
            "%p = stablehlo.compare GT, %1, %zero : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
            f'%2 = "stablehlo.if"(%p) ({{\n%a = stablehlo.negate %y : {T}\nstablehlo.return %a : {T}\n}}, {{\n'
            f"stablehlo.return %y : {T}\n}}) : (tensor<i1>) -> {T}\n%3 = stablehlo.abs %2 : {T}\n"
            f"%4 = stablehlo.add %0, %3 : {T}"
        )
        found = members(main(f"%x: {T}, %y: {T}", body, f"%4 : {T}"))
        (together,) = [names for names in found.values() if "exp" in names]
        assert "addf" in together  # the sum, which is made in the same pass
        assert "absf" not in together
        assert together.count("addf") == 1


def edges(module: ir.Module) -> Iterator[tuple[object, object]]:
    """Who needs whom, in each block: groups by label, what stays in main by the operation itself."""
    for block in blocks_of(main_of(module)):
        here = {view.operation for view in block.operations}

        def node(op: ir.Operation) -> object:
            return str(op.attributes[GROUP]) if GROUP in op.attributes else op

        for user in here:
            for inner in walk(user):
                for value in inner.operands:
                    maker = defining(value)
                    if maker is not None and maker in here and node(maker) != node(user):
                        yield node(user), node(maker)


def in_order(pairs: set[tuple[object, object]]) -> bool:
    """Whether the graph has no circle: nodes that need nothing are taken away until none is left."""
    nodes = {n for pair in pairs for n in pair}
    while nodes:
        free = nodes - {user for user, maker in pairs if maker in nodes}
        if not free:
            return False
        nodes -= free
        pairs = {(u, m) for u, m in pairs if u in nodes}
    return True


@pytest.mark.parametrize("first", range(1000, 1060, 10))
def test_groups_of_random_programs_can_be_put_in_order(first: int) -> None:
    for seed in range(first, first + 10):
        text = draw(seed, FOUNDATION, 24).program.text
        assert in_order(set(edges(grouped(text)))), f"seed {seed}\n{text}"


def test_the_oracle_sees_a_circle() -> None:
    assert not in_order({("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")})
    assert in_order({("a", "b"), ("b", "c"), ("a", "c")})
