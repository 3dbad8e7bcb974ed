"""Recurrent networks: the products with a sequence at once, and a loop over its steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import stablexla as sx
from stablexla.builder.op import XlaOp
from stablexla.interop.torch.call import Call, broadcast, convert, full_like, wide
from stablexla.interop.torch.registry import aten
from stablexla.interop.torch.sampling import rows

State = tuple[XlaOp, ...]
# From the products of a step's input and of the hidden state with the weights, and the state, the next state.
Cell = Callable[[XlaOp, XlaOp, State], State]


def _parts(gates: XlaOp, count: int) -> list[XlaOp]:
    size = gates.shape.dimensions[1] // count
    return [sx.slice_in_dim(gates, n * size, (n + 1) * size, 1, 1) for n in range(count)]


def _lstm_cell(seen: XlaOp, hidden: XlaOp, state: State) -> State:
    i, f, g, o = _parts(sx.add(seen, hidden), 4)
    cell = sx.add(sx.mul(sx.logistic(f), state[1]), sx.mul(sx.logistic(i), sx.tanh(g)))
    return sx.mul(sx.logistic(o), sx.tanh(cell)), cell


def _gru_cell(seen: XlaOp, hidden: XlaOp, state: State) -> State:
    (r, z, n), (hidden_r, hidden_z, hidden_n) = _parts(seen, 3), _parts(hidden, 3)
    new = sx.tanh(sx.add(n, sx.mul(sx.logistic(sx.add(r, hidden_r)), hidden_n)))
    return (sx.add(sx.mul(sx.sub(state[0], new), sx.logistic(sx.add(z, hidden_z))), new),)


def _tanh_cell(seen: XlaOp, hidden: XlaOp, state: State) -> State:
    return (sx.tanh(sx.add(seen, hidden)),)


def _relu_cell(seen: XlaOp, hidden: XlaOp, state: State) -> State:
    return (sx.max(sx.add(seen, hidden), 0),)


_CELLS: dict[str, Cell] = {"lstm": _lstm_cell, "gru": _gru_cell, "rnn_tanh": _tanh_cell, "rnn_relu": _relu_cell}


@dataclass(frozen=True)
class _Layer:
    """One direction of one layer: weights w_ih[G,I], w_hh[G,H], w_hr[P,H] of a projection, and biases[G].

    States are h[B,H], or h[B,P] where there is a projection, and of an LSTM c[B,H]. Halves are computed in f32; h is
    rounded in each step, as it is a result.
    """

    cell: Cell
    w_ih: XlaOp
    w_hh: XlaOp
    b_ih: XlaOp | None
    b_hh: XlaOp | None
    w_hr: XlaOp | None

    @classmethod
    def of(cls, cell: Cell, params: Sequence[XlaOp], has_biases: bool) -> _Layer:
        w_ih, w_hh, *more = params
        b_ih, b_hh = more[:2] if has_biases else (None, None)
        projections = more[2 if has_biases else 0 :]
        return cls(cell, w_ih, w_hh, b_ih, b_hh, projections[0] if projections else None)

    def seen(self, x: XlaOp) -> XlaOp:
        """Return the products of a whole sequence, f[...,G] for x[...,I]."""
        return _linear(x, self.w_ih, self.b_ih)

    def step(self, seen: XlaOp, state: State) -> State:
        new = self.cell(seen, _linear(state[0], self.w_hh, self.b_hh), (wide(state[0]), *state[1:]))
        hidden = convert(new[0], state[0].element_type)
        if self.w_hr is not None:
            hidden = convert(_linear(hidden, self.w_hr, None), state[0].element_type)
        return hidden, *new[1:]


def _linear(x: XlaOp, weight: XlaOp, bias: XlaOp | None) -> XlaOp:
    """Return x W^T + b over the last dimension; of halves in f32."""
    type_ = wide(full_like(x, 0, ())).element_type
    numbers = sx.DotDimensionNumbers((x.shape.rank - 1,), (1,))
    made = sx.dot_general(x, convert(weight, x.element_type), numbers, preferred_element_type=type_)
    return made if bias is None else sx.add(made, broadcast(convert(bias, type_), made.shape.dimensions))


def _loop(layer: _Layer, x: XlaOp, states: State, reverse: bool) -> tuple[XlaOp, State]:
    """Return the hidden states h[T,B,H] for x[T,B,I], and the last state."""
    seen, count = layer.seen(x), x.shape.dimensions[0]
    start = (x.builder.constant(0), full_like(x, 0, (count, *states[0].shape.dimensions)), *states)

    def body(loop: XlaOp) -> tuple[XlaOp, ...]:
        step, made, *state = loop
        at = sx.sub(full_like(step, count - 1), step) if reverse else step
        gates = sx.reshape(
            sx.dynamic_slice(seen, (at, 0, 0), (1, *seen.shape.dimensions[1:])), seen.shape.dimensions[1:]
        )
        new = layer.step(gates, tuple(state))
        row = sx.reshape(new[0], (1, *new[0].shape.dimensions))
        return sx.add(step, full_like(step, 1)), sx.dynamic_update_slice(made, row, (at, 0, 0)), *new

    _, made, *last = sx.while_(lambda loop: sx.lt(loop[0], full_like(loop[0], count)), body, start)
    return made, tuple(last)


def _packed_loop(layer: _Layer, x: XlaOp, states: State, reverse: bool, batch_sizes: XlaOp) -> tuple[XlaOp, State]:
    """Return the hidden states h[R,H] of packed sequences x[R,I], of which step t has the next batch_sizes[t] rows, and
    each sequence's last state; the states of sequences that have no such step stay as they are."""
    seen, (count,), batch = layer.seen(x), batch_sizes.shape.dimensions, states[0].shape.dimensions[0]
    sizes = convert(batch_sizes, "s32")
    total = x.shape.dimensions[0]
    begin = full_like(sizes, total if reverse else 0, ())
    start = (x.builder.constant(0), begin, full_like(x, 0, (total, states[0].shape.dimensions[1])), *states)

    def body(loop: XlaOp) -> tuple[XlaOp, ...]:
        step, first, made, *state = loop
        at = sx.sub(full_like(step, count - 1), step) if reverse else step
        size = sx.reshape(sx.dynamic_slice(sizes, (at,), (1,)), ())
        first = sx.sub(first, size) if reverse else first
        row = x.builder.iota(sx.s32[(batch,)], 0)
        present = sx.lt(row, broadcast(size, (batch,)))
        row = sx.add(row, broadcast(first, (batch,)))
        new = layer.step(rows(seen, row, 0), tuple(state))
        kept = [
            sx.select(sx.broadcast_in_dim(present, now.shape.dimensions, (0,)), now, old)
            for now, old in zip(new, state, strict=True)
        ]
        outside = sx.select(present, row, full_like(row, total))
        made = sx.scatter(made, outside, new[0], lambda old, now: now, 1, (1,), (0,), (0,))
        return sx.add(step, full_like(step, 1)), first if reverse else sx.add(first, size), made, *kept

    _, _, made, *last = sx.while_(lambda loop: sx.lt(loop[0], full_like(loop[0], count)), body, start)
    return made, tuple(last)


