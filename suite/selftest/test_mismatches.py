"""What differs is told by name, with what was found and what was expected."""

from suite.kit.mismatches import first_difference, mismatches


def test_equal_mappings_and_sequences_have_no_difference() -> None:
    assert mismatches({"a": 1}, {"a": 1}) == first_difference([1, 2], [1, 2]) == ""


def test_what_differs_lacks_or_is_too_many_is_named() -> None:
    told = mismatches({"a": "Q8_0", "c": "F32"}, {"a": "Q4_K", "b": "F16"})
    assert told == (
        "3 of 2 differ: a: found Q8_0, expected Q4_K; b: found nothing, expected F16; c: found F32, expected nothing"
    )


def test_sequences_part_at_the_first_difference_or_where_one_ends() -> None:
    assert first_difference([1, 2, 4], [1, 2, 3]) == "at 2 of 3: found 4, expected 3"
    assert first_difference([1, 2], [1, 2, 3]) == "at 2 of 3: found nothing, expected 3"
