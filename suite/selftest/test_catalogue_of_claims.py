"""Catalogue and tests hold together."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from suite.claims import CLAIMS

SUITE = Path(__file__).parents[1]


def claims_and_their_tests() -> Iterator[tuple[str, ast.FunctionDef, Path]]:
    for path in sorted(SUITE.glob("test_*.py")):
        for function in ast.parse(path.read_text()).body:
            if isinstance(function, ast.FunctionDef) and function.name.startswith("test_"):
                claims = [
                    decorator.args[0].value
                    for decorator in function.decorator_list
                    if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "claim"
                ]
                yield (claims[0] if len(claims) == 1 else f"{len(claims)} claims"), function, path


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
