"""The command line: `stablexla-opt` runs passes on a file, `stablexla-run` runs a program,
`stablexla-translate` converts a program from one form to another."""
