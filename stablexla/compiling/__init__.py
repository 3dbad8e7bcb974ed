"""Compilation: `sx.compile` from a program in any form to an executable, with caches and isolation."""
