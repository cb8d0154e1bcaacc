import pytest

from torchledger.ops.pattern import PatternError, names_in, read_shape, read_sizes


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("", ()),
        ("8 1024 64", (8, 1024, 64)),
        ("(8, 1024, 64)", (8, 1024, 64)),
        ("torch.Size([8, 64])", (8, 64)),
        ("2x3x4", (2, 3, 4)),
        ("b s 64", (2, 3, 64)),
        ("s+1 s-1 b*s 7//s", (4, 2, 6, 2)),
        ("rows=4 2*rows", (4, 8)),
        ("#b ?s", (2, 3)),  # jaxtyping's marks for broadcasting and for trees say nothing of the size
    ],
)
def test_a_shape_is_read(text, shape):
    """Numbers, names, sums and products of them, as people and jaxtyping write them; b is 2 and s is 3."""
    assert read_shape(text, {"b": 2, "s": 3}) == shape


def test_every_word_that_is_no_size_is_named():
    """What has no size, what is too small and what is no size at all, in one message."""
    with pytest.raises(PatternError) as told:
        read_shape("b ... *c _ 0 2/3 (", {})
    lines = str(told.value).splitlines()
    assert [line.split()[0] for line in lines] == ["b", "'...'", "'*c'", "'_'", "'0'", "'2/3'"]


def test_one_size_may_be_open_and_strides_may_be_nothing():
    """`least` is what may stand in the text."""
    assert read_shape("6 -1", {}, least=-1) == (6, -1)
    assert read_shape("0 1", {}, least=0) == (0, 1)
    with pytest.raises(PatternError, match="-2; it must be at least -1"):
        read_shape("-2", {}, least=-1)


def test_code_is_no_shape():
    """Nothing is run: a call, an attribute or a power is no size."""
    for text in ("f(2)", "a.b", "2**9", "True"):
        with pytest.raises(PatternError):
            read_shape(text, {"f": 1, "a": 1})


def test_sizes_are_read_in_any_spelling():
    assert read_sizes(["h=8", "s=1k", "h=8"]) == {"h": 8, "s": 1000}


def test_every_wrong_size_is_told():
    """No equals sign, no name, no number, too small, given twice."""
    with pytest.raises(PatternError) as told:
        read_sizes(["h", "=3", "s=x", "d=0", "b=1", "b=2"])
    assert len(str(told.value).splitlines()) == 5


def test_names_of_a_text():
    """Of shapes and of patterns; numbers are none."""
    assert names_in("b (h2 d) 64 -> b ... d_k") == {"b", "h2", "d", "d_k"}
