import pytest


def test_heads_apart_are_a_view(ask):
    """Splitting heads moves nothing, and the torch code says so."""
    words = ("explain", "rearrange", "b s (h d) -> b h s d", "b=4", "s=1024", "h=8", "d=64")
    answer = ask(*words, "--json").json
    assert answer["schema"] == "torchledger.explain.rearrange/1"
    assert answer["answer"]["is_view"]
    assert answer["answer"]["torch"] == "x.view(4, 1024, 8, 64).permute(0, 2, 1, 3)"
    assert "is a view: no byte moves" in ask(*words).out


def test_heads_together_are_a_copy(ask):
    """4·1024·8·64 elements of 2 bytes are read and written."""
    words = ("explain", "rearrange", "b h s d -> b s (h d)", "b=4", "s=1024", "h=8", "d=64", "--dtype", "bf16")
    assert ask(*words, "--json").json["answer"]["moved_bytes"] == 2 * 2 * 4 * 1024 * 8 * 64


def test_a_tensor_that_is_no_longer_contiguous(ask):
    """A transposed matrix put back is contiguous again: nothing moves."""
    words = ("explain", "rearrange", "b a -> (a b)", "--shape", "3 2", "--stride", "1 3")
    assert ask(*words, "--json").json["answer"]["is_view"]


def test_a_reduction_has_flops_and_bytes(ask):
    """Means of 1,024: 1,023 additions and a division for each of 8·768."""
    answer = ask("explain", "reduce", "b s d -> b d", "mean", "b=8", "s=1024", "d=768", "--json").json["answer"]
    assert (answer["flops"], answer["transcendentals"]) == (8 * 768 * 1023, 8 * 768)
    assert (answer["read_bytes"], answer["written_bytes"]) == (4 * 8 * 1024 * 768, 4 * 8 * 768)


def test_a_repetition(ask):
    answer = ask("explain", "repeat", "s -> b s", "s=3", "b=4", "--json").json["answer"]
    assert (answer["is_view"], answer["after"]["stride"]) == (True, [0, 1])


def test_an_einsum_on_a_chip(ask):
    """Scores of 16 heads: 2·8·16·1024·1024·64 FLOPs, memory-bound on an H100 for want of width."""
    words = ("b s h d, b t h d -> b h s t", "b=8", "s=1024", "t=1024", "h=16", "d=64", "--dtype", "bf16")
    answer = ask("explain", "einsum", *words, "--on", "h100", "--json").json["answer"]
    assert answer["flops"] == answer["contraction_flops"] == 2 * 8 * 16 * 1024 * 1024 * 64
    assert answer["contractions"][0]["matmul"] == {"b": 128, "m": 1024, "n": 1024, "k": 64}
    assert answer["roofline"]["bound"] == "memory"
    assert [copy["operand"] for copy in answer["contractions"][0]["copies"]] == ["a", "b"]


def test_the_order_can_be_torchs(ask):
    """[1000, 10] [10, 1000] [1000, 10]: from the left 2·2·1000·10·1000, the last two first 2·2·10·1000·10."""
    words = ("explain", "einsum", "ij,jk,kl->il", "i=1000", "j=10", "k=1000", "l=10", "--json")
    assert ask(*words).json["answer"]["flops"] == 2 * 2 * 10 * 1000 * 10
    assert ask(*words, "--path", "left-to-right").json["answer"]["flops"] == 2 * 2 * 1000 * 10 * 1000


def test_strides_of_an_operand(ask):
    """An operand whose dimensions are apart in memory is copied before the product."""
    words = ("explain", "einsum", "ij,jk->ik", "i=2", "j=3", "k=4", "--json")
    kernel = ask(*words, "--stride", "a: 6 2").json["answer"]["contractions"][0]["cuda_kernel_copies"]
    assert [copy["operand"] for copy in kernel] == ["a"]
    assert ask(*words).json["answer"]["contractions"][0]["cuda_kernel_copies"] == []


def test_a_view_works_or_says_why_not(ask):
    assert "is a view" in ask("explain", "view", "2 3 4", "6 4").out
    out = ask("explain", "view", "2 3 4", "6 -1", "--stride", "12 1 3").out
    assert "view(6, 4) fails" in out
    assert "joins dimensions 0 and 1" in out


def test_a_shape_may_have_names_of_its_own(ask):
    """A size n of the shape is cut into h and d by the pattern."""
    words = ("explain", "rearrange", "b (h d) -> b h d", "--shape", "b n", "b=2", "n=12", "h=3", "--json")
    answer = ask(*words).json
    assert answer["answer"]["after"]["shape"] == [2, 3, 4]
    assert answer["question"]["sizes"] == {"b": 2, "h": 3, "d": 4}


def test_many_operands_are_told_not_to_be_searched(ask):
    """Eleven scalars: torch's order, and a line that says so."""
    answer = ask("explain", "einsum", ",".join("a" * 11) + "->a", "a=2", "--json").json
    assert answer["answer"]["paths"]["best"] is None
    assert any("no other order was searched" in line for line in answer["assumptions"])


