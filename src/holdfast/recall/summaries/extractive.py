"""Summaries without a language model: the sentences that say the most, and the words that they leave out."""

from __future__ import annotations

import heapq
import re
from bisect import bisect, insort
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.core.errors import InvalidInputError
from holdfast.recall.summaries.sentences import Sentence, shorten, split_label, split_sentences
from holdfast.recall.terms import tokenize

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
_OPENING: Final = re.compile(r".{1,20}?(?:[,;:–—]\s+|\s-\s+)")  # short: a longer one may change what the rest means
_ALSO: Final = "Also: "

_COMMON_WORDS: Final = """
a an the and or but if so as at by for from in into of off on onto out over to up with without about after again before
between down during through under until than then that this these those there here because while since though although
i you he she it we they me him her us them my your his its our their mine yours myself yourself be am is are was were
been being do does did done doing have has had having can could will would shall should may might must not no nor
yes yeah yep yup nope ok okay well oh ah hey hi hello wow thanks thank please sorry bye goodbye welcome lol haha hmm aww
congrats congratulations cheers agree exactly indeed maybe perhaps probably actually honestly literally basically
just really very too also even still only more most much many some any all both each every few lot lots kind sort bit
thing things something anything everything nothing what when where which who whom whose why how
get got getting go going goes went gone come came coming make makes made making know knows knew think thought say says
said see saw seen look looks looking feel feels felt let want wants need needs take takes took give gives gave keep try
tried hear heard tell told talk mean sound sounds hope guess seem seems happen happened find found wait
good great nice cool awesome amazing incredible fantastic wonderful exciting excited interesting glad sure stuff right
way time like one ll ve re don didn doesn isn wasn won haven couldn wouldn shouldn aren weren hasn gonna wanna gotta
ever never always now around away back such own same other another totally definitely absolutely pretty super happy fun
best better new long day
der die das und oder aber ist sind war ich du er sie wir ihr ein eine einen nicht mit auf für von zu im den dem auch
hallo wie geht ja nein gut danke bitte bonjour merci oui non ça hola gracias sí bueno
le la les un une des et ou mais est sont je tu il elle nous vous ils ne pas que qui dans pour sur avec ce cette
el los las una y o pero es son yo ella nosotros no que en para con por su mi lo se muy más
"""
_COMMON_TERMS: Final = frozenset(tokenize(_COMMON_WORDS))
_NAME: Final = re.compile(r"(?<=[\w,;:'\"(] )[^\W\d_a-zß-ÿ][\w'’-]+|\b[A-Z]{2,}\b|\b[\w.:/-]*\d[\w.:/-]*")
_WORD: Final = re.compile(r"[^\W_](?:[\w'’.-]|(?<=\d)[,:](?=\d))*(?<=[^\W_])")
_FIRST_PERSON: Final = re.compile(r"\b(?:I|[Mm]y|[Ww]e|[Oo]ur|ich|mein\w*|je|j'|yo|mi)\b")


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
        if max_chars < 1:
            raise InvalidInputError(f"max_chars is {max_chars}; a summary needs at least 1 character")
        texts = _within(texts)
        whole = "\n".join(stripped for text in texts if (stripped := text.strip()))
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
            for match in _WORD.finditer(sentence.text):
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
        own = _FIRST_PERSON_GAIN if _FIRST_PERSON.search(text) else 1.0
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
        while opening := _OPENING.match(text, start):
            if any(self._worth.get(term, 0) > _COMMON for term in tokenize(opening[0])):
                break
            start = opening.end()
        return text[start:]

    def _informs(self, at: int) -> bool:
        return sum(self._worth[term] > _COMMON for term in self._terms[at]) >= _INFORMS


def _within(texts: Sequence[str]) -> list[str]:
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


def _distinct_terms(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(tokenize(text)))


def _term_worth(sentences: Sequence[Sentence], terms: Sequence[Iterable[str]], speakers: set[str]) -> dict[str, float]:
    """How much each term tells: little if it is common, in the language or here; more for names and numbers."""
    count = Counter(term for each in terms for term in each)
    often = len(sentences) / 5 if len(sentences) >= _MANY else len(sentences)
    named = {term for sentence in sentences for name in _NAME.findall(sentence.text) for term in tokenize(name)}
    worth = {}
    for term, times in count.items():
        short = len(term) < 3 and term.isascii() and term.isalpha()
        if term in _COMMON_TERMS or term in speakers or short or times > often:
            worth[term] = _COMMON
        else:
            worth[term] = times ** (1 / 3) * (_NAMED if term in named else 1.0)
    return worth


def _is_spaced(word: str) -> bool:
    """Whether ``word`` is a word to its readers, and not a run of a script that puts no spaces between them."""
    return word.isascii() or tokenize(word) != [word[at : at + 2] for at in range(max(len(word) - 1, 1))]
