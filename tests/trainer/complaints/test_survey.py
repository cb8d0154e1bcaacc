"""The complaints of a survey of 44 threads about trainers, and the tests that show the right behaviour of this one."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
HERE = "trainer/complaints"

#: Number in the survey, what is right, and where it is shown: file and test, and further ones.
SHOWN = {
    1: ("the data go on after a resume", f"{HERE}/test_resume.py", "a_resume_goes_on_in_the_data_and_repeats_none"),
    2: ("equal losses after a resume, bitwise", "trainer/test_loop.py", "resumed_is_uninterrupted"),
    3: ("a resume checks itself", "trainer/test_selfcheck.py", "a_resumed_run_gives_the_check_bit_for_bit"),
    4: ("every random stream is known", f"{HERE}/test_resume.py", "every_random_stream_is_in_the_checkpoint"),
    5: ("uneven shards are whole again", "trainer/test_shards.py", "two_ranks_save_and_any_layout_loads"),
    6: ("any number of ranks goes on", "cli/test_torchrun.py", "a_checkpoint_of_two_ranks_goes_on_with_one"),
    7: ("epochs have their own order, resumed too", f"{HERE}/test_kills.py", "three_kills"),
    8: ("all checkpoints are alike", f"{HERE}/test_resume.py", "every_kind_of_checkpoint_resumes_alike"),
    9: ("seeking takes no time", "trainer/test_batches.py", "seeking_takes_no_time"),
    10: ("the rate goes on, moments keep their format", f"{HERE}/test_resume.py", "the_learning_rate_goes_on"),
    11: ("another horizon is refused", f"{HERE}/test_resume.py", "another_horizon_is_refused_with_both_rates"),
    12: ("reading a checkpoint runs no code", "trainer/test_checkpoint.py", "reading_runs_no_code"),
    13: (
        "names without a wrapper's prefix",
        *(f"{HERE}/test_resume.py", "weights_have_the_models_own_names"),
        *("trainer/test_compiled.py", "a_compiled_run_is_resumed_bit_for_bit"),
    ),
    14: ("the steps after the first are equal too", "trainer/test_loop.py", "resumed_is_uninterrupted"),
    15: ("a kill at any byte", "trainer/test_saving.py", "killed_at_any_byte_a_run_goes_on"),
    16: ("leftovers are cleared", "trainer/test_checkpoint.py", "leftovers_of_a_kill_are_cleared"),
    17: (
        "a set of files is whole or not there, and damage gives way to the one before",
        *("trainer/test_saving.py", "killed_between_any_two_calls"),
        *("trainer/test_fallback.py", "damage_anywhere_gives_way_to_the_checkpoint_before"),
    ),
    18: (
        "all ranks stop, save and evaluate together, and a lost one ends the others",
        *("cli/test_torchrun.py", "a_signal_to_one_rank_stops_all"),
        *("cli/test_torchrun.py", "a_checkpoint_of_two_ranks_goes_on_with_one"),
        *("cli/test_torchrun.py", "a_rank_that_is_killed_ends_the_other"),
        *("trainer/test_shards.py", "what_fails_on_one_rank_fails_on_all"),
    ),
    19: ("a large file is not resident", f"{HERE}/test_data.py", "reading_a_large_file_takes_no_memory"),
    20: ("no worker processes", f"{HERE}/test_data.py", "no_process_is_started_for_data"),
    21: (
        "the type follows from the vocabulary, and no id is written that it cannot hold",
        *("trainer/test_tokenheader.py", "dtype_boundary"),
        *("trainer/test_tokenwriter.py", "bad_id_is_named_with_its_place"),
    ),
    22: ("65,536 ids fit sixteen bits", "trainer/test_foreign.py", "the_boundary_of_sixteen_bits"),
    23: ("a wrong type is suspected", "trainer/test_foreign.py", "the_wrong_type_is_suspected"),
    24: ("an id beyond the vocabulary is named", "trainer/test_loop.py", "an_id_beyond_the_vocabulary_stops"),
    25: (
        "ranks share each batch, disjoint and complete",
        *("trainer/test_batches.py", "ranks_share_each_batch"),
        *("trainer/test_batches.py", "an_epoch_has_every_window_once"),
    ),
    26: (
        "documents kept apart, pairs counted",
        *("trainer/test_model.py", "documents_kept_apart_are_as_if_each_stood_alone"),
        *("trainer/test_documents.py", "squared_lengths_are_counted_pairs"),
        *("trainer/test_stream.py", "what_documents_leave_of_attention_is_told"),
    ),
    27: (
        "an index that is none is refused, a damaged file is named, a killed preparation goes on",
        *("trainer/test_megatron.py", "an_index_that_is_none"),
        *("cli/test_data.py", "every_fault_is_told_and_every_file_read"),
        *("trainer/test_unfinished.py", "a_killed_preparation_goes_on"),
    ),
    28: (
        "preparing in bounded memory",
        *("trainer/test_encoding.py", "only_a_few_groups_are_held"),
        *("trainer/test_containers.py", "a_bomb_is_taken_a_little_at_a_time"),
    ),
    29: ("pinned for CUDA alone", f"{HERE}/test_data.py", "nothing_is_pinned_for_a_cpu"),
    30: ("an impossible MFU is told", "trainer/test_loop.py", "an_impossible_mfu_is_warned_of_once"),
    31: ("tokens do not depend on accumulation", f"{HERE}/test_throughput.py", "tokens_are_counted_where"),
    32: (
        "a session counts its own",
        *(f"{HERE}/test_throughput.py", "a_resumed_session_counts_its_own_steps"),
        *("trainer/test_tally.py", "paces_of_two_sessions_are_never_mixed"),
    ),
    33: ("of all devices and of each", "cli/test_live.py", "of_several_devices_both_rates_are_named"),
    34: ("the summary divides by time spent", f"{HERE}/test_throughput.py", "the_summary_divides_by_time_spent"),
    35: ("warm-up is in no average", f"{HERE}/test_throughput.py", "warm_up_is_told_and_in_no_average"),
    36: ("the convention is printed", f"{HERE}/test_throughput.py", "mfu_and_hfu_are_told_with_their_convention"),
    37: ("tied heads cost the same FLOPs", f"{HERE}/test_throughput.py", "a_tied_head_saves_parameters_and_no_flops"),
    38: ("MFU and HFU, both", f"{HERE}/test_throughput.py", "mfu_and_hfu_are_told_with_their_convention"),
    39: ("counted FLOPs are held against the formula", "cli/test_train.py", "the_books_of_a_run_close_exactly"),
    40: (
        "what is no number is skipped, then stops, and the loss scale adapts",
        *("trainer/test_session.py", "too_many_bad_steps_in_a_row_stop"),
        *("trainer/test_loss_scale.py", "a_gradient_that_overflows_changes_nothing_but_the_scale"),
    ),
    41: (
        "accumulation is one large batch",
        *("trainer/test_step.py", "targets_that_do_not_count_weigh_nothing"),
        *("trainer/test_targets.py", "however_a_batch_is_cut_over_micro_batches_and_ranks"),
    ),
    42: ("the norm is that of all ranks", "agree/test_ranks.py", "losses_and_norms_are_those_of_one_process"),
    43: ("bf16 only where it pays", "trainer/test_precision_choice.py", "auto_takes_bf16_only_where_it_pays"),
    44: ("spikes are told, nothing rolled back", "trainer/test_session.py", "a_spike_is_told_and_nothing_rolled_back"),
}


@pytest.mark.parametrize(
    "number", SHOWN, ids=[f"{number}-{what.replace(' ', '_')}" for number, (what, *_) in SHOWN.items()]
)
def test_the_right_behaviour_is_shown(number):
    """Each complaint has a test that is there under its name, and each further one too."""
    _, *places = SHOWN[number]
    for file, name in zip(places[::2], places[1::2], strict=True):
        assert re.search(rf"^def test_{name}", (TESTS / file).read_text(encoding="utf-8"), re.MULTILINE), (file, name)


def test_no_complaint_is_left_out():
    """Forty-four threads, forty-four rows."""
    assert list(SHOWN) == list(range(1, 45))
