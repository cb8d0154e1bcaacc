"""A folder of prepared data: two token files, their tokenizer, and the page that says what they are."""

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

from torchledger.trainer import durable
from torchledger.trainer.sealed import seal, seal_fault
from torchledger.trainer.tokenfile import TokenFile, TokenFileError
from torchledger.trainer.tokenizer import Tokenizer, TokenizerError, load_tokenizer

__all__ = ["PrepareError", "PreparedData", "PreparedPart", "load_prepared"]

SCHEMA = "torchledger.prepare/2"
_OLD_SCHEMAS = frozenset({"torchledger.prepare/1"})  # without a checksum of the page itself
SUMMARY_NAME = "prepare.json"
SOURCES_NAME = "sources.json"
TOKENIZER_NAME = "tokenizer.json"
TRAIN_NAME = "train.tokens"
VALIDATION_NAME = "validation.tokens"


class PrepareError(ValueError):
    """Data that cannot be prepared, or a folder whose data is not whole; the message says why."""


@dataclass(frozen=True, slots=True)
class PreparedPart:
    """One token file: `num_bytes` of text became `num_tokens` ids (end-of-text ids counted) in `num_documents`."""

    num_tokens: int
    num_documents: int
    num_bytes: int
    unigram_entropy_nats: float
    payload_sha256: str

    @property
    def bytes_per_token(self) -> float:
        """Bytes of text that a token stands for on average."""
        return self.num_bytes / self.num_tokens


