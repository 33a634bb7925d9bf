"""The page as a file: nothing from elsewhere, contrast, names, its policy."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from wfstdec.server.app import read_page

HTML = read_page()[0].decode()
STYLE = re.search(r"<style>(.*?)</style>", HTML, re.DOTALL)[1]
SCRIPT = re.search(r"<script>(.*?)</script>", HTML, re.DOTALL)[1]
INK = ("ink", "sure", "likely", "doubtful", "guessed", "soft", "open", "accent", "live")
MODES = ("light", "dark")


class Elements(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []
        self.feed(HTML)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


ELEMENTS = Elements().found
IDS = [attrs["id"] for _, attrs in ELEMENTS if "id" in attrs]


def colours(mode):
    """The colours of a mode, as `light-dark(light, dark)` has them."""
    [root] = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)
    pairs = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\);", root)
    assert len(pairs) == root.count("#") / 2
    return {name: pair[MODES.index(mode)] for name, *pair in pairs}


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    ]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    high, low = sorted(map(luminance, (one, other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("mode", MODES)
def test_contrast(mode):
    """Text 4.5, edges of controls 3; open words are lighter than settled ones."""
    found = colours(mode)

    def between(pair):
        return contrast(*map(found.get, pair))

    pairs = [(ink, ground) for ink in INK for ground in ("paper", "panel")]
    pairs += [("on-accent", "accent"), ("paper", "ink")]
    low = {pair: between(pair) for pair in pairs}
    assert min(low.values()) >= 4.5, low
    assert min(between(("edge", ground)) for ground in ("paper", "panel")) >= 3
    assert between(("open", "paper")) < between(("sure", "paper")) / 2


def test_all_colours_are_the_named_ones():
    rules = re.sub(r":root \{.*?\}", "", STYLE, flags=re.DOTALL)
    assert not re.search(r"#[0-9a-fA-F]{3,8}\b(?![^{]*\{)", rules)
    given = re.findall(r"(?<![\w-])(?:color|background(?:-color)?): ([^;]+);", rules)
    allowed = {"none", "inherit", "transparent", "currentColor", "currentcolor"}
    assert all(v.startswith("var(--") or v in allowed for v in given), given
    assert not re.search(r"#[0-9a-f]{6}|rgb\(", SCRIPT)


def test_nothing_comes_from_elsewhere():
    icon = next(a["href"] for tag, a in ELEMENTS if tag == "link")
    assert icon.startswith("data:image/svg+xml,")
    rest = HTML.replace(icon, "")
    assert not re.search(
        r"(?:https?:)?//[a-z0-9-]+\.[a-z]", rest.replace("https:// ", "")
    )
    assert not re.search(
        r"@import|url\(|\bimport\(|<(?:iframe|object|embed|base)", rest
    )
    assert not [a for _, a in ELEMENTS if "src" in a]


def test_policy_allows_own_script_and_style_alone():
    policy = dict(
        part.split(" ", 1)
        for part in read_page()[1]["content-security-policy"].split("; ")
    )
    for kind, text in (("script-src", SCRIPT), ("style-src", STYLE)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy[kind].split()
        assert not {"'unsafe-inline'", "'unsafe-eval'", "*"} & set(policy[kind].split())
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    inline = [a for _, a in ELEMENTS if "style" in a or any(n[:2] == "on" for n in a)]
    assert not inline
    assert [tag for tag, _ in ELEMENTS].count("script") == 1


def test_ids_are_unique_and_those_that_are_asked_for_are_there():
    assert len(set(IDS)) == len(IDS)
    asked = set(re.findall(r"\belement\(\"([^\"]+)\"\)", SCRIPT))
    asked |= set(re.findall(r"new Meter\(\"([^\"]+)\"", SCRIPT))
    for _, attrs in ELEMENTS:
        for name in ("for", "aria-describedby", "aria-labelledby"):
            asked |= set(attrs.get(name, "").split())
    assert asked <= set(IDS), asked - set(IDS)
    assert not {"stop", "name", "status", "open", "close", "length"} & set(IDS)


def test_fields_have_labels_and_buttons_are_no_submits_by_accident():
    labelled = {attrs["for"] for tag, attrs in ELEMENTS if tag == "label"}
    for tag, attrs in ELEMENTS:
        if tag in ("textarea", "input"):
            assert attrs.get("id") in labelled or attrs.get("aria-label")
        if tag == "button":
            assert attrs.get("type") in ("button", "submit")


def test_motion_only_where_it_is_not_unwanted():
    wished = r"@media \(prefers-reduced-motion: no-preference\) \{.*?\n\}"
    calm = re.sub(wished, "", STYLE, flags=re.DOTALL)
    assert calm != STYLE
    assert not re.search(r"animation|transition|scroll-behavior", calm)


def test_page_is_declared_as_package_data():
    import configparser
    from pathlib import Path

    config = configparser.ConfigParser()
    config.read(Path(__file__).parents[2] / "setup.cfg")
    assert "index.html" in config["options.package_data"].get("wfstdec.server", "")
