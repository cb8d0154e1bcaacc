"""Hugging Face's `config.json` as a `ModelSpec` and back: read as transformers reads it, without transformers.

read.py      from_config: the file, its model_type, its mistakes
keys.py      values by name, defaults, mistakes collected; keys.toml holds other names and defaults
parts.py     what architectures share
llama.py, gpt.py, mixture.py   one function an architecture
write.py     to_config: the config of a model, judged by reading it back; written.toml holds each family's keys
"""

from torchledger.spec.huggingface.keys import known_model_types
from torchledger.spec.huggingface.read import from_config
from torchledger.spec.huggingface.write import differences, to_config

__all__ = ["differences", "from_config", "known_model_types", "to_config"]
