"""A contract for import-linter: what lies under the API must not know the API.

The order of the layers themselves is import-linter's own `layers` contract, in pyproject.toml.
"""

from __future__ import annotations

from importlinter import Contract, ContractCheck, fields, output


class BelowTheApi(Contract):
    """Modules of the listed layers import nothing of their package outside the listed layers."""

    package = fields.StringField()
    layers = fields.ListField(subfield=fields.StringField())

    def check(self, graph, verbose):  # type: ignore[no-untyped-def]
        below = tuple(f"{self.package}.{layer}" for layer in self.layers)

        def is_below(module: str) -> bool:
            return any(module == layer or module.startswith(layer + ".") for layer in below)

        wrong = sorted(
            (importer, imported)
            for importer in graph.modules
            if is_below(importer)
            for imported in graph.find_modules_directly_imported_by(importer)
            if not is_below(imported) and imported.split(".")[0] == self.package
        )
        return ContractCheck(kept=not wrong, metadata={"wrong": wrong})

    def render_broken_contract(self, check):  # type: ignore[no-untyped-def]
        for importer, imported in check.metadata["wrong"]:
            output.print_error(f"{importer} imports {imported}, which is part of the API above it")
