"""Markdown to one self-contained HTML page: pictures, style and script lie inside it, and it fetches nothing.

What a report says comes from users too (labels, file names, reasons of failures), so HTML, links and entities of the
text stay text, and pictures are only those that are passed in. The page's content security policy allows its own style
and script, by their hashes, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import pairwise
from string import Template

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

LINE_BREAK = "<br>"  # what `analysis.grid` writes between the lines of a cell
TEXT_ONLY = ["html_block", "html_inline", "link", "reference", "autolink", "entity"]


class _Renderer(RendererHTML):
    """HTML of markdown-it, but for pictures, tables in a box of their own, and lines of a cell."""

    def text(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return escapeHtml(tokens[idx].content).replace(escapeHtml(LINE_BREAK), LINE_BREAK)

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        token = tokens[idx]
        alt = escapeHtml(token.content)
        picture = env["pictures"].get(token.attrs["src"])
        if picture is None:
            return alt
        data = base64.b64encode(picture).decode()
        return f'<span class="scroll" tabindex="0"><img alt="{alt}" src="data:image/svg+xml;base64,{data}"></span>'

    def table_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return '<div class="scroll" tabindex="0">\n<table>\n'

    def table_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return "</table>\n</div>\n"


def page(text: str, pictures: Mapping[str, bytes]) -> str:
    """The whole page.

    Parameters
    ----------
    text : str
        Markdown (CommonMark and tables). Its first heading is the title, those of the second level are listed on top.
    pictures : mapping of str to bytes
        SVG by the name that the Markdown gives it. A picture of any other name stays text.
    """
    parser = MarkdownIt("commonmark", renderer_cls=_Renderer).enable("table").disable(TEXT_ONLY)
    env: EnvType = {"pictures": pictures}
    tokens = parser.parse(text, env)
    _mark_numbers(tokens)
    _name_sections(tokens)
    style, script = _asset("page.css"), _asset("page.js")
    return Template(_asset("page.html")).substitute(
        title=_title(tokens),
        contents=_contents(tokens),
        body=parser.renderer.render(tokens, parser.options, env),
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
    )


def _headings(tokens: Sequence[Token], tag: str) -> Iterator[tuple[Token, str]]:
    """Each opening of that tag and its words."""
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open" and opening.tag == tag:
            yield opening, inline.content


def _title(tokens: Sequence[Token]) -> str:
    return escapeHtml(next((words for _, words in _headings(tokens, "h1")), ""))


def _name_sections(tokens: Sequence[Token]) -> None:
    for opening, words in _headings(tokens, "h2"):
        opening.attrSet("id", re.sub(r"\W+", "-", words.lower()))


def _contents(tokens: Sequence[Token]) -> str:
    links = (f'<a href="#{opening.attrs["id"]}">{escapeHtml(words)}</a>' for opening, words in _headings(tokens, "h2"))
    return "\n".join(links)


def _mark_numbers(tokens: Sequence[Token]) -> None:
    """Right-aligned cells by a class: the policy refuses style attributes."""
    for token in tokens:
        if token.type in ("th_open", "td_open") and token.attrs.pop("style", "") == "text-align:right":
            token.attrSet("class", "number")


def _asset(name: str) -> str:
    return (files("analysis") / "assets" / name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    """As a content security policy names an inline style or script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
