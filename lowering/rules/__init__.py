"""Lowering rules, one module per family of operations; importing this package registers them all."""

from stablexla.dialects.discovery import import_all

import_all(__name__)
