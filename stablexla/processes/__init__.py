"""Compiling in another process, which may crash or hang without harm to this one."""
