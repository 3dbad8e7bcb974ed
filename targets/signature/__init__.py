"""Signatures of compiled programs: types, names and shardings of parameters and results."""