def test_a_chip_of_ones_own(ask, tmp_path):
    """Half of an H100's bandwidth doubles the ridge."""
    path = tmp_path / "own.toml"
    path.write_text(
        '[mine]\nextends = "h100-sxm"\nname = "Mine"\naliases = []\nmemory.bytes_per_s = 1.675e12\n'
        'confidence = "low"\ndate = "2026-11-30"\nsource = "https://example.com"\nnotes = ""\n'
    )
    words = ("explain", "einsum", "ij,jk->ik", "i=8", "j=8", "k=8", "--dtype", "bf16", "--json")
    one = ask(*words, "--on", "h100").json["answer"]["roofline"]
    two = ask(*words, "--on", "mine", "--catalog", path).json["answer"]["roofline"]
    assert two["ridge_flops_per_byte"] == 2 * one["ridge_flops_per_byte"]


def test_a_scalar_has_a_view(ask):
    """The shape of nothing is written `()`."""
    assert "x.view(())" in ask("explain", "view", "1", "").out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("rearrange", "b s -> s b"), "2 sizes are missing; add b=... s=..."),
        (("rearrange", "b s -> s b", "b=2", "q=3"), "1 size is missing; add s=..."),
        (("rearrange", "b s -> s", "b=2"), "is missing on the right"),
        (("rearrange", "b s -> s b", "b"), "no size of an axis"),
        (("rearrange", "b s -> s b", "--shape", "2 x"), "x in '2 x' has no size"),
        (("rearrange", "b s -> s b", "b=2", "s=3", "--stride", "1"), "no stride of 1"),
        (("reduce", "b s -> b", "median", "b=2", "s=3"), "unknown reduction 'median'"),
        (("reduce", "b s -> b", "repeat", "b=2", "s=3"), "is no reduction"),
        (("einsum", "bshd,bthd->bhst", "b=2"), "4 sizes are missing; add s=... h=... d=... t=..."),
        (("einsum", "ij,jk->ik", "i=1", "j=1", "k=1", "--stride", "z: 1 1"), "with one of a, b"),
        (("einsum", "ij,jk->ik", "i=2", "j=2", "k=2", "--on", "a100", "--dtype", "fp8_e4m3"), "fp8"),
        (("einsum", "ij,jk->ik", "i=1", "j=1", "k=1", "--on", "h1000"), "h1000"),
        (("view", "2 3", "7"), "7 elements"),
        (("view", "b q", "z 4"), "q in 'b q' has no size; write q=...\nz in"),
        (("view", "2 3", "6", "q=2"), "q stands in neither shape"),
        (("view", "2 3", "6", "--dtype", "fp4_e2m1"), "no strides"),
        (("view", "2 3", "6", "--dtype", "fp12"), "unknown number format"),
    ],
)
def test_nonsense_is_wrong_usage(ask, words, says):
    """A message that says what and what to do, and no traceback."""
    answer = ask("explain", *words)
    assert (answer.code, answer.out) == (2, "")
    assert says in answer.err
    assert "Traceback" not in answer.err


def test_integers_are_summed_in_64_bits(ask):
    """2·3 bytes are read and 2 sums of 8 bytes written, as torch.sum gives int64; a maximum stays a byte; no mean."""
    words = ("explain", "reduce", "a b -> a", "a=2", "b=3", "--dtype", "int8")
    assert ask(*words[:3], "sum", *words[3:], "--json").json["answer"]["moved_bytes"] == 2 * 3 + 2 * 8
    assert ask(*words[:3], "max", *words[3:], "--json").json["answer"]["moved_bytes"] == 2 * 3 + 2
    refused = ask(*words[:3], "mean", *words[3:])
    assert (refused.code, "means of floating-point numbers only" in refused.err) == (2, True)


def test_a_stride_is_told_once(ask):
    """Two strides of one operand are a mistake and not the last of them."""
    told = ask("explain", "einsum", "ij,jk->ik", "i=2", "j=3", "k=4", "--stride", "a: 3 1", "--stride", "a: 1 2")
    assert (told.code, "tells operand a twice" in told.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "is_told"),
    [
        (("reduce", "a b -> a", "sum", "--dtype", "e4m3"), True),
        (("reduce", "a b -> a", "any", "--dtype", "e4m3"), False),
        (("reduce", "a b -> a", "sum", "--dtype", "bf16"), False),
        (("rearrange", "a b -> (b a)", "--dtype", "e4m3"), False),
        (("einsum", "ab,cb->ac", "c=4", "--dtype", "e5m2"), True),
        (("einsum", "ab,ab->ab", "--dtype", "e5m2"), False),
    ],
)
def test_code_that_torch_cannot_run_in_a_format_is_told(ask, words, is_told):
    """FP8 tensors are copied, compared with zero and multiplied by element, and not summed."""
    assert ("tensors of a wider format" in ask("explain", *words, "a=2", "b=3").out) is is_told
