"""What people write in TOML, as typed values; and every mistake in it at once.

A configuration is any frozen dataclass, its nested dataclasses being tables. The classes know nothing of this room:
it reads their annotations.

*Strength.* From weak to strong: the fields' defaults, the files that a file `extends` (a path relative to the file that
says it; a chain is fine, a circle is a mistake), the file, a table that the caller built, and `--set a.b=c`. Tables are
merged key by key; lists and everything else are replaced whole. A table given for a nested dataclass keeps what the
field's default says about the keys it leaves out. `Loaded.origins` tells where each value came from.

*Strictness.* 3.7 is no whole number, and neither is "3" or 3.0. Fields annotated with a unit (`tokens: units.Count`)
take `"15T"` as well. `Literal` and enum fields name their choices. An unknown key is a mistake, with the key that was
probably meant, or the table to which it belongs. TOML has no null: `"none"` switches an optional field off. A path is
kept as written, so it is relative to where the command runs. A `ValueError` raised by a class about its own values is
collected with its path like any other mistake.

*Messages.* `ConfigError` prints one line per mistake, `path: what is wrong; what to do [file:line]`, and has them as
data in `.mistakes`. What is wrong with values that could be read is told beside those that could not: it is judged in
every reading that the configuration may have (`meant`).

    load.py        load: the whole way from files to a value
    meant.py       stand-ins for what could not be read, and what is wrong in spite of them
    source.py      files, extends, merging, origins
    override.py    --set
    lines.py       on which line a key stands
    place.py       dotted paths
    structure.py   raw values to typed ones
    wording.py     how messages name types and values
    error.py       ConfigError, did you mean
    write.py       back to tables and TOML
    schema.py      JSON Schema for editors
"""

from torchledger.config.error import ConfigError, closest, did_you_mean
from torchledger.config.load import Loaded, load, meant
from torchledger.config.meant import wrong_in_all
from torchledger.config.schema import describe_fields, schema
from torchledger.config.source import read_file
from torchledger.config.write import leaves, to_dict, to_toml

__all__ = [
    "ConfigError",
    "Loaded",
    "closest",
    "describe_fields",
    "did_you_mean",
    "leaves",
    "load",
    "meant",
    "read_file",
    "schema",
    "to_dict",
    "to_toml",
    "wrong_in_all",
]
