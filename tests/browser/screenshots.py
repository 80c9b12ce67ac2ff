"""``make screenshots``: pictures of the console's main pages, as docs/ shows them."""

from __future__ import annotations

import sys
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image

FOLDER = Path(__file__).parents[2] / "docs" / "img"
sys.path.insert(0, str(Path(__file__).parents[1]))

from browser.browsers import PHONE, WIDE, Window, open_browser  # noqa: E402
from browser.conftest import serve_all  # noqa: E402
from browser.world import AGENT, BEGAN, USER, fill_store  # noqa: E402
from clocks import FakeClock  # noqa: E402
from holdfast import Holdfast  # noqa: E402
from mcp_clients import listening  # noqa: E402

_RECORD = f"/console/record?user_id={USER}&agent_id={AGENT}&memory_id={{home}}"
_ASKED = f"user_id={USER}&agent_id={AGENT}&query=where+does+the+user+live"
#: The name of a picture, its page, its colours and its size.
PICTURES = (
    ("overview-light", "/console", "light", WIDE),
    ("overview-dark", "/console", "dark", WIDE),
    ("record-light", _RECORD, "light", WIDE),
    ("record-phone", _RECORD, "dark", PHONE),
    ("policies-light", "/console/policies", "light", WIDE),
    ("erasure-light", "/console/erasure?user_id=user_90", "light", WIDE),
    ("playground-dark", f"/console/playground?{_ASKED}", "dark", WIDE),
)


def main() -> None:
    clock = FakeClock(BEGAN)
    with tempfile.TemporaryDirectory() as home, Holdfast.open(home=Path(home) / "home", clock=clock) as holdfast:
        world = fill_store(holdfast, clock)
        with listening(serve_all(holdfast, keys_required=False)) as url, open_browser() as browser:
            for name, path, colours, size in PICTURES:
                context = browser.new_context(color_scheme=colours, viewport=size)  # type: ignore[arg-type]
                opened = Window(context.new_page(), url.removesuffix("/mcp"))
                opened.open(path.format(**world.ids))
                if "erasure" in path:
                    opened.click("See what would go")
                    opened.page.get_by_role("heading", name="What it does").wait_for()
                picture = (
                    Image.open(BytesIO(opened.page.screenshot())).convert("RGB").quantize(96)
                )  # few colours: small
                picture.save(FOLDER / f"console-{name}.png", optimize=True)
                context.close()


if __name__ == "__main__":
    main()
