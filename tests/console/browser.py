"""A browser without a screen: it keeps cookies, follows redirects, and sends the forms of the pages that it got."""

from __future__ import annotations

import asyncio
import re
from html import unescape
from html.parser import HTMLParser
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import urlencode

import httpx

from api.world import World, make_world
from holdfast import Holdfast
from holdfast.edges.service.limits import Limits
from holdfast.edges.service.run import build_api, build_service

HOST = "http://localhost"


class Form(NamedTuple):
    """A form of a page: where it goes, and what is in it."""

    action: str
    method: str
    fields: dict[str, str]


class _Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append(Form(given.get("action", ""), given.get("method", "get"), {}))
        elif tag == "input" and self.forms and "name" in given and given.get("type") != "checkbox":
            self.forms[-1].fields[given["name"]] = given.get("value", "")


class Seen:
    """A page that was got."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.status = response.status_code
        self.html = response.text
        self.path = response.url.path

    @property
    def text(self) -> str:
        """What a person reads."""
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", self.html)).split())

    @property
    def code(self) -> str | None:
        """The code of the error that a page shows."""
        found = re.search(r"code <b>(\w+)</b>", self.html)
        return found[1] if found else None

    def form(self, action: str, *, confirm: bool = False) -> Form:
        """The form that goes to an address; the one that confirms, if that is wanted."""
        parser = _Forms()
        parser.feed(self.html)
        return next(
            one for one in parser.forms if one.action.endswith(action) and ("confirmed" in one.fields) == confirm
        )


class Browser:
    """One browser at the site."""

    def __init__(self, site: Site) -> None:
        self._site = site
        transport = httpx.ASGITransport(app=site.app, client=("127.0.0.1", 50_000))
        self._http = httpx.AsyncClient(transport=transport, base_url=HOST, follow_redirects=True)
        self.cookies = self._http.cookies

    def request(self, method: str, path: str, **options: Any) -> Seen:
        return Seen(self._site.runner.run(self._http.request(method, path, **options)))

    def get(self, path: str, **query: Any) -> Seen:
        return self.request("GET", path + (f"?{urlencode(query)}" if query else ""))

    def send(self, form: Form, headers: dict[str, str] | None = None, **entered: str) -> Seen:
        """Send a form with what is entered in it."""
        return self.request(form.method.upper(), form.action, data={**form.fields, **entered}, headers=headers)

    def sign_in(self, secret: str) -> Seen:
        return self.send(self.get("/console/sign-in").form("/sign-in"), key=secret)

    def do(self, action: str, **fields: Any) -> Seen:
        """Open an action, look at its effect, and confirm it."""
        shown = self.get(f"/console/do/{action}", **fields)
        return self.send(shown.form(f"/do/{action}", confirm=True)) if shown.status == 200 else shown


class Site:
    """The service over a world, with or without keys."""

    def __init__(self, holdfast: Holdfast, *, keys_required: bool = True) -> None:
        self.holdfast = holdfast
        self.world: World = make_world(holdfast)
        self.runner = asyncio.Runner()
        self._keys_required = keys_required
        self._known: dict[str, Browser] = {}
        self.restart()

    def restart(self) -> None:
        """Serve the store by another process, as far as the console can tell."""
        keys_required = self._keys_required
        api = build_api(self.holdfast, keys_required=keys_required)
        limits = Limits.of(self.holdfast.settings)
        self.app = build_service(api, self.holdfast, limits=limits, keys_required=keys_required)

    def secret(self, *rights: str, **bounds: Any) -> str:
        return self.world.key(*rights, **bounds)["Authorization"].removeprefix("Bearer ")

    def browser(self, *rights: str, **bounds: Any) -> Browser:
        """A browser that signed in with a key of these rights; with none, one that did not."""
        made = Browser(self)
        if rights:
            made.sign_in(self.secret(*rights, **bounds))
        return made

    def known(self, *rights: str, **bounds: Any) -> Browser:
        """The browser that signed in with such a key before; nobody may sign it out."""
        name = f"{rights}{bounds}"
        if name not in self._known:
            self._known[name] = self.browser(*rights, **bounds)
        return self._known[name]

    def __enter__(self) -> Site:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.runner.close()
