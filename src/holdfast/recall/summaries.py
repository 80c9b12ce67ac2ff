"""Summarizers, chosen by one setting. The one without a language model takes the sentences that say the most, and the
words that they leave out.
"""

from __future__ import annotations

import heapq
import re
import unicodedata
from bisect import bisect, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.core.errors import (
    InvalidInputError,
    InvalidSettingsError,
    SummarizerError,
    SummarizerUnavailableError,
    quote,
)
from holdfast.recall.terms import read_words, tokenize
from holdfast.settings import mask_password

if TYPE_CHECKING:
    from holdfast.ports.feed import Summarizer

ACCEPTED = "extractive, openai:<model>@<base_url>"
"""The forms of the setting, for messages and references."""

EXTRACTIVE = "extractive"
"""The one that needs no service."""

_TIMEOUT = 120.0  # seconds: a model writes for longer than it embeds

#: Patterns are compiled when they are first used: most processes summarize nothing.
_END: Final = (
    r"""[.!?…]+["'”’»)\]*_]*(?=\s)"""  # Latin, Cyrillic, Greek: a space must follow
    r"""|[。！？｡]+["'”’」』）]*"""  # Chinese and Japanese: nothing need follow
    r"""|[।॥؟۔]+["'”’)]*(?=\s|$)"""  # Indic, Arabic, Urdu
)
_LABEL: Final = r"(?P<label>[^\W\d_][^:\n]{0,39}):[ \t]+(?=\S)"
_LABEL_WORDS: Final = 4
_BEFORE_DOT: Final = r"(\S+)\.$"
_ABBREVIATIONS: Final = frozenset(
    re.findall(
        r"\S+", "mr mrs ms dr prof st mt vs e.g i.e no nr fig approx dept jr sr z.b d.h bzw ca sra dra mme cf al"
    )
)
_CLAUSE_END: Final = r"[,;:–—](?=\s)|[，；：、]|\s"
_UNSPACED: Final = (  # Thai, Lao, Myanmar, Khmer; kana, Han and their punctuation
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
    match = re.match(_LABEL, text)
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
    for match in re.finditer(_END, line):
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
    match = re.search(_BEFORE_DOT, text)
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
        ends = [match.end() for match in re.compile(_CLAUSE_END).finditer(sentence, longest // 2, longest)]
        clauses = [end for end in ends if not sentence[end - 1].isspace()]
        end = (clauses or ends)[-1] if ends else _last(sentence, longest, _may_break) or _next(sentence, longest)
        rest = sentence[end:].lstrip()
        yield sentence[: len(sentence) - len(rest)]
        sentence = rest
    if sentence:
        yield sentence


def _last(text: str, at: int, fits: Callable[[str, int], bool]) -> int:
    """The last place at or before ``at`` that ``fits``; 0 if there is none."""
    return next((place for place in range(at, 0, -1) if fits(text, place)), 0)


def _next(text: str, at: int) -> int:
    """The first place after ``at`` where a line may break, or the end."""
    return next((place for place in range(at, len(text)) if _may_break(text, place)), len(text))


def _may_break(text: str, at: int) -> bool:
    """Whether words end before ``at``: at white space, or between two characters of an unspaced script."""
    if text[at].isspace() or text[at - 1].isspace():
        return True
    return bool(re.compile(_UNSPACED).match(text, at - 1)) and not _continues(text, at)


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


# Chosen on English chats, by how well each is found by its summary. What decides there are the list of common words,
# the line of words left out and the worth of names, in this order; the rest moves the result by about a point.
_COMMON: Final = 0.05  # what a common term is worth, where another is worth 1
_NAMED: Final = 3.0  # how much more names and numbers are worth
_REPEATED: Final = 0.2  # what is left of a term's worth each time it was said already
_FIRST_PERSON_GAIN: Final = 1.5  # people tell facts about themselves in the first person
_OVERHEAD: Final = 20  # characters added to each sentence's length, so that the shortest do not always win
_WORDS_SHARE: Final = 0.4  # how much of the summary the words left out may take
_LONG: Final = 300  # characters from which on a summary has room set aside for words
_INFORMS: Final = 2  # how many terms that are not common a sentence needs
_MANY: Final = 10  # sentences from which on a term can be common by its number here
_LONGEST: Final = 400
#: So many characters of the texts are looked at: half of them from the beginning, half from the end.
READ_CHARS: Final = 65_536
_OPENING: Final = r".{1,20}?(?:[,;:–—]\s+|\s-\s+)"  # short: a longer one may change what the rest means
_ALSO: Final = "Also: "

_NAME: Final = r"(?<=[\w,;:'\"(] )[^\W\d_a-zß-ÿ][\w'’-]+|\b[A-Z]{2,}\b|\b[\w.:/-]*\d[\w.:/-]*"
_WORD: Final = r"[^\W_](?:[\w'’.-]|(?<=\d)[,:](?=\d))*(?<=[^\W_])"
_FIRST_PERSON: Final = r"\b(?:I|[Mm]y|[Ww]e|[Oo]ur|ich|mein\w*|je|j'|yo|mi)\b"


def open_summarizer(setting: str) -> Summarizer:
    """The summarizer that ``setting`` names; nothing is asked before it is used.

    - ``extractive``: the texts' own sentences, on this machine, the default;
    - ``openai:gpt-4o-mini@https://api.openai.com/v1``: an OpenAI-compatible service, with the key in
      ``HOLDFAST_OPENAI_API_KEY`` or ``OPENAI_API_KEY``, if it needs one.

    Raises ``InvalidSettingsError`` for anything else.
    """
    kind, _, text = setting.strip().partition(":")
    if setting.strip() == EXTRACTIVE:
        return ExtractiveSummarizer()
    if kind == "openai":
        from holdfast.recall.model_service import LlmSummarizer, open_service  # noqa: PLC0415

        asked = {"failed": SummarizerError, "unavailable": SummarizerUnavailableError}
        if service := open_service(text, **asked, timeout=_TIMEOUT):
            return LlmSummarizer(service)
    raise InvalidSettingsError(f"{quote(mask_password(setting))} names no summarizer; accepted: {ACCEPTED}")


def join_texts(texts: Sequence[str], max_chars: int) -> str:
    """The texts in one, without what is empty; ``InvalidInputError`` where a summary is to have no characters."""
    if max_chars < 1:
        raise InvalidInputError(f"max_chars is {max_chars}; a summary needs at least 1 character")
    return "\n".join(stripped for text in texts if (stripped := text.strip()))


class ExtractiveSummarizer:
    """Chooses among the texts' own sentences, so that few characters keep what is likely to be asked for later.

    Sentences are taken for the informative terms that they add per character (names, numbers, dates and rare words
    count most; what was said already, fillers and greetings hardly), and stand in their order, under the name of who
    said them where a text begins with one (``Ann: …``), without openings that tell nothing (``Wow, …``). Names and
    rare words that they leave out follow in a line ``Also: …`` of at most two fifths of the length. The same texts
    always give the same summary; it uses neither network nor model.

    Of very long texts the beginning and the end are looked at, ``READ_CHARS`` in all. Texts that fit are returned
    whole. The summary is empty only if the texts are; no word is cut unless it alone is longer than ``max_chars``.
    """

    def summarize(self, texts: Sequence[str], *, max_chars: int) -> str:
        texts = _cut_to_read(texts)
        whole = join_texts(texts, max_chars)
        if len(whole) <= max_chars:
            return whole
        for_words = int(max_chars * _WORDS_SHARE)
        choice = _Choice(texts, max_chars - for_words - 1 if max_chars >= _LONG else max_chars)
        also = choice.words_left_out(min(for_words, max_chars - choice.used - 1))
        choice.fill(max_chars - len(also) - 1 if also else max_chars)
        summary = "\n".join(part for part in (choice.text(), also) if part)
        return summary or shorten(whole, max_chars)


class _Choice:
    """The sentences of the texts, and those chosen so far: at first, those that fill ``budget`` characters."""

    def __init__(self, texts: Sequence[str], budget: int) -> None:
        split = [split_label(text.strip()) for text in texts]
        self._labels = [f"{label}: " if label else "" for label, _ in split]
        longest = min(_LONGEST, max(1, budget - max(map(len, self._labels))))
        self._sentences = [
            sentence for place, (_, body) in enumerate(split) for sentence in split_sentences(body, place, longest)
        ]
        self._terms = [_distinct_terms(sentence.text) for sentence in self._sentences]
        self._worth = _term_worth(
            self._sentences, self._terms, {term for label, _ in split for term in tokenize(label)}
        )
        for at, sentence in enumerate(self._sentences):
            if (text := self._without_opening(sentence.text)) != sentence.text:
                self._sentences[at] = sentence._replace(text=text)
                self._terms[at] = _distinct_terms(text)
        self._chosen: list[int] = []
        self._covered: Counter[str] = Counter()
        self.used = -1  # the first line needs no line break
        self.fill(budget)

    def fill(self, budget: int) -> None:
        """Choose sentences, the most telling for their length first, while they fit into ``budget`` characters in all.

        What a sentence adds only shrinks as others are chosen, so that a stale value is an upper bound: the one on top
        of the heap is chosen if it is still on top when valued anew.
        """
        chosen = set(self._chosen)
        heap = [(-self._value(at), at) for at in range(len(self._sentences)) if at not in chosen]
        heapq.heapify(heap)
        while heap:
            value, at = heapq.heappop(heap)
            if self.used + self._cost(at) > budget or not self._informs(at):
                continue
            now = -self._value(at)
            if heap and now > heap[0][0] and now > value:
                heapq.heappush(heap, (now, at))
                continue
            self.used += self._cost(at)
            insort(self._chosen, at)
            self._covered.update(self._terms[at])

    def words_left_out(self, budget: int) -> str:
        """A line of the most telling words that no chosen sentence has, in their order; empty if none fits.

        Words that follow each other in the texts do so here, without a comma (``home country, Sweden``).
        """
        first_seen, following = self._words()
        left = [term for term in first_seen if self._worth.get(term, 0) > _COMMON and not self._covered[term]]
        room = budget - len(_ALSO)
        kept = set()
        for term in sorted(left, key=lambda term: -self._worth[term]):
            if len(first_seen[term]) <= room:
                kept.add(term)
                room -= len(first_seen[term]) + 2
        line = ""
        before = ""
        for term, word in first_seen.items():
            if term in kept:
                glue = " " if term in following and before in kept else ", "
                line += glue + word if line else word
            before = term
        return _ALSO + line if kept else ""

    def _words(self) -> tuple[dict[str, str], set[str]]:
        """The words of the texts as they first occur, by term, and which of them stand right after the one before."""
        first_seen: dict[str, str] = {}
        following: set[str] = set()
        known: set[str] = set()  # saves looking twice at words that recur
        for sentence in self._sentences:
            end: int | None = None  # of the word before, if it was new
            for match in re.finditer(_WORD, sentence.text):
                terms = [] if match[0] in known else tokenize(match[0])
                known.add(match[0])
                new = bool(terms) and terms[0] not in first_seen and _is_spaced(match[0])
                if new:
                    first_seen[terms[0]] = match[0]
                    if end is not None and sentence.text[end : match.start()] == " ":
                        following.add(terms[0])
                end = match.end() if new else None
        return first_seen, following

    def text(self) -> str:
        """The chosen sentences: a line for each text, or for all that one speaker says before the next one does."""
        text = ""
        before: int | None = None
        for at in self._chosen:
            sentence = self._sentences[at]
            if before is not None and sentence.place == self._sentences[before].place:
                text += sentence.glue + sentence.text
            else:
                label = self._label_needed(before, at)
                same_speaker = self._label(at) and not label
                text += (" " if same_speaker else "\n") + label + sentence.text
            before = at
        return text.strip()

    def _value(self, at: int) -> float:
        """What choosing the sentence would add, for each character that it takes."""
        text = self._sentences[at].text
        new = sum(self._worth[term] * _REPEATED ** self._covered[term] for term in self._terms[at])
        own = _FIRST_PERSON_GAIN if re.search(_FIRST_PERSON, text) else 1.0
        return new * own / (len(text) + _OVERHEAD)

    def _cost(self, at: int) -> int:
        """How many characters the summary grows by, at most: with its label, unless the same speaker said the last."""
        where = bisect(self._chosen, at)
        before = self._chosen[where - 1] if where > 0 else None
        after = self._chosen[where] if where < len(self._chosen) else None
        labels = len(self._label_needed(before, at))
        if after is not None:
            labels += len(self._label_needed(at, after)) - len(self._label_needed(before, after))
        return 1 + labels + len(self._sentences[at].text)

    def _label(self, at: int) -> str:
        return self._labels[self._sentences[at].place]

    def _label_needed(self, before: int | None, at: int) -> str:
        """The label to write before a sentence that follows ``before``."""
        label = self._label(at)
        return "" if before is not None and self._label(before) == label else label

    def _without_opening(self, text: str) -> str:
        """A sentence from its first clause on that tells something."""
        start = 0
        while opening := re.compile(_OPENING).match(text, start):
            if any(self._worth.get(term, 0) > _COMMON for term in tokenize(opening[0])):
                break
            start = opening.end()
        return text[start:]

    def _informs(self, at: int) -> bool:
        return sum(self._worth[term] > _COMMON for term in self._terms[at]) >= _INFORMS


def _cut_to_read(texts: Sequence[str]) -> list[str]:
    """The texts, or as much of their beginning and of their end as is looked at."""
    if sum(map(len, texts)) <= READ_CHARS:
        return list(texts)
    head: list[str] = []
    room = READ_CHARS // 2
    for text in texts:
        head.append(text[:room])
        room -= len(text)
        if room <= 0:
            break
    tail: list[str] = []
    room = READ_CHARS // 2
    for text in reversed(texts[len(head) - 1 :]):
        tail.append(text[-room:])
        room -= len(text)
        if room <= 0:
            break
    return [*head, *reversed(tail)]


@cache
def _common_terms() -> frozenset[str]:
    return frozenset(tokenize(" ".join(read_words("filler_words.txt"))))


def _distinct_terms(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(tokenize(text)))


def _term_worth(sentences: Sequence[Sentence], terms: Sequence[Iterable[str]], speakers: set[str]) -> dict[str, float]:
    """How much each term tells: little if it is common, in the language or here; more for names and numbers."""
    count = Counter(term for each in terms for term in each)
    often = len(sentences) / 5 if len(sentences) >= _MANY else len(sentences)
    named = {term for sentence in sentences for name in re.findall(_NAME, sentence.text) for term in tokenize(name)}
    worth = {}
    for term, times in count.items():
        short = len(term) < 3 and term.isascii() and term.isalpha()
        if term in _common_terms() or term in speakers or short or times > often:
            worth[term] = _COMMON
        else:
            worth[term] = times ** (1 / 3) * (_NAMED if term in named else 1.0)
    return worth


def _is_spaced(word: str) -> bool:
    """Whether ``word`` is a word to its readers, and not a run of a script that puts no spaces between them."""
    return word.isascii() or tokenize(word) != [word[at : at + 2] for at in range(max(len(word) - 1, 1))]
