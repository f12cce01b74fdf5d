"""Catalogue and tests hold together."""

import ast
import re

from suite.claims import CLAIMS
from suite.report.statements import claims_and_their_tests


def test_every_claim_has_exactly_one_test_and_every_test_a_claim() -> None:
    assert sorted(claim for claim, _, _ in claims_and_their_tests()) == sorted(CLAIMS)


def test_every_claim_is_stated_by_its_tests_docstring() -> None:
    unstated = [
        claim for claim, test, _ in claims_and_their_tests() if not re.match(r".{20,}", ast.get_docstring(test) or "")
    ]
    assert not unstated


def test_byte_claims_are_selected_by_name() -> None:
    for claim, test, path in claims_and_their_tests():
        assert claim.startswith("bytes.") == ("byte_identical" in f"{path.stem} {test.name}")
