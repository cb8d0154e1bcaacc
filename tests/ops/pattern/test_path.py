"""Orders of contracting: examples counted by hand, and every order there is, tried."""

import random
from math import prod

import pytest

from torchledger.ops.pattern import PatternError, all_at_once, best, left_to_right
from torchledger.ops.pattern.path import MOST_SEARCHED, followed


def every_path(count):
    """All ways to contract so many operands in pairs."""
    if count == 1:
        yield []
        return
    for first in range(count):
        for second in range(first + 1, count):
            for rest in every_path(count - 1):
                yield [(first, second), *rest]


def drawn(rng, most):
    letters = "abcdef"[: rng.randint(2, 6)]
    sizes = {letter: rng.choice([1, 2, 3, 5, 10]) for letter in letters}
    operands = [rng.sample(letters, rng.randint(1, min(3, len(letters)))) for _ in range(rng.randint(2, most))]
    used = sorted({name for operand in operands for name in operand})
    return operands, [name for name in used if rng.random() < 0.4], sizes


def test_a_chain_of_matrices():
    """[10, 1000] @ [1000, 10] @ [10, 1000]: from the left 2·10·1000·10 twice, from the right 2·1000·10·1000 twice."""
    sizes = {"i": 10, "j": 1000, "k": 10, "l": 1000}
    chain = (["ij", "jk", "kl"], "il", sizes)
    assert best(*chain).flops == left_to_right(*chain).flops == 2 * 10 * 1000 * 10 + 2 * 10 * 10 * 1000
    assert followed([(1, 2), (0, 1)], *chain).flops == 2 * 1000 * 10 * 1000 + 2 * 10 * 1000 * 1000
    assert all_at_once(*chain) == 10 * 1000 * 10 * 1000 * 3  # two multiplications and an addition


def test_the_example_of_numpys_einsum_path():
    """NumPy's and opt_einsum's documented ea,fb,abcd,gc,hd->efgh at 10: naive 10^8·5, best four products of 10^5.

    https://numpy.org/doc/stable/reference/generated/numpy.einsum_path.html: naive scaling 8, optimised scaling 5, naive
    FLOP count 5.000e+08, optimised 8.000e+05, largest intermediate 1.000e+04.
    """
    sizes = dict.fromkeys("abcdefgh", 10)
    asked = (["ea", "fb", "abcd", "gc", "hd"], "efgh", sizes)
    assert all_at_once(*asked) == 10**8 * 5
    found = best(*asked)
    assert (found.flops, found.largest) == (4 * 2 * 10**5, 10**4)


def test_an_outer_product_first_can_be_best():
    """Vectors i and j of 2 and a tensor of 2·2·1000: the outer product is 4 FLOPs, a sum over either alone is 8,000."""
    sizes = {"i": 2, "j": 2, "l": 1000}
    found = best(["i", "j", "ijl"], "l", sizes)
    assert found.pairs[0] == (0, 1)
    assert found.flops == 2 * 2 + 2 * 2 * 2 * 1000


def test_a_sum_that_one_operand_has_alone_is_made_before():
    """Index k of [j, k] is nobody else's: 3·(5 - 1) additions, then 2·2·3."""
    sizes = {"i": 2, "j": 3, "k": 5}
    assert left_to_right(["ij", "jk"], "i", sizes).flops == 3 * (5 - 1) + 2 * 2 * 3


def test_nothing_that_can_be_tried_beats_the_best():
    """200 drawn equations of up to five operands: no path of all has fewer FLOPs, nor as many and smaller results."""
    rng = random.Random(0)
    for _ in range(200):
        operands, output, sizes = drawn(rng, 5)
        found = best(operands, output, sizes)
        tried = [followed(pairs, operands, output, sizes) for pairs in every_path(len(operands))]
        assert (found.flops, found.largest) == min((path.flops, path.largest) for path in tried)


def test_left_to_right_takes_the_result_so_far_with_the_next():
    """The result is at the list's end: (0, 1), then it with what is first."""
    assert left_to_right(["a"] * 4, "a", {"a": 2}).pairs == ((0, 1), (2, 0), (1, 0))


def test_many_operands_are_searched_up_to_a_limit():
    """As many vectors as are searched, and one more, which is refused."""
    vectors = ["a"] * MOST_SEARCHED
    assert len(best(vectors, "", {"a": 2}).pairs) == MOST_SEARCHED - 1
    with pytest.raises(PatternError, match="are not searched"):
        best([*vectors, "a"], "", {"a": 2})


def test_a_path_that_is_none_is_refused():
    asked = (["ij", "jk"], "ik", {"i": 2, "j": 2, "k": 2})
    with pytest.raises(PatternError, match="no pair"):
        followed([(0, 2)], *asked)
    with pytest.raises(PatternError, match="leaves 2 operands"):
        followed([], *asked)


def test_a_single_operand_has_nothing_to_choose():
    assert (best(["ij"], "i", {"i": 2, "j": 3}).pairs, prod(())) == ((), 1)
