"""Bounded dynamism: arrays with dynamic dimensions become arrays of their bounds, with sizes as scalars."""
