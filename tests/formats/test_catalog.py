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
        ("fp4", "FP4_E2M1"),
        ("torch.float4_e2m1fn_x2", "FP4_E2M1"),
        ("float6_e2m3fn", "FP6_E2M3"),
        ("torch.float8_e8m0fnu", "E8M0"),
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
        ("int8", "INT8 is an integer format"),
        ("mxfp4", "MXFP4 holds blocks of 32 numbers that share a scale, no number alone; its elements are FP4_E2M1"),
        ("fp6", "may be FP6_E3M2 or FP6_E2M3; write which"),
        ("mxfp6", "may be MXFP6_E3M2 or MXFP6_E2M3; write which"),
        ("complex64", "known: FP64, FP32, TF32"),
        ("", "known: FP64"),
    ],
)
def test_unknown_names(name: str, message: str):
    """An unknown name gets the near one, the ones it may be, or all."""
    with pytest.raises(FormatError, match=message):
        formats.get(name)


def test_no_spelling_has_two_meanings():
    """A name resolves to one format only."""
    spellings = [name.lower() for fmt in formats.every() for name in (fmt.name, *fmt.aliases)]
    assert len(spellings) == len(set(spellings))


@pytest.mark.parametrize(
    ("spelling", "name"), [("torch.int8", "INT8"), ("mxfp8", "MXFP8_E4M3"), ("nvfp4", "NVFP4"), ("MXFP4", "MXFP4")]
)
def test_any_kind_of_format_is_found(spelling: str, name: str):
    """Integers and blocks have names too."""
    assert formats.find(spelling).name == name


def test_the_elements_and_scales_of_the_ocp_table():
    """Table 1 of the OCP MX specification: elements, 32 of them with one E8M0."""
    table = {fmt.name: (fmt.element.name, fmt.scale.name, fmt.block_size) for fmt in formats.blocks()}
    assert table == {
        "MXFP8_E4M3": ("FP8_E4M3", "E8M0", 32),
        "MXFP8_E5M2": ("FP8_E5M2", "E8M0", 32),
        "MXFP6_E3M2": ("FP6_E3M2", "E8M0", 32),
        "MXFP6_E2M3": ("FP6_E2M3", "E8M0", 32),
        "MXFP4": ("FP4_E2M1", "E8M0", 32),
        "MXINT8": ("MXINT8_ELEMENT", "E8M0", 32),
        "NVFP4": ("FP4_E2M1", "FP8_E4M3", 16),
    }
    assert formats.block("nvfp4").tensor_scale is formats.get("fp32")


def test_scales_are_not_among_the_numbers():
    """`known` are the floating formats that hold numbers of either sign; E8M0 is found by its name."""
    assert "E8M0" not in {fmt.name for fmt in formats.known()}
    assert not formats.get("e8m0").signed


def test_a_format_without_blocks_is_refused_where_blocks_are_asked_for():
    """Those that have blocks are named."""
    with pytest.raises(FormatError, match="FP16 has no blocks; formats that have: MXFP8_E4M3"):
        formats.block("fp16")
