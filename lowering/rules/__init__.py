"""The lowering rules, a file for each family of operations; all are registered when this package is imported."""

from stablexla.dialects.discovery import import_all

import_all(__name__)
