"""``tokenizer.json`` and its companions to the ``tokenizer.*`` keys of GGUF.

Only byte-level BPE, GGUF's tokenizer model "gpt2". GGUF names the rule that splits a text before BPE
instead of holding it, so a rule that has no such name is refused: any other name would tokenize
differently without a word.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguf import GGUFValueType as ValueType
from gguf import Keys, SpecialVocab, TokenType
from tokenizers import Tokenizer

from impl.errors import InputError
from impl.reference.config import read_json
from impl.reference.metadata import Entry

GPT2_SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

SPECIAL_IDS = {
    "bos": Keys.Tokenizer.BOS_ID,
    "eos": Keys.Tokenizer.EOS_ID,
    "unk": Keys.Tokenizer.UNK_ID,
    "pad": Keys.Tokenizer.PAD_ID,
}


@dataclass(frozen=True)
class PreTokenizer:
    """A rule that splits text, under the name llama.cpp gives it (``tokenizer.ggml.pre``)."""

    name: str
    stages: tuple[tuple[str, object], ...]
    """Each stage of tokenizer.json's ``pre_tokenizer``: its type and the setting that matters."""
    ignore_merges: bool = False


PRE_TOKENIZERS = (
    PreTokenizer("gpt-2", (("ByteLevel", True),)),
    PreTokenizer("gpt-2", (("Split", GPT2_SPLIT), ("ByteLevel", False))),
    PreTokenizer("smollm", (("Digits", True), ("ByteLevel", True))),
    PreTokenizer("llama-bpe", (("Split", LLAMA3_SPLIT), ("ByteLevel", False)), ignore_merges=True),
    PreTokenizer("smaug-bpe", (("Split", LLAMA3_SPLIT), ("ByteLevel", False))),
)

STAGE_SETTINGS = {
    "ByteLevel": lambda stage: stage.get("use_regex", True),
    "Digits": lambda stage: stage.get("individual_digits", False),
    "Split": lambda stage: stage.get("pattern", {}).get("Regex"),
}


def tokenizer_entries(folder: Path, vocabulary: int) -> list[Entry]:
    """The tokenizer keys of a checkpoint folder, its tokens padded to ``vocabulary`` with unused ones.

    Raises ``InputError`` when ``tokenizer.json`` is missing or damaged, is not byte-level BPE, splits text by a rule
    that GGUF has no name for, or holds an id that is not below ``vocabulary``.
    """
    path = folder / "tokenizer.json"
    tokenizer = read_json(path)
    _require_byte_level(tokenizer, path)
    _require_whole(path)
    tokens, types = _tokens(tokenizer, vocabulary, path)
    special = _special(folder, vocabulary)
    string, flag, number = ValueType.STRING, ValueType.BOOL, ValueType.UINT32
    entries = [
        Entry(Keys.Tokenizer.ADD_PREFIX, _adds_space(tokenizer), flag),
        Entry(Keys.Tokenizer.ADD_BOS, special.add_special_token.get("bos", False), flag),
        Entry(Keys.Tokenizer.MODEL, "gpt2", string),
        Entry(Keys.Tokenizer.PRE, _pre_tokenizer(tokenizer, path), string),
        Entry(Keys.Tokenizer.LIST, tokens, ValueType.ARRAY, string),
        Entry(Keys.Tokenizer.TOKEN_TYPE, types, ValueType.ARRAY, ValueType.INT32),
    ]
    if special.merges:
        entries.append(Entry(Keys.Tokenizer.MERGES, special.merges, ValueType.ARRAY, string))
    for role, key in SPECIAL_IDS.items():
        if role in special.special_token_ids:
            entries.append(Entry(key, special.special_token_ids[role], number))
    if isinstance(special.chat_template, str):
        entries.append(Entry(Keys.Tokenizer.CHAT_TEMPLATE, special.chat_template, string))
    return entries


def _require_byte_level(tokenizer: dict[str, Any], path: Path) -> None:
    model = tokenizer.get("model") or {}
    if model.get("type") != "BPE":
        raise InputError(f"{path}: model type is {model.get('type')!r}, expected 'BPE'")
    if model.get("byte_fallback"):
        raise InputError(f"{path}: SentencePiece-style BPE (byte_fallback), expected byte-level BPE")
    if tokenizer.get("normalizer") is not None:
        kind = tokenizer["normalizer"].get("type")
        raise InputError(f"{path}: normalizer is {kind!r}, expected none: GGUF cannot express it")


def _require_whole(path: Path) -> None:
    try:
        Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise InputError(f"{path}: not a whole tokenizer: {' '.join(str(error).split())}") from error


def _stages(tokenizer: dict[str, Any]) -> list[dict[str, Any]]:
    pre_tokenizer = tokenizer.get("pre_tokenizer") or {}
    return pre_tokenizer.get("pretokenizers", [pre_tokenizer])


def _pre_tokenizer(tokenizer: dict[str, Any], path: Path) -> str:
    kinds = [(stage.get("type"), stage) for stage in _stages(tokenizer)]
    stages = tuple((kind, STAGE_SETTINGS.get(kind, repr)(stage)) for kind, stage in kinds)
    ignore_merges = tokenizer["model"].get("ignore_merges", False)
    for known in PRE_TOKENIZERS:
        if known.stages == stages and known.ignore_merges == ignore_merges:
            return known.name
    names = ", ".join(dict.fromkeys(known.name for known in PRE_TOKENIZERS))
    raise InputError(f"{path}: pre_tokenizer {stages} is unknown, expected that of one of {names}")


def _adds_space(tokenizer: dict[str, Any]) -> bool:
    return any(stage.get("add_prefix_space", False) for stage in _stages(tokenizer))


def _tokens(tokenizer: dict[str, Any], vocabulary: int, path: Path) -> tuple[list[str], list[int]]:
    tokens = [f"[PAD{i}]" for i in range(vocabulary)]
    types = [int(TokenType.UNUSED)] * vocabulary
    added = tokenizer.get("added_tokens") or []
    typed = [(token, i, TokenType.NORMAL) for token, i in tokenizer["model"]["vocab"].items()]
    typed += [
        (token["content"], token["id"], TokenType.CONTROL if token["special"] else TokenType.USER_DEFINED)
        for token in added
    ]
    for token, i, kind in typed:
        if not 0 <= i < vocabulary:
            raise InputError(f"{path}: token {token!r} has id {i}, expected below vocab_size {vocabulary}")
        tokens[i], types[i] = token, int(kind)
    return tokens, types


def _special(folder: Path, vocabulary: int) -> SpecialVocab:
    companion = folder / "tokenizer_config.json"
    if companion.exists():
        read_json(companion)
    try:
        special = SpecialVocab(folder, load_merges=True, n_vocab=vocabulary)
    except ValueError as error:
        raise InputError(f"{folder}: special tokens: {error}") from error
    return special