@dataclass(frozen=True, slots=True)
class PreparedData:
    """What `prepare` made. The entropies are in nats per token, to hold the losses against.

    Attributes:
        folder: where it stands.
        source: `stdlib`, or the folder or file, as it was given.
        split: the rule of the split, in words.
        train: the training tokens.
        validation: the validation tokens.
        tokenizer_kind: `bpe` or `bytes`.
        tokenizer_hash: hash of tokenizer.json.
        vocab_size: one more than the largest id.
        end_of_text_id: the id that ends each document.
        unigram_entropy_nats: of all tokens, training and validation together.
        validation_unigram_loss_nats: loss on the validation tokens of the unigram model of the training tokens, each
            count plus one.
        num_files: text files read.
        num_skipped: files left out; sources.json lists both.
        sources_sha256: one hash of all their names and contents.
        inputs_hash: one hash of everything that the result depends on.
        assumptions: what was decided without being asked.
        versions: of Python and the libraries that made it.
        reused: whether an earlier, identical preparation was found and nothing was done.
    """

    folder: Path
    source: str
    split: str
    train: PreparedPart
    validation: PreparedPart
    tokenizer_kind: str
    tokenizer_hash: str
    vocab_size: int
    end_of_text_id: int
    unigram_entropy_nats: float
    validation_unigram_loss_nats: float
    num_files: int
    num_skipped: int
    sources_sha256: str
    inputs_hash: str
    assumptions: tuple[str, ...]
    versions: dict[str, str]
    reused: bool = False

    @property
    def train_path(self) -> Path:
        """The token file to train on."""
        return self.folder / TRAIN_NAME

    @property
    def validation_path(self) -> Path:
        """The token file to validate on."""
        return self.folder / VALIDATION_NAME

    @property
    def tokenizer_path(self) -> Path:
        """The tokenizer's file."""
        return self.folder / TOKENIZER_NAME

    def tokenizer(self) -> Tokenizer:
        """Load the tokenizer.

        Raises:
            TokenizerError: if it is gone or needs a library that is not installed.
        """
        return load_tokenizer(self.tokenizer_path)

    @property
    def payload_bytes(self) -> int:
        """Bytes of all token ids, which is what `verify` reads."""
        return sum(TokenFile.open(path).header.payload_bytes for path in (self.train_path, self.validation_path))

    def verify_sources(self) -> None:
        """Read the page of what was read, and prove that it is the one that this belongs to.

        Raises:
            PrepareError: missing, damaged, or another one.
        """
        path = self.folder / SOURCES_NAME
        try:
            rows = json.loads(path.read_bytes().decode("utf-8"))
            lines = "".join(f"{file['sha256']}  {file['name']}\n" for file in rows["files"])
            found = hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()
            counts = len(rows["files"]), len(rows["skipped"])
        except OSError as error:
            raise PrepareError(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise PrepareError(f"{path} is damaged ({error!r})") from error
        hashes_agree = found == rows.get("sha256") == self.sources_sha256
        if not hashes_agree or counts != (self.num_files, self.num_skipped):
            raise PrepareError(f"{path} is damaged, or not of this preparation: its hash is not that of {SUMMARY_NAME}")

    def verify(self) -> None:
        """Read both token files whole and prove them: every id in the vocabulary, both checksums.

        Raises:
            PrepareError: naming the first fault.
        """
        try:
            for path in (self.train_path, self.validation_path):
                TokenFile.open(path, verify=True)
        except TokenFileError as error:
            raise PrepareError(f"the prepared data in {self.folder} is damaged: {error}; prepare it again") from error

    def to_dict(self) -> dict[str, Any]:
        """Rows for JSON; `folder` and `reused` are where and when, not what, and are left out."""
        row = asdict(self)
        del row["folder"], row["reused"]
        for part, values in (("train", self.train), ("validation", self.validation)):
            row[part]["bytes_per_token"] = values.bytes_per_token
        return {"schema": SCHEMA, **row}

    def save(self) -> None:
        """Write the summary page: last of all files, so that a folder without it is known to be unfinished."""
        durable.write_text(self.folder / SUMMARY_NAME, seal(json.dumps(self.to_dict(), indent=1)))

    @classmethod
    def from_dict(cls, row: dict[str, Any], folder: Path) -> Self:
        """Read back what `to_dict` wrote; raises KeyError or TypeError on anything else."""
        values = {field.name: row[field.name] for field in fields(cls) if field.name not in {"folder", "reused"}}
        for part in ("train", "validation"):
            values[part] = PreparedPart(**{field.name: row[part][field.name] for field in fields(PreparedPart)})
        values["assumptions"] = tuple(values["assumptions"])
        return cls(folder=folder, **values)


def load_prepared(folder: Path | str) -> PreparedData:
    """Read what `prepare` wrote into `folder`, and check that its files are there, whole, and belong together.

    Of the token files only headers and sizes are read; `PreparedData.verify` reads them to the last id.

    Raises:
        PrepareError: nothing prepared there, or not whole: what is missing or does not match.
    """
    folder = Path(folder)
    path = folder / SUMMARY_NAME
    try:
        content = path.read_bytes()
        row = json.loads(content.decode("utf-8"))
        data = PreparedData.from_dict(row, folder)
    except (FileNotFoundError, NotADirectoryError):
        raise PrepareError(f"no prepared data in {folder} ({SUMMARY_NAME} is missing); run prepare first") from None
    except OSError as error:
        raise PrepareError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:  # whose own words are the whole page
        raise PrepareError(f"{path} is damaged: byte {error.start:,} is not UTF-8; prepare it again") from error
    except (ValueError, KeyError, TypeError) as error:
        raise PrepareError(f"{path} is damaged or of another version ({error!r}); prepare it again") from error
    if fault := seal_fault(content, is_sealed=row.get("schema") not in _OLD_SCHEMAS):
        raise PrepareError(f"{path} is damaged: {fault}; prepare it again")
    try:
        for part, part_path in ((data.train, data.train_path), (data.validation, data.validation_path)):
            header = TokenFile.open(part_path).header
            if (header.payload_sha256, header.tokenizer_hash) != (part.payload_sha256, data.tokenizer_hash):
                raise PrepareError(f"{part_path} is not the file that {path} describes; prepare it again")
        if data.tokenizer().hash != data.tokenizer_hash:
            raise PrepareError(f"{data.tokenizer_path} is not the tokenizer that {path} describes; prepare it again")
    except (TokenFileError, TokenizerError) as error:
        raise PrepareError(f"the prepared data in {folder} is not whole: {error}") from error
    return data
