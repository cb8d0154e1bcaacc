import pytest

from torchledger import formats
from torchledger.formats import FormatError


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("fp16", "FP16"),
        ("float16", "FP16"),
        ("half", "FP16"),
        ("torch.float16", "FP16"),
        ("torch.half", "FP16"),
        ("bf16", "BF16"),
        (" BFloat16 ", "BF16"),
        ("fp32", "FP32"),
        ("float", "FP32"),
        ("double", "FP64"),
        ("tf32", "TF32"),
        ("TensorFloat-32", "TF32"),
        ("e4m3", "FP8_E4M3"),
        ("fp8-e4m3", "FP8_E4M3"),
        ("torch.float8_e4m3fn", "FP8_E4M3"),
        ("torch.float8_e5m2", "FP8_E5M2"),
    ],
)
def test_spellings(spelling: str, name: str):
    """PyTorch's names, the short ones and the old ones all resolve, in either case."""
    assert formats.get(spelling).name == name


def test_a_format_is_its_own_name():
    """Functions take a format where they take its name."""
    fmt = formats.get("fp16")
    assert formats.get(fmt) is fmt


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fp17", "did you mean FP16"),
        ("bfloat61", "did you mean BF16"),
        ("fp8", "may be FP8_E4M3 or FP8_E5M2; write which"),
        ("int8", "known: FP64, FP32, TF32"),
        ("", "known: FP64"),
    ],
)
def test_unknown_names(name: str, message: str):
    """An unknown name gets the near one, the ones it may be, or all."""
    with pytest.raises(FormatError, match=message):
        formats.get(name)


def test_no_spelling_has_two_meanings():
    """A name resolves to one format only."""
    spellings = [name.lower() for fmt in formats.known() for name in (fmt.name, *fmt.aliases)]
    assert len(spellings) == len(set(spellings))
