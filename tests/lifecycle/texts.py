"""Steps about what memories say: corrections and what was said before, the same text again, and texts that stay out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.core.errors import AgentRemovedError, HeldError, NotFoundError
from holdfast.core.values import when
from lifecycle.model import LIVE, OWN, Said, Thing
from lifecycle.steps import AGENTS, CHECKS, STEPS, USERS, Steps

_PLACE: Final = {"place": range(1_000_000)}
#: Kinds of which a memory is a text, and of which a text is recalled once.
_TEXTS: Final = ("long_term", "persona", "episodic")
_ALIKE: Final = ("long_term", "persona")
ALL_STEPS: Final[Mapping[str, Mapping[str, Sequence[Any]]]] = {
    **STEPS,
    "correct": _PLACE,
    "revert": _PLACE,
    "say_again": _PLACE,
    "keep_out": _PLACE,
    "lift": _PLACE,
}
ALL_CHECKS: Final = (
    *CHECKS,
    "what_was_said_is_what_the_model_says",
    "what_is_found_as_of_a_moment_is_what_was_said_then",
    "what_is_kept_out_is_what_the_model_says",
)


class TextSteps(Steps):
    """The steps of the lifecycle, and those about texts."""

    is_lost = False
    """Whether the step was cut short."""
    checks = ALL_CHECKS

    def change(self, thing: Thing, text: str, verb: Any, *arguments: Any) -> None:
        """Let a memory say something else, and its age count anew."""
        if self.model.is_removed(thing.agent):
            self.refused(AgentRemovedError, verb, thing.id, *arguments)
        elif not self.model.is_visible(thing, self.now):
            self.refused(NotFoundError, verb, thing.id, *arguments)
        else:
            self.act(verb, thing.id, *arguments)
            thing.say(text, self.now, before="" if thing.cold and self.is_lost else None)
            thing.aged_from = self.now
            if thing.cold:
                thing.state, thing.cold = "active", False

    def correct(self, place: int) -> None:
        thing = self.some(place, *LIVE, kinds=_TEXTS)
        if thing is not None:
            text = self.text(thing.user)
            if self.has_ended(thing):
                self.refused(NotFoundError, self.memory(thing).correct, thing.id, text)
            else:
                self.change(thing, text, self.memory(thing).correct, text)

    def revert(self, place: int) -> None:
        changed = [thing for thing in self.model.records() if thing.state in LIVE and thing.ended]
        thing = changed[place % len(changed)] if changed else None
        if thing is None:
            return
        number = place % len(thing.ended) + 1
        said = thing.ended[number - 1]
        if not said.text:
            return  # it ended in a step that was cut short, and nobody knows what it said
        if said in self.model.history(thing, self.now) or not self.model.is_visible(thing, self.now):
            self.change(thing, said.text, self.memory(thing).revert, number)
        else:
            error = AgentRemovedError if self.model.is_removed(thing.agent) else NotFoundError
            self.refused(error, self.memory(thing).revert, thing.id, number)

    def say_again(self, place: int) -> None:
        """Somebody says what a memory says, or said before it was corrected; or what is to stay out."""
        known: list[tuple[str, Any]] = []
        for thing in self.model.records():
            fresh = self.model.is_visible(thing, self.now) and not self.model.is_archived(thing, self.now)
            if thing.kind in _ALIKE and (fresh or self.model.is_kept_out(thing)):
                known += [(one.text, thing) for one in self.model.history(thing, self.now) if fresh]
                known += [(thing.content, thing)]
        if known:
            text, thing = known[place % len(known)]
            add = self.memory(thing).add
            if self.model.is_removed(thing.agent):
                self.refused(AgentRemovedError, add, text, thing.kind, dedupe=True)
            else:
                out = (thing.user, text) in self.model.kept_out.values()
                answer = self.act(add, text, thing.kind, dedupe=True)
                assert answer["operation"] == ("kept_out" if out else "exists")
                assert answer["memory_id"] == thing.id

    def keep_out(self, place: int) -> None:
        thing = self.some(place, *LIVE, kinds=_ALIKE)
        if thing is None:
            return
        delete = self.memory(thing).delete
        if self.model.is_removed(thing.agent) and not self.has_ended(thing):
            self.refused(AgentRemovedError, delete, thing.id, keep_out=True)
        elif not self.model.is_visible(thing, self.now):
            self.refused(NotFoundError, delete, thing.id, keep_out=True)
        elif self.model.is_held(thing):
            self.refused(HeldError, delete, thing.id, keep_out=True)
        else:
            self.act(delete, thing.id, keep_out=True)
            self.model.recycle(thing, self.now)
            self.model.kept_out[thing.id] = thing.user, thing.content

    def lift(self, place: int) -> None:
        if self.model.kept_out:
            memory_id = list(self.model.kept_out)[place % len(self.model.kept_out)]
            user, _ = self.model.kept_out.pop(memory_id)
            self.act(self.holdfast.manager(user, "guide").lift, memory_id)

    # --- what must be true after each step ------------------------------------------------------------------------------

    def what_was_said_is_what_the_model_says(self) -> None:
        """Of one memory at a time: all that it said, and what it said at a moment."""
        things = [t for t in self.model.records() if t.kind in _TEXTS and self.model.is_visible(t, self.now)]
        if not things:
            return
        thing = things[self.steps % len(things)]
        *before, now = self.memory(thing).history(thing.id)
        kept = self.model.history(thing, self.now)
        assert len(before) == len(kept)
        assert all(said.text in one["content"] for said, one in zip(kept, before, strict=True))
        assert thing.cold or now["content"] == thing.content
        for said in [one for one in kept if one.until > one.began][-1:]:
            assert said.text in self.memory(thing).get(thing.id, as_of=when(said.until - 1))["content"]

    def what_is_found_as_of_a_moment_is_what_was_said_then(self) -> None:
        """Of one kind and scope at a time, at a moment at which something was said."""
        user, agent, kind = USERS[self.steps % 2], AGENTS[self.steps // 2 % 2], _TEXTS[self.steps // 4 % 3]
        mine = [
            thing
            for thing in self.model.records()
            if (thing.user, thing.kind) == (user, kind)
            and (kind not in OWN or thing.agent == agent)
            and self.model.is_visible(thing, self.now)
        ]
        moments = [said.until - 1 for thing in mine for said in self.model.history(thing, self.now)]
        if not moments:
            return
        at = moments[self.steps % len(moments)]
        then: dict[str, str] = {}
        for thing in mine:
            for said in [*self.model.history(thing, self.now), Said(thing.began, self.now + 1, thing.content)]:
                if said.began <= at < said.until:
                    then[thing.id] = "" if thing.cold else said.text
        options: dict[str, Any] = {"top_k": 100, "include_archived": True, "as_of": when(at)}
        found = self.holdfast.manager(user, agent).retrieve("a trip to Rome", [kind], **options)
        assert {one["memory_id"] for one in found} == set(then)
        assert all(then[one["memory_id"]] in one["content"] for one in found)

    def what_is_kept_out_is_what_the_model_says(self) -> None:
        for user in USERS:
            listed = {one["memory_id"] for one in self.holdfast.manager(user, "guide").kept_out()}
            assert listed == {one for one, (whose, _) in self.model.kept_out.items() if whose == user}
