"""Buffer assignment: no array is overwritten while it is needed, and copies are made only where they must.

The oracle is a run of the program on marks in memory (`shadow.py`), which shares nothing with the planning of life
times.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import mlir.ir as ir
import pytest

from stablexla.targets.buffers import arena
from stablexla.targets.buffers.arena import plan_arena
from stablexla.targets.buffers.assignment import BufferAssignment
from stablexla.targets.buffers.buffer import Buffer
from tests.fuzz.generate import FOUNDATION, draw
from tests.targets.buffers.control_flow import ControlFlow
from tests.targets.grouping.shadow import Shadow
from tests.targets.grouping.stages import emitted


def assigned(text: str, *, general_only: bool = False) -> BufferAssignment:
    """The buffers of a StableHLO program. The module must live as long as the assignment: it keeps it."""
    module = emitted(text, general_only=general_only)
    with module.context, ir.Location.unknown():
        made = BufferAssignment(module)
    made.module = module  # type: ignore[attr-defined]
    return made


def all_copies(assignment: BufferAssignment) -> int:
    """How many arrays are moved in all, not counting those that stay where they are."""
    return sum(copy.source.find() is not copy.target.find() for copies in assignment.copies.values() for copy in copies)


@pytest.mark.parametrize("path", ["emitters", "general"])
@pytest.mark.parametrize("first", range(0, 60, 10))
def test_every_read_finds_what_was_written(first: int, path: str) -> None:
    for seed in range(first, first + 10):
        program = draw(seed, FOUNDATION, 18).program
        assignment = assigned(program.text, general_only=path == "general")
        for run in range(6):
            try:
                Shadow(assignment, run).run()
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, run {run}: {error}\n{program.text}") from error


# ---- what is moved, and where arrays are -----------------------------------------------------------------------------


def loop(carried: str, body: str, yielded: str, *, before: str = "", results: str = "%r#1") -> str:
    """A program that runs `body` on the carried arrays, all of 6 elements, given as "%v = %x, ..."."""
    names = [pair.split(" = ") for pair in carried.split(", ")]
    types = ", ".join(["tensor<i32>", *["tensor<6xi32>"] * len(names)])
    outputs = ", ".join("tensor<6xi32>" for _ in results.split(", "))
    return f"""
    func.func public @main(%x: tensor<6xi32>, %y: tensor<6xi32>, %n: tensor<i32>) -> ({outputs}) {{
      %c0 = stablehlo.constant dense<0> : tensor<i32>
      %c1 = stablehlo.constant dense<1> : tensor<i32>
      {before}
      %r:{len(names) + 1} = stablehlo.while(%i = %c0, {carried}) : {types}
      cond {{
        %go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %go : tensor<i1>
      }} do {{
        %j = stablehlo.add %i, %c1 : tensor<i32>
        {body}
        stablehlo.return %j, {yielded} : {types}
      }}
      return {results} : {outputs}
    }}"""


def flipped(name: str, of: str) -> str:
    """An operation that cannot be done in place."""
    return f"{name} = stablehlo.reverse {of}, dims = [0] : tensor<6xi32>\n"


def added(name: str, *of: str) -> str:
    """An operation that can be."""
    return f"{name} = stablehlo.add {', '.join(of)} : tensor<6xi32>\n"


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        # The parameter must stay as it is; then every turn works in place.
        (loop("%v = %x", added("%w", "%v", "%v"), "%w"), 1),
        # An array made for the loop is taken over.
        (loop("%v = %a", added("%w", "%v", "%v"), "%w", before=added("%a", "%x", "%y")), 0),
        # ... unless it is needed later,
        (loop("%v = %a", added("%w", "%v", "%v"), "%w", before=added("%a", "%x", "%y"), results="%r#1, %a"), 1),
        # ... or carried twice.
        (
            loop(
                "%v = %a, %u = %a",
                added("%w", "%v", "%v") + added("%z", "%u", "%w"),
                "%w, %z",
                before=added("%a", "%x", "%y"),
                results="%r#1, %r#2",
            ),
            1,
        ),
        # What cannot be done in place has two buffers that are swapped.
        (loop("%v = %x", flipped("%w", "%v"), "%w"), 1),
        # A new array that is made after the old one was last read goes where the old one was.
        (loop("%v = %x", flipped("%a", "%v") + flipped("%w", "%a"), "%w"), 1),
        # Two that change places, and three in a circle.
        (loop("%v = %x, %w = %y", "", "%w, %v", results="%r#1, %r#2"), 2),
        (loop("%u = %x, %v = %x, %w = %y", "", "%v, %w, %u", results="%r#1, %r#2, %r#3"), 3),
        # One array that two carry on: the second is a copy.
        (loop("%v = %x, %u = %y", added("%w", "%v", "%v"), "%w, %w", results="%r#1, %r#2"), 2 + 1),
        # A chain, whose last buffer is the new array's in the next turn.
        (loop("%v = %x, %w = %y", added("%a", "%v", "%v"), "%a, %v", results="%r#1, %r#2"), 2),
        # Of two that carry one array on, one takes its place; the other stays where it is.
        (loop("%v = %x, %w = %y", flipped("%a", "%v"), "%a, %a", results="%r#1, %r#2"), 2 + 1),
        (loop("%u = %x, %v = %x, %w = %y", "", "%v, %u, %u", results="%r#1, %r#2, %r#3"), 3 + 1),
        # What is made outside of the loop has no place to give.
        (loop("%v = %x", "", "%y"), 1 + 1),
        (loop("%v = %x, %w = %y", flipped("%a", "%w"), "%w, %x", results="%r#1, %r#2"), 2 + 2),
    ],
)
def test_copies_in_a_loop(text: str, moved: int) -> None:
    assignment = assigned(text)
    for run in range(8):
        Shadow(assignment, run).run()
    assert all_copies(assignment) == moved


def updated(name: str, of: str) -> str:
    """An operation that changes a part of an array."""
    types = "tensor<6xi32>, tensor<2xi32>, tensor<i32>"
    return f"""%s{name[1:]} = stablehlo.constant dense<7> : tensor<2xi32>
    {name} = stablehlo.dynamic_update_slice {of}, %s{name[1:]}, %i : ({types}) -> tensor<6xi32>
    """


def choice(names: str, *branches: tuple[str, str]) -> str:
    """A conditional: for each branch its operations and what it yields."""
    count = len(branches[0][1].split(", "))
    types = ", ".join(["tensor<6xi32>"] * count)
    regions = ", ".join(f"{{ {body}\n stablehlo.return {yielded} : {types} }}" for body, yielded in branches)
    return f'{names}:{count} = "stablehlo.case"(%i) ({regions}) : (tensor<i32>) -> ({types})\n'


KEPT, CHANGED = ("", "%v"), (updated("%a", "%v"), "%a")
FIRST, SECOND = (updated("%a", "%v"), "%a, %u"), (updated("%a", "%u"), "%v, %a")
EACH = (updated("%a", "%v") + updated("%b", "%u"), "%a, %b")
TWO_OF_ONE = (updated("%a", "%v") + added("%b", "%v", "%y"), "%a, %b")
BOTH = "%v = %x, %u = %y"


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        # A branch that yields the carried array as it is, and ones that update it, move nothing.
        (loop("%v = %x", choice("%w", KEPT, CHANGED), "%w#0"), 1),
        (loop("%v = %x", choice("%w", CHANGED, KEPT, CHANGED, KEPT), "%w#0"), 1),
        (loop("%v = %x", choice("%w", (added("%a", "%v", "%v"), "%a"), CHANGED), "%w#0"), 1),
        (loop("%v = %x", choice("%w", (choice("%b", KEPT, CHANGED), "%b#0"), CHANGED), "%w#0"), 1),
        (
            loop(
                "%v = %x",
                choice("%w", KEPT, CHANGED) + choice("%z", ("", "%w#0"), (updated("%b", "%w#0"), "%b")),
                "%z#0",
            ),
            1,
        ),
        (loop("%v = %a", choice("%w", KEPT, (updated("%b", "%v"), "%b")), "%w#0", before=added("%a", "%x", "%y")), 0),
        # What is needed after the conditional is moved once, by whichever branch runs.
        (loop("%v = %x", choice("%w", KEPT, CHANGED) + added("%z", "%w#0", "%v"), "%z"), 1 + 2),
        # So is what a branch needs after the update.
        (loop("%v = %x", choice("%w", CHANGED, (updated("%a", "%v") + added("%b", "%v", "%a"), "%b")), "%w#0"), 1 + 1),
        # A new array that is made after the old one was last read goes where that was, others are moved there.
        (loop("%v = %x", choice("%w", KEPT, (flipped("%a", "%v") + flipped("%b", "%a"), "%b")), "%w#0"), 1),
        (loop("%v = %x", choice("%w", KEPT, (flipped("%a", "%v"), "%a")), "%w#0"), 1 + 1),
        (loop("%v = %x", choice("%w", CHANGED, ("", "%y")), "%w#0"), 1 + 1),
        # One of two: it stays in one branch.
        (loop("%v = %x", flipped("%a", "%v") + choice("%w", KEPT, (updated("%b", "%a"), "%b")), "%w#0"), 1 + 1),
        # Of two arrays each branch changes one; in the second case they also change places after the conditional.
        (loop(BOTH, choice("%w", FIRST, SECOND), "%w#0, %w#1"), 2),
        (loop(BOTH, choice("%w", FIRST, SECOND), "%w#1, %w#0"), 2),
        # Arrays that change places in a branch: one is put aside.
        (loop(BOTH, choice("%w", EACH, ("", "%u, %v")), "%w#0, %w#1"), 2 + 3),
        (loop(BOTH, choice("%w", EACH, (updated("%a", "%v"), "%u, %a")), "%w#0, %w#1"), 2 + 3),
        # One array that a branch gives twice.
        (loop(BOTH, choice("%w", EACH, ("", "%v, %v")), "%w#0, %w#1"), 2 + 1),
        (loop("%v = %x", choice("%w", TWO_OF_ONE, ("", "%v, %v")) + added("%z", "%w#0", "%w#1"), "%z"), 1 + 2),
        # A branch may write over what only another branch needs, but not over what the next turn reads.
        (loop("%v = %x", choice("%w", KEPT, (updated("%a", "%v") + added("%b", "%a", "%y"), "%b")), "%w#0"), 1),
        (loop("%v = %x", choice("%w", KEPT, (updated("%b", "%a"), "%b")), "%w#0", before=added("%a", "%x", "%y")), 2),
    ],
)
def test_copies_in_a_conditional(text: str, moved: int) -> None:
    assignment = assigned(text)
    for run in range(16):
        Shadow(assignment, run).run()
    assert all_copies(assignment) == moved


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_every_read_finds_what_was_written_under_random_control_flow(first: int) -> None:
    for seed in range(first, first + 20):
        text = ControlFlow(seed, depth=1 + seed % 3).text()
        assignment = assigned(text)
        for run in range(8):
            try:
                Shadow(assignment, run, donated=run % 2 == 1).run()
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, run {run}: {error}\n{text}") from error


def test_a_new_carried_array_does_not_lie_over_what_took_the_old_ones_place() -> None:
    """%a overwrites %v in place and is read after %b was made, so that %b cannot be made where %v was."""
    turned = "%t = stablehlo.reshape %a : (tensor<6xi32>) -> tensor<2x3xi32>\n"
    turned += "%s = stablehlo.transpose %t, dims = [1, 0] : (tensor<2x3xi32>) -> tensor<3x2xi32>\n"
    turned += "%c = stablehlo.reshape %s : (tensor<3x2xi32>) -> tensor<6xi32>\n"
    body = added("%a", "%v", "%v") + flipped("%b", "%w") + turned + added("%d", "%c", "%b")
    assignment = assigned(loop("%v = %x, %w = %y", body, "%b, %d", results="%r#1, %r#2"))
    for run in range(8):
        Shadow(assignment, run).run()


def test_a_branch_makes_its_array_where_the_result_is() -> None:
    text = """
    func.func public @main(%p: tensor<i1>, %x: tensor<6xi32>) -> (tensor<6xi32>, tensor<6xi32>) {
      %0:2 = "stablehlo.if"(%p) ({
        %a = stablehlo.negate %x : tensor<6xi32>
        stablehlo.return %a, %a : tensor<6xi32>, tensor<6xi32>
      }, {
        %a = stablehlo.abs %x : tensor<6xi32>
        %b = stablehlo.reverse %a, dims = [0] : tensor<6xi32>
        stablehlo.return %a, %b : tensor<6xi32>, tensor<6xi32>
      }) : (tensor<i1>) -> (tensor<6xi32>, tensor<6xi32>)
      return %0#0, %0#1 : tensor<6xi32>, tensor<6xi32>
    }"""
    assignment = assigned(text)
    for run in range(4):
        Shadow(assignment, run).run()
    assert all_copies(assignment) == 1  # the array that one branch gives twice
    assert assignment.arena_bytes == 0


def test_arrays_that_follow_each_other_share_a_place() -> None:
    turns = "\n".join(flipped(f"%v{i + 1}", f"%v{i}") for i in range(12))
    text = f"func.func public @main(%v0: tensor<6xi32>) -> tensor<6xi32> {{\n{turns}\nreturn %v12 : tensor<6xi32>\n}}"
    assignment = assigned(text)
    Shadow(assignment, 0).run()
    assert assignment.arena_bytes == 2 * 64


@pytest.mark.parametrize("seed", range(200))
def test_first_fit(seed: int) -> None:
    """The offsets are those of first-fit by its definition: the lowest at which nothing of the live range lies."""
    drawn = Random(seed)
    buffers = []
    for _ in range(drawn.randint(0, 40)):
        first = drawn.randint(0, 60)
        spans = [(first, first + drawn.choice([0, 1, 3, 10, 60]))]
        buffers.append(Buffer("arena", drawn.choice([1, 63, 64, 65, 1000, 4096]), spans=spans))
    size = plan_arena(buffers)
    placed: list[Buffer] = []
    for buffer in sorted(buffers, key=lambda b: (-b.bytes, b.first)):
        live = [b for b in placed if b.first <= buffer.last and buffer.first <= b.last]
        possible = sorted([0, *(-(-(b.offset + b.bytes) // 64) * 64 for b in live)])
        free = (at for at in possible if all(_apart(b, at, buffer.bytes) for b in live))
        assert buffer.offset == next(free)
        placed.append(buffer)
    assert size == max((-(-(b.offset + b.bytes) // 64) * 64 for b in buffers), default=0)


def _apart(buffer: Buffer, offset: int, size: int) -> bool:
    return buffer.offset + buffer.bytes <= offset or offset + size <= buffer.offset


@pytest.mark.parametrize("last", [lambda i, n: i + 2, lambda i, n: n, lambda i, n: 2 * n - i])
def test_the_work_of_planning_grows_with_n_log_n(
    last: Callable[[int, int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of arrays that are soon read, that live until the end, and until their gradients are computed."""
    work: list[int] = []
    original = arena._unite

    def counted(intervals: list[tuple[int, int]], start: int, end: int) -> None:
        work[-1] += 1 + len(intervals)
        original(intervals, start, end)

    monkeypatch.setattr(arena, "_unite", counted)
    for count in (250, 2000):
        work.append(0)
        plan_arena([Buffer("arena", 64, spans=[(i, last(i, count))]) for i in range(count)])
    assert work[1] < 16 * work[0]


def test_an_update_begins_with_the_operand_unless_that_is_dead() -> None:
    text = """
    func.func public @main(%x: tensor<6xi32>, %u: tensor<2xi32>, %i: tensor<i32>) -> tensor<6xi32> {
      %0 = stablehlo.dynamic_update_slice %x, %u, %i : (tensor<6xi32>, tensor<2xi32>, tensor<i32>) -> tensor<6xi32>
      %1 = stablehlo.dynamic_update_slice %0, %u, %i : (tensor<6xi32>, tensor<2xi32>, tensor<i32>) -> tensor<6xi32>
      return %1 : tensor<6xi32>
    }"""
    assignment = assigned(text)
    Shadow(assignment, 0).run()
    assert all_copies(assignment) == 1
