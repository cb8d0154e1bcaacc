"""Published models by name. Each is one TOML file in `models/`, with the page its figures come from.

catalog.py     get, names, table, find
aliases.toml   other names: Hugging Face ids and short forms
models/        one file a model
"""

from torchledger.spec.presets.catalog import find, get, names, path_of, suggestion, table

__all__ = ["find", "get", "names", "path_of", "suggestion", "table"]
