"""The claims as a report lists them: the catalogue, with each one's statement from the docstring of its test."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

from suite.claims import CLAIMS

TESTS = Path(__file__).parents[1]


def catalogue() -> list[dict[str, str]]:
    """Id, question, kind, section of the article and statement of every claim. Reads the tests; imports none."""
    statements = {claim: ast.get_docstring(test) or "" for claim, test, _ in claims_and_their_tests()}
    return [
        {
            "id": claim.id,
            "question": claim.question.value,
            "kind": claim.kind,
            "article": claim.article,
            "statement": inspect.cleandoc(statements.get(claim.id, "")).replace("``", ""),
        }
        for claim in CLAIMS.values()
    ]


def claims_and_their_tests() -> Iterator[tuple[str, ast.FunctionDef, Path]]:
    """Each test of each module of claims, after the id of the one claim that it carries."""
    for path in sorted(TESTS.glob("test_*.py")):
        for function in ast.parse(path.read_text()).body:
            if isinstance(function, ast.FunctionDef) and function.name.startswith("test_"):
                claims = [
                    decorator.args[0].value
                    for decorator in function.decorator_list
                    if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "claim"
                ]
                yield (claims[0] if len(claims) == 1 else f"{len(claims)} claims"), function, path
