"""Profiles: times by kernel and by operation of one run, as a table, a page or a trace."""