def _network(
    call: Call, x: XlaOp, states: State, params: Sequence[XlaOp], has_biases: bool, layers: int, dropout: float,
    train: bool, bidirectional: bool, *, batch_sizes: XlaOp | None = None,
) -> list[XlaOp]:  # fmt: skip
    """Return the hidden states of the last layer, f[T,B,D H], and the last states of all layers, f[D layers,B,...]."""
    cell = _CELLS[str(call.operator._schema.name).removeprefix("aten::")]
    directions = 2 if bidirectional else 1
    each = len(params) // (layers * directions)
    lasts: list[State] = []
    for number in range(layers):
        made = []
        for reverse in (False, True)[:directions]:
            place = len(lasts)
            layer = _Layer.of(cell, params[place * each : (place + 1) * each], has_biases)
            hidden, *more = (_first(state, place, x) for state in states)
            state = (hidden, *map(wide, more))
            if batch_sizes is None:
                seen, last = _loop(layer, x, state, reverse)
            else:
                seen, last = _packed_loop(layer, x, state, reverse, batch_sizes)
            made.append(seen)
            lasts.append(last)
        x = made[0] if directions == 1 else sx.concat_in_dim(made, x.shape.rank - 1)
        if dropout and train and number < layers - 1:
            shapes = [x.shape, x.shape.with_element_type("pred")]
            x, _ = call.translator.apply("aten.native_dropout.default", (x, dropout, True), {}, shapes)
    stacked = [sx.concat_in_dim([sx.reshape(s, (1, *s.shape.dimensions)) for s in state], 0) for state in zip(*lasts)]
    return [x, *stacked]


