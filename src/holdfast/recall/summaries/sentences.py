"""Where sentences begin and end: in chat turns, lists and code, with or without spaces between words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

_END: Final = re.compile(
    r"""[.!?…]+["'”’»)\]*_]*(?=\s)"""  # Latin, Cyrillic, Greek: a space must follow
    r"""|[。！？｡]+["'”’」』）]*"""  # Chinese and Japanese: nothing need follow
    r"""|[।॥؟۔]+["'”’)]*(?=\s|$)"""  # Indic, Arabic, Urdu
)
_LABEL: Final = re.compile(r"(?P<label>[^\W\d_][^:\n]{0,39}):[ \t]+(?=\S)")
_LABEL_WORDS: Final = 4
_BEFORE_DOT: Final = re.compile(r"(\S+)\.$")
_ABBREVIATIONS: Final = frozenset(
    re.findall(
        r"\S+", "mr mrs ms dr prof st mt vs e.g i.e no nr fig approx dept jr sr z.b d.h bzw ca sra dra mme cf al"
    )
)
_CLAUSE_END: Final = re.compile(r"[,;:–—](?=\s)|[，；：、]|\s")
_UNSPACED: Final = re.compile(  # Thai, Lao, Myanmar, Khmer; kana, Han and their punctuation
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ua4cf\uf900-\ufaff\uff01-\uff65\U00020000-\U0003ffff]"
)
_JOINERS: Final = "\u200d\ufe0f\ufe0e"


class Sentence(NamedTuple):
    """A piece of one text."""

    place: int
    """Which of the texts it comes from."""
    text: str
    glue: str
    """What stood before it, after the piece before: a line break, a space, or nothing."""


def split_label(text: str) -> tuple[str, str]:
    """Who speaks, where a text begins with a name and a colon (``Ann: Hello``), and the rest; or an empty name."""
    match = _LABEL.match(text)
    if match is None or len(match["label"].split()) > _LABEL_WORDS:
        return "", text
    return match["label"], text[match.end() :]


def split_sentences(text: str, place: int, longest: int) -> Iterator[Sentence]:
    """The sentences of a text in order; each line ends one, and one over ``longest`` characters comes in parts.

    Lines without a letter or digit (rules, fences) are left out.
    """
    for line in text.splitlines():
        glue = "\n"
        for sentence in _of_line(line):
            for part in _parts(sentence, longest):
                if any(character.isalnum() for character in part):
                    yield Sentence(place, part.strip(), glue)
                    glue = ""
                if part[-1].isspace():
                    glue = glue or " "


def shorten(text: str, length: int) -> str:
    """The beginning of ``text``, at most ``length`` characters, ending with a whole word.

    It ends between two characters as a reader sees them (with their accents, joined signs and modifiers) in scripts
    that put no spaces between words, and where the first word alone is longer.
    """
    text = text.lstrip()
    if len(text) <= length:
        return text
    cut = _last(text, length, _may_break) or _last(text, length, lambda text, at: not _continues(text, at)) or length
    return text[:cut].rstrip()


def _of_line(line: str) -> Iterator[str]:
    """The sentences of a line, each with the white space after it."""
    start = 0
    for match in _END.finditer(line):
        end = match.end()
        while end < len(line) and line[end].isspace():
            end += 1
        inside = line[end : end + 1].islower() or _is_abbreviation(
            line[max(start, match.start() - 40) : match.start() + 1]
        )
        if match[0][0] == "." and inside:
            continue
        yield line[start:end]
        start = end
    if line[start:].strip():
        yield line[start:]


def _is_abbreviation(text: str) -> bool:
    """Whether the dot that ends ``text`` belongs to its last word: ``Dr.``, an initial, the number of a list's item."""
    match = _BEFORE_DOT.search(text)
    if match is None:
        return False
    word = match[1].lstrip("(\"'").lower()
    initial = len(word) == 1 and word.isalpha()
    numbering = word.isdecimal() and len(word) <= 2 and not text[: match.start()].strip()
    return word in _ABBREVIATIONS or initial or numbering


def _parts(sentence: str, longest: int) -> Iterator[str]:
    """``sentence`` in parts of at most ``longest`` characters and the white space after them.

    A part ends with a clause where there is one, else with a word; a longer word stays whole.
    """
    sentence = sentence.lstrip()
    while len(sentence.rstrip()) > longest:
        ends = [match.end() for match in _CLAUSE_END.finditer(sentence, longest // 2, longest)]
        clauses = [end for end in ends if not sentence[end - 1].isspace()]
        end = (clauses or ends)[-1] if ends else _last(sentence, longest, _may_break) or _next(sentence, longest)
        rest = sentence[end:].lstrip()
        yield sentence[: len(sentence) - len(rest)]
        sentence = rest
    if sentence:
        yield sentence


def _last(text: str, at: int, fits: Callable[[str, int], bool]) -> int:
    """The last place at or before ``at`` that ``fits``; 0 if there is none."""
    while at > 0 and not fits(text, at):
        at -= 1
    return at


def _next(text: str, at: int) -> int:
    """The first place after ``at`` where a line may break, or the end."""
    while at < len(text) and not _may_break(text, at):
        at += 1
    return at


def _may_break(text: str, at: int) -> bool:
    """Whether words end before ``at``: at white space, or between two characters of an unspaced script."""
    if text[at].isspace() or text[at - 1].isspace():
        return True
    return bool(_UNSPACED.match(text, at - 1)) and not _continues(text, at)


def _continues(text: str, at: int) -> bool:
    """Whether the character at ``at`` belongs to the one before it."""
    character, before = text[at], text[at - 1]
    return (
        unicodedata.category(character) in {"Mn", "Mc", "Me", "Sk"}
        or character in _JOINERS
        or before == "\u200d"
        or "\U0001f3fb" <= character <= "\U0001f3ff"  # skin tones
        or (_is_flag_letter(character) and _letters_before(text, at) % 2 == 1)  # flags are pairs of letters
        or "\udc00" <= character <= "\udfff"
        or "\u1160" <= character <= "\u11ff"  # Hangul written in parts
    )


def _is_flag_letter(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _letters_before(text: str, at: int) -> int:
    """How many flag letters stand right before ``at``."""
    start = at
    while start > 0 and _is_flag_letter(text[start - 1]):
        start -= 1
    return at - start
