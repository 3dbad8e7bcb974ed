"""The command line: `stablexla-opt` runs passes on a file, `stablexla-run` runs a program,
`stablexla-translate` turns one form of a program into another."""