def _first(states: XlaOp, number: int, x: XlaOp) -> XlaOp:
    part = sx.slice_in_dim(states, number, number + 1, 1, 0)
    return convert(sx.reshape(part, states.shape.dimensions[1:]), x.element_type)


def _of_sequence(
    call: Call, x: XlaOp, states: State, params: Sequence[XlaOp], has_biases: bool, layers: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool,
) -> list[XlaOp]:  # fmt: skip
    x = sx.transpose(x, (1, 0, 2)) if batch_first else x
    made, *last = _network(call, x, states, params, has_biases, layers, dropout, train, bidirectional)
    return [sx.transpose(made, (1, 0, 2)) if batch_first else made, *last]


@aten("aten.lstm.input")
def lstm(call: Call, x: XlaOp, states: Sequence[XlaOp], params: Sequence[XlaOp], *options: Any) -> list[XlaOp]:
    return _of_sequence(call, x, tuple(states), params, *options)


@aten("aten.gru.input", "aten.rnn_tanh.input", "aten.rnn_relu.input")
def rnn(call: Call, x: XlaOp, state: XlaOp, params: Sequence[XlaOp], *options: Any) -> list[XlaOp]:
    return _of_sequence(call, x, (state,), params, *options)


@aten("aten.lstm.data")
def packed_lstm(
    call: Call, x: XlaOp, batch_sizes: XlaOp, states: Sequence[XlaOp], params: Sequence[XlaOp], *options: Any
) -> list[XlaOp]:
    return _network(call, x, tuple(states), params, *options, batch_sizes=batch_sizes)


@aten("aten.gru.data", "aten.rnn_tanh.data", "aten.rnn_relu.data")
def packed_rnn(
    call: Call, x: XlaOp, batch_sizes: XlaOp, state: XlaOp, params: Sequence[XlaOp], *options: Any
) -> list[XlaOp]:
    return _network(call, x, (state,), params, *options, batch_sizes=batch_sizes)


@aten("aten.mkldnn_rnn_layer.default")
def mkldnn_layer(
    call: Call, x: XlaOp, w_ih: XlaOp, w_hh: XlaOp, b_ih: XlaOp, b_hh: XlaOp, hidden: XlaOp, cell: XlaOp, reverse: bool,
    batch_sizes: Sequence[int], mode: int, hidden_size: int, layers: int, has_biases: bool,
) -> list[XlaOp]:  # fmt: skip
    """A layer of an LSTM in one direction, for PyTorch's decomposition on CPUs where no gradient is needed; the fourth
    result is for the gradient of the whole."""
    layer = _Layer.of(_lstm_cell, (w_ih, w_hh, b_ih, b_hh), True)
    states = [sx.reshape(each, each.shape.dimensions[1:]) for each in (hidden, cell)]
    made, last = _loop(layer, x, (states[0], wide(states[1])), reverse)
    return [made, *(sx.reshape(each, (1, *each.shape.dimensions)) for each in last), call.constant(0, "u8", (0,))]
