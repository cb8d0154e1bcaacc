from torchledger.spec import Strategy


def test_ranks_are_the_product_of_the_groups_that_add_ranks():
    """Experts are spread over data-parallel ranks and add none."""
    strategy = Strategy(data_parallel=4, tensor_parallel=8, pipeline_parallel=2, context_parallel=2, expert_parallel=4)
    assert strategy.num_ranks == 4 * 8 * 2 * 2
