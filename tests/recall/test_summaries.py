"""Summaries: short, made of the texts' own words, and keeping what is asked for later."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from effort import times
from holdfast.core.errors import InvalidInputError, InvalidSettingsError, SummarizerError, SummarizerUnavailableError
from holdfast.ports.feed import Summarizer
from holdfast.recall.summaries import ExtractiveSummarizer, open_summarizer, shorten, split_label, split_sentences
from recall.scripted_service import Reply, Request, ScriptedService, json_reply, scripted_service

SUMMARIZER = ExtractiveSummarizer()

CHAT = [
    "Ann: Hey Ben! Good to see you! How have you been?",
    "Ben: Hi Ann! I'm fine, thanks. What's new?",
    "Ann: Wow, so much! I moved from Bergen to Oslo on 3 May 2023 to work for Equinor. It has been great.",
    "Ben: That sounds awesome! I'm so happy for you. Congrats!",
    "Ann: Thanks! My dog Balder loves the new garden. He turned 7 last week.",
    "Ben: Aww, that is so cute! Really nice. I like that a lot.",
    "Ann: Oh, and I prefer the night train, since I'm allergic to the plane's air freshener. Ha!",
    "Ben: Good to know. Well, take care and see you soon! Bye!",
]


def summary_of(texts: list[str], share: float = 0.4) -> str:
    return SUMMARIZER.summarize(texts, max_chars=int(len("\n".join(texts)) * share))


# --- what is kept ----------------------------------------------------------------------------------------------------


def test_names_dates_places_numbers_and_preferences_are_kept() -> None:
    summary = summary_of(CHAT)
    for word in ("Bergen", "Oslo", "3 May 2023", "Equinor", "Balder", "night train", "allergic"):
        assert word in summary


def test_greetings_and_fillers_are_left_out() -> None:
    summary = summary_of(CHAT)
    for phrase in ("Good to see you", "How have you been", "sounds awesome", "take care", "Bye"):
        assert phrase not in summary


def test_sentences_keep_their_order_and_who_said_them() -> None:
    lines = summary_of(CHAT).splitlines()
    assert lines[0].startswith("Ann: I moved from Bergen to Oslo")
    places = [lines[0].index(word) for word in ("Bergen", "Balder", "night train")]
    assert places == sorted(places)


def test_a_new_line_begins_where_another_person_speaks() -> None:
    texts = [
        "Ann: I keep bees in Bergen. Well, hm.",
        "Ben: I own a vineyard near Verona. Oh, yes.",
        "Ann: I sold two boats.",
    ]
    assert summary_of(texts, 0.9).splitlines()[:3] == [
        "Ann: I keep bees in Bergen.",
        "Ben: I own a vineyard near Verona.",
        "Ann: I sold two boats.",
    ]


def test_what_was_said_already_is_not_said_again() -> None:
    texts = ["We meet in Lisbon on Friday.", "Again: we meet in Lisbon on Friday.", "The budget is 4,000 euros."]
    summary = summary_of(texts, 0.7)
    assert summary.count("Lisbon") == 1
    assert "4,000 euros" in summary


def test_rare_words_that_no_chosen_sentence_has_are_listed() -> None:
    texts = [
        f"The {fruit} came from {town} and was sold out before the afternoon."
        for fruit, town in zip(FRUITS, TOWNS, strict=True)
    ]
    *_, last = summary_of(texts, 0.4).splitlines()
    assert last.startswith("Also: ")
    assert len(last) <= len("\n".join(texts)) * 0.4 * 0.4
    assert set(last.removeprefix("Also: ").split(", ")) <= {*FRUITS, *TOWNS}


FRUITS = ["apple", "quince", "medlar", "persimmon", "cherry", "mulberry", "papaya", "guava"]
TOWNS = ["Lyon", "Turin", "Porto", "Basel", "Ghent", "Malmo", "Tartu", "Split"]


def test_listed_words_that_follow_each_other_are_listed_as_a_phrase() -> None:
    texts = [f"It was {what} and it was there." for what in ("alpine skiing", "a steam engine", "the harbour festival")]
    texts += [f"The {fruit} came from {town}." for fruit, town in zip(FRUITS, TOWNS, strict=True)]
    *_, last = SUMMARIZER.summarize(texts, max_chars=300).splitlines()
    assert last.startswith("Also: alpine skiing, steam engine, harbour festival, ")


def test_openings_that_tell_nothing_are_left_out() -> None:
    texts = [
        "Ann: Wow, yeah, I moved to Oslo. On Friday, I start at Equinor. Well - that is all, I guess.",
        "Ben: Okay, bye!",
    ]
    assert summary_of(texts, 0.6).splitlines()[0] == "Ann: I moved to Oslo. On Friday, I start at Equinor."


# --- languages and shapes --------------------------------------------------------------------------------------------


def test_chinese_is_split_at_its_own_punctuation() -> None:
    texts = [
        "你好！今天天气很好，是不是？我叫李明，住在上海市浦东新区。哈哈哈。我的生日是1990年5月12日。",
        "好的，好的。我养了一只叫豆豆的狗。再见！",
    ]
    summary = summary_of(texts, 0.7)
    assert "我叫李明，住在上海市浦东新区。" in summary
    assert "1990年5月12日。" in summary


def test_other_languages_keep_their_names_and_numbers() -> None:
    german = [
        "Hallo! Wie geht es dir?",
        "Ich bin im März 2021 nach Tübingen gezogen.",
        "Ja, ja, so ist das. Na gut, ja.",
    ]
    assert "März 2021 nach Tübingen" in summary_of(german, 0.6)
    hindi = ["नमस्ते। मैं 2019 में जयपुर से मुंबई आया। हाँ।", "ठीक है। अच्छा। हाँ जी।"]
    assert "जयपुर" in summary_of(hindi, 0.7)


def test_lists_and_code_are_taken_by_lines() -> None:
    text = "Steps:\n- install PostgreSQL 17\n- run `make migrate`\n```\nexport HOLDFAST_URL=postgresql://db\n```\n- ok then"
    summary = SUMMARIZER.summarize([text], max_chars=75)
    assert "- install PostgreSQL 17\n" in summary
    assert "```" not in summary


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three? Four… Five", ["One.", "Two!", "Three?", "Four…", "Five"]),
        (
            "Dr. Ann B. Smith paid 3.50 for No. 4. Then she left.",
            ["Dr. Ann B. Smith paid 3.50 for No. 4.", "Then she left."],
        ),
        ("1. First point. Second point.", ["1. First point.", "Second point."]),
        ('He said "stop." and went on. "Why?" she asked.', ['He said "stop." and went on.', '"Why?"', "she asked."]),
        ("see example.com/a.b?c=d for more", ["see example.com/a.b?c=d for more"]),
        ("你好。再见！好", ["你好。", "再见！", "好"]),
        ("one\n\n---\n  two  \n", ["one", "two"]),
        ("", []),
    ],
)
def test_sentences_end_where_a_reader_would_end_them(text: str, sentences: list[str]) -> None:
    assert [sentence.text for sentence in split_sentences(text, 0, 400)] == sentences


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("Ann: hello", "Ann"),
        ("Dr. Ann Smith: hello", "Dr. Ann Smith"),
        ("用户: 你好", "用户"),
        ("https://example.com is it", ""),
        ("what I wanted to say is this: go", ""),
        ("10: hello", ""),
        ("Ann:", ""),
    ],
)
def test_a_name_before_a_colon_is_who_speaks(text: str, label: str) -> None:
    assert split_label(text)[0] == label


def test_a_long_sentence_comes_in_parts_that_end_with_a_clause_or_a_word() -> None:
    text = "we packed the tent and the stove, then we drove along the coast for hours, and at night we slept under the stars"
    parts = [part.text for part in split_sentences(text, 0, 50)]
    assert parts == [
        "we packed the tent and the stove,",
        "then we drove along the coast for hours,",
        "and at night we slept under the stars",
    ]


# --- the bounds ------------------------------------------------------------------------------------------------------


def test_texts_that_fit_are_returned_as_they_are() -> None:
    assert SUMMARIZER.summarize(["Hi!", " ", "Bye."], max_chars=100) == "Hi!\nBye."
    assert SUMMARIZER.summarize(["", " \n"], max_chars=10) == ""
    assert SUMMARIZER.summarize([], max_chars=10) == ""


def test_a_summary_of_no_length_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="max_chars is 0"):
        SUMMARIZER.summarize(["text"], max_chars=0)


def test_texts_of_fillers_alone_still_give_a_summary() -> None:
    assert SUMMARIZER.summarize(["Hey, how are you? " * 20], max_chars=30) == "Hey, how are you? Hey, how are"


@pytest.mark.parametrize(
    ("text", "length", "short"),
    [
        ("one two three", 7, "one two"),
        ("one two three", 9, "one two"),
        ("one two three", 3, "one"),
        ("one two three", 2, "on"),
        ("ne\u0301e\u0301e\u0301", 4, "ne\u0301"),
        ("👩\u200d🚀👩\u200d🚀", 5, "👩\u200d🚀"),
        ("🇳🇴🇳🇴", 3, "🇳🇴"),
        ("👍🏽👍🏽", 3, "👍🏽"),
        ("住在上海市浦东新区", 4, "住在上海"),
        ("住在 Shanghai", 6, "住在"),
    ],
)
def test_a_text_is_shortened_between_words_and_never_within_a_character(text: str, length: int, short: str) -> None:
    assert shorten(text, length) == short


ALPHABET = st.sampled_from(
    [*"abc I.!?,:;\n\t-0123", "Ann: ", "Oslo ", "ключ ", "é", "\u0301", "東", "京", "。", "👩\u200d🚀", "\ud800"]
)


@settings(max_examples=times(30), deadline=None)
@given(st.lists(st.lists(ALPHABET, max_size=120).map("".join), max_size=6), st.integers(1, 200))
def test_a_summary_is_never_too_long_nor_empty_and_always_the_same(texts: list[str], max_chars: int) -> None:
    summary = SUMMARIZER.summarize(texts, max_chars=max_chars)
    assert len(summary) <= max_chars
    assert bool(summary) == any(text.strip() for text in texts)
    assert summary == ExtractiveSummarizer().summarize(texts, max_chars=max_chars)


WORDS = st.tuples(st.text("abcIOéц", min_size=1, max_size=12), st.sampled_from(["", ".", ",", "!", "?"])).map("".join)


@settings(max_examples=times(30), deadline=None)
@given(st.lists(st.lists(WORDS, max_size=60).map(" ".join), max_size=6), st.integers(20, 300))
def test_a_summary_has_only_whole_words_of_the_texts(texts: list[str], max_chars: int) -> None:
    assume("Also" not in " ".join(texts))
    words = {word for text in texts for word in text.split()}
    bare = {word.strip(".,!?") for word in words}
    sentences, _, also = SUMMARIZER.summarize(texts, max_chars=max_chars).partition("Also: ")
    assert set(sentences.split()) <= words
    assert not also or set(re.split(",? ", also)) <= bare


def test_a_summary_does_not_depend_on_the_order_of_hashes() -> None:
    program = "import sys, json; from holdfast.recall.summaries import open_summarizer as o; sys.stdout.write(o('extractive').summarize(json.load(sys.stdin), max_chars=200))"
    import json

    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            input=json.dumps(CHAT),
            env={"PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    }
    assert outputs == {SUMMARIZER.summarize(CHAT, max_chars=200)}


# --- the setting, and a language model -------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", ["", "extractive:", "llm", "openai:", "openai:model", "openai:model@host"])
def test_a_wrong_setting_is_refused_with_its_value_and_what_is_accepted(setting: str) -> None:
    with pytest.raises(InvalidSettingsError) as caught:
        open_summarizer(setting)
    assert repr(setting) in str(caught.value)
    assert "extractive, openai:<model>@<base_url>" in str(caught.value)


def test_the_default_summarizer_is_extractive() -> None:
    assert open_summarizer("extractive").summarize(CHAT, max_chars=200) == SUMMARIZER.summarize(CHAT, max_chars=200)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedService]:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("HOLDFAST_OPENAI_API_KEY", "sk-test")
    monkeypatch.setattr("holdfast.recall.model_service.MAX_WAIT", 0)
    with scripted_service() as running:
        yield running


def completion(content: object) -> Reply:
    return json_reply({"choices": [{"index": 0, "message": {"role": "assistant", "content": content}}]})


def opened(service: ScriptedService) -> Summarizer:
    return open_summarizer(f"openai:tiny-chat@{service.url}")


def test_a_language_model_is_asked_with_the_text_and_the_length(service: ScriptedService) -> None:
    service.answer = lambda _: completion("  Ann moved to Oslo. ")
    assert opened(service).summarize(CHAT, max_chars=120) == "Ann moved to Oslo."
    (request,) = service.requests
    assert request.path == "/v1/chat/completions"
    assert request.headers["Authorization"] == "Bearer sk-test"
    assert request.body["model"] == "tiny-chat"
    system, user = request.body["messages"]
    assert "at most 120 characters" in system["content"]
    assert user == {"role": "user", "content": "\n".join(CHAT)}


def test_a_language_model_that_writes_too_much_is_cut_at_a_word(service: ScriptedService) -> None:
    service.answer = lambda _: completion("Ann moved to Oslo in spring and likes it there")
    assert opened(service).summarize(CHAT, max_chars=20) == "Ann moved to Oslo in"


def test_texts_that_fit_are_not_sent_anywhere(service: ScriptedService) -> None:
    assert opened(service).summarize(["short"], max_chars=20) == "short"
    assert service.requests == []


def test_of_very_long_texts_the_middle_is_left_out(service: ScriptedService) -> None:
    service.answer = lambda _: completion("much")
    opened(service).summarize(["a" * 300_000, "b" * 300_000], max_chars=20)
    content = service.requests[0].body["messages"][1]["content"]
    assert len(content) < 200_100
    assert content.startswith("aaa")
    assert content.endswith("bbb")


@pytest.mark.parametrize(
    "reply",
    [
        completion(""),
        completion(None),
        json_reply({}),
        json_reply({"choices": []}),
        json_reply([]),
        json_reply({}, 400),
    ],
)
def test_an_answer_that_is_no_summary_is_an_error(service: ScriptedService, reply: Reply) -> None:
    service.answer = lambda _: reply
    with pytest.raises(SummarizerError) as caught:
        opened(service).summarize(CHAT, max_chars=100)
    assert not caught.value.retryable


def test_a_service_that_stays_busy_is_unavailable_and_nothing_stands_in_for_it(service: ScriptedService) -> None:
    def busy(_: Request) -> Reply:
        return json_reply({}, 503)

    service.answer = busy
    with pytest.raises(SummarizerUnavailableError) as caught:
        opened(service).summarize(CHAT, max_chars=100)
    assert caught.value.retryable
